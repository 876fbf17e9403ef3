"""Growth of the cost of tracking with the epochs of a run, 10 to 10,000, and its parameters, 10^3 to 10^8.

Costs are CPU seconds, which other load distorts less, of tracking alone: no step is computed. Histograms are off; their
cost has a separate limit.
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

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.growth import growth_row
from benchmarks.interleaving import StoppingRule, run_interleaved, timed
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
_STOPPING_RULE = StoppingRule(min_rounds=2, max_rounds=5, max_seconds=30, half_width=0)  # for each of the three parts

Costs = dict[int, list[float]]


def measure(settings: Settings) -> list[Row]:
    """Return a row per cost."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*_appending(folder, settings), *_reporting(folder, settings), *_tracking(folder, settings)]


def _appending(folder: Path, settings: Settings) -> Iterator[Row]:
    """Measure the epochs of one run: record, event file, log."""
    seconds: Costs = {number: [] for number in _EPOCHS}
    manager = RunManager(folder / "appending", console=False)

    def many_epochs() -> None:
        settings = {"call": len(seconds[_EPOCHS[0]])}
        with manager.run(settings, nn.Linear(_IN, _OUT), [_BATCH], options=RunOptions(log_every=1)) as run:
            start = time.process_time()
            for epoch in run.epochs(_EPOCHS[-1] + 1):
                if epoch.number - 1 in seconds:  # the number of finished epochs
                    seconds[epoch.number - 1].append(time.process_time() - start)
                _track(epoch, num_steps=1)

    run_interleaved({"": timed(many_epochs)}, stopping_rule=settings.stopping_rule, warm_up_rounds=0)
    yield growth_row("all epochs of a run, one step each", seconds, of="epochs")


def _reporting(folder: Path, settings: Settings) -> Iterator[Row]:
    """Measure the tables, and the report with curves, written after a run."""
    for what, has_report in (("the tables of a run", False), ("the tables and the report of a run, with curves", True)):
        sweeps = {
            count: write_stored_sweep(folder / f"{what} {count}", num_runs=1, num_epochs=count) for count in _EPOCHS
        }
        works = {
            str(count): timed(partial(write_tables, sweep, report=has_report), clock=time.process_time)
            for count, sweep in sweeps.items()
        }
        seconds = run_interleaved(works, stopping_rule=settings.stopping_rule, seed=settings.seed)
        yield growth_row(what, dict(zip(_EPOCHS, seconds.values(), strict=True)), of="epochs")


def _tracking(folder: Path, settings: Settings) -> Iterator[Row]:
    """Measure the start of a run, its steps and the end of its epoch, by the size of the network."""
    costs: Mapping[str, Costs] = {what: {size: [] for size in _PARAMETERS} for what in ("start", "step", "end")}
    manager = RunManager(folder / "tracking", console=False)
    calls = itertools.count()

    def one_epoch(size: int, network: nn.Module) -> None:
        start = time.process_time()
        with manager.run({"call": next(calls)}, network, [_BATCH] * _NUM_STEPS) as run:
            costs["start"][size].append(time.process_time() - start)
            assert isinstance(run, ActiveRun)  # each call is a new run
            epoch = run.begin_epoch()
            start = time.process_time()
            _track(epoch, num_steps=_NUM_STEPS)
            costs["step"][size].append((time.process_time() - start) / _NUM_STEPS)
            start = time.process_time()
            run.end_epoch(epoch)
            costs["end"][size].append(time.process_time() - start)

    works = {str(size): timed(partial(one_epoch, size, _network(size))) for size in _PARAMETERS}
    run_interleaved(works, stopping_rule=settings.stopping_rule, seed=settings.seed)
    yield growth_row("a step, tracked", costs["step"], of="parameters")
    yield growth_row("the end of an epoch", costs["end"], of="parameters")
    yield growth_row("the start of a run, with its graph", costs["start"], of="parameters")


def _track(epoch: Epoch, *, num_steps: int) -> None:
    for _, labels in epoch.batches([_BATCH] * num_steps):
        epoch.track(_LOSS, _PREDS, labels)


def _network(num_parameters: int) -> nn.Module:
    """Build a network with about `num_parameters` parameters, all zero."""
    width = round(math.sqrt(num_parameters + 100) - 10)  # width² + (_IN + 1 + 1 + _OUT) width, roughly
    with torch.device("meta"):
        network = nn.Sequential(nn.Linear(_IN, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, _OUT))
    network.to_empty(device="cpu")
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    return network


if __name__ == "__main__":
    run_benchmark("tracking_growth", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
