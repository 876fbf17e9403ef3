"""How the cost of tracking grows: with the epochs of a run, from 10 to 10,000, and its parameters, from 10^3 to 10^8.

Counted in seconds of CPU, which are less distorted by what else the machine does, and of tracking alone: no step is
computed. Histograms are off: what they look at has a bound of its own.
"""

import itertools
import math
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import nn

from benchmarks.command import Settings, carry_out
from benchmarks.growth import grown
from benchmarks.interleaving import Patience, in_turns, timed
from benchmarks.rows import Row
from benchmarks.stored_sweep import write_stored_sweep
from runmanager import RunManager
from runmanager.results.result_files import write_tables
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.options import RunOptions
from runmanager.tracking.run import ActiveRun

__all__ = ["measure"]

_EPOCHS = (10, 100, 1000, 10_000)
_PARAMETERS = (10**3, 10**4, 10**5, 10**6, 10**7, 10**8)
_NUM_STEPS = 200
_IN, _OUT = 8, 10
_BATCH = (torch.zeros(10, _IN), torch.zeros(10, dtype=torch.int64))
_LOSS, _PREDS = torch.tensor(1.0), torch.zeros(10, _OUT)
_PATIENCE = Patience(min_rounds=2, max_rounds=5, max_seconds=30, half_width=0)  # of each of the three parts

Costs = dict[int, list[float]]


def measure(settings: Settings) -> list[Row]:
    """A row for each cost and what it grows with."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*_appending(folder, settings), *_reporting(folder, settings), *_tracking(folder, settings)]


def _appending(folder: Path, settings: Settings) -> Iterator[Row]:
    """The epochs of one run from its first one on: record, event file, log."""
    seconds: Costs = {number: [] for number in _EPOCHS}
    manager = RunManager(folder / "appending", console=False, owns_sweep=False)

    def many_epochs() -> None:
        settings = {"turn": len(seconds[_EPOCHS[0]])}
        with manager.run(settings, nn.Linear(_IN, _OUT), [_BATCH], options=RunOptions(log_every=1)) as run:
            begin = time.process_time()
            for epoch in run.epochs(_EPOCHS[-1] + 1):
                if epoch.number - 1 in seconds:  # so many have ended before this one
                    seconds[epoch.number - 1].append(time.process_time() - begin)
                _track(epoch, num_steps=1)

    in_turns({"": timed(many_epochs)}, patience=settings.patience, warm_up_rounds=0)
    yield grown("all epochs of a run, of one step each", seconds, of="epochs")


def _reporting(folder: Path, settings: Settings) -> Iterator[Row]:
    """What is written once a run has ended: the tables, and the report with its curves."""
    for what, has_report in (("the tables of a run", False), ("the tables and the report of a run, with curves", True)):
        sweeps = {
            count: write_stored_sweep(folder / f"{what} {count}", num_runs=1, num_epochs=count) for count in _EPOCHS
        }
        works = {
            str(count): timed(partial(write_tables, sweep, report=has_report), clock=time.process_time)
            for count, sweep in sweeps.items()
        }
        seconds = in_turns(works, patience=settings.patience, seed=settings.seed)
        yield grown(what, dict(zip(_EPOCHS, seconds.values(), strict=True)), of="epochs")


def _tracking(folder: Path, settings: Settings) -> Iterator[Row]:
    """A run's beginning, its steps and the end of its epoch, by the size of its network."""
    costs: Mapping[str, Costs] = {what: {size: [] for size in _PARAMETERS} for what in ("beginning", "step", "end")}
    manager = RunManager(folder / "tracking", console=False, owns_sweep=False)
    turns = itertools.count()

    def one_epoch(size: int, network: nn.Module) -> None:
        begin = time.process_time()
        with manager.run({"turn": next(turns)}, network, [_BATCH] * _NUM_STEPS) as run:
            costs["beginning"][size].append(time.process_time() - begin)
            assert isinstance(run, ActiveRun)  # each turn is a new run
            epoch = run.begin_epoch()
            begin = time.process_time()
            _track(epoch, num_steps=_NUM_STEPS)
            costs["step"][size].append((time.process_time() - begin) / _NUM_STEPS)
            begin = time.process_time()
            run.end_epoch(epoch)
            costs["end"][size].append(time.process_time() - begin)

    works = {str(size): timed(partial(one_epoch, size, _network(size))) for size in _PARAMETERS}
    in_turns(works, patience=settings.patience, seed=settings.seed)
    yield grown("a step, tracked", costs["step"], of="parameters")
    yield grown("the end of an epoch", costs["end"], of="parameters")
    yield grown("the beginning of a run, with its graph", costs["beginning"], of="parameters")


def _track(epoch: Epoch, *, num_steps: int) -> None:
    for _, labels in epoch.batches([_BATCH] * num_steps):
        epoch.track(_LOSS, _PREDS, labels)


def _network(num_parameters: int) -> nn.Module:
    """A network of about so many parameters, none of which is drawn."""
    width = round(math.sqrt(num_parameters + 100) - 10)  # width² + (_IN + 1 + 1 + _OUT) width, roughly
    with torch.device("meta"):
        network = nn.Sequential(nn.Linear(_IN, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, _OUT))
    network.to_empty(device="cpu")
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    return network


if __name__ == "__main__":
    carry_out("tracking_growth", measure, summary=__doc__, patience=_PATIENCE)
