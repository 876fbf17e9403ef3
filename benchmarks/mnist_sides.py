"""Sides of the tutorial benchmarks, one process per side: an epoch or a whole run, the tutorial's and ours.

python -m benchmarks.mnist_sides tutorial-epoch --data DIR --batch-size 1000
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from benchmarks.interleaving import timed
from benchmarks.our_training import (
    CNN_ON_MNIST,
    EpochListener,
    compose_cell,
    default_settings,
    fastest_settings,
    train,
)
from benchmarks.side_processes import Turns
from benchmarks.tutorial import (
    LEARNING_RATE,
    Tally,
    TutorialManager,
    TutorialNetwork,
    training_set,
    tutorial_epoch,
    tutorial_loader,
)
from runmanager.records.run.run_record import EpochRecord
from runmanager.tracking.introspect.step_cost import count_step_cost
from runmanager.tracking.monitoring.calibration import best_seconds, probes
from runmanager.tracking.timing.timer import clock_for

__all__ = ["NUM_EPOCHS_PER_RUN", "NUM_SAMPLES", "serve_our_epochs"]

NUM_SAMPLES = 60_000
NUM_EPOCHS_PER_RUN = 2
_ENDLESS = 1_000_000
_CEILING_SECONDS = 0.5


def _tutorial_epochs(data: Path, batch_size: int, device: str, turns: Turns) -> None:
    """Run the tutorial's epochs in one training, without its run manager."""
    torch.manual_seed(0)
    loader = tutorial_loader(training_set(data), batch_size)
    network = TutorialNetwork().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)

    def epoch() -> None:
        tutorial_epoch(network, loader, optimizer, Tally())  # fetching each step's loss synchronises the device

    turns.serve(timed(epoch))


def _our_epochs(data: Path, batch_size: int, device: str, turns: Turns) -> None:
    """Run our epochs in one run, on a CPU with default settings."""
    serve_our_epochs([*_args(data, batch_size, device), *default_settings(device)], turns)


def serve_our_epochs(args: Sequence[str], turns: Turns) -> None:
    """Run one epoch per turn in a run of the cell given by `args`, and report its `epoch_seconds`."""

    def ended(record: EpochRecord, _: Sequence[float]) -> bool:
        assert record.epoch_seconds is not None
        turns.report(record.epoch_seconds)
        return turns.wait()

    with tempfile.TemporaryDirectory() as folder:
        settings = ("checkpoint.every=0", f"epochs={_ENDLESS}")
        train(compose_cell([*args, *settings]), Path(folder), listener=EpochListener(turns.wait, ended))


def _tutorial_runs(data: Path, batch_size: int, device: str, turns: Turns) -> None:
    """Run whole tutorial runs with the run manager, from building the network to the last byte written."""
    dataset = training_set(data)

    def run(folder: Path) -> None:
        torch.manual_seed(0)
        network, loader = TutorialNetwork().to(device), tutorial_loader(dataset, batch_size)
        optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
        manager = TutorialManager(folder, network, loader, lr=LEARNING_RATE, batch_size=batch_size, device=device)
        for tally in manager.epochs(NUM_EPOCHS_PER_RUN):
            tutorial_epoch(network, loader, optimizer, tally)
        manager.save(folder / "results")

    turns.serve(partial(_in_a_new_folder, run))


def _our_runs(data: Path, batch_size: int, device: str, turns: Turns) -> None:
    """Run whole runs of ours, which also read data, validate, and write checkpoints, records, tables and the report."""
    tracked = (f"epochs={NUM_EPOCHS_PER_RUN}", "tensorboard.histograms=true")
    args = [*_args(data, batch_size, device), *tracked, *fastest_settings(device)]
    turns.serve(partial(_in_a_new_folder, partial(train, compose_cell(args))))


def _ceiling(_: Path, batch_size: int, device: str, turns: Turns) -> None:
    """Report the seconds that an epoch's FLOP would take at the rate of the device's fastest matrix product."""
    steps, rest = divmod(NUM_SAMPLES, batch_size)
    assert rest == 0
    flop = count_step_cost(TutorialNetwork(), torch.empty(batch_size, 1, 28, 28)).flop
    assert flop is not None
    where = torch.device(device)
    (probe,) = (probe for probe in probes(where) if probe.name == "fp32")

    def best() -> float:
        seconds = best_seconds([probe], clock_for(where), seconds=_CEILING_SECONDS)
        return steps * flop * seconds[probe.name] / probe.amount

    turns.serve(best)


def _args(data: Path, batch_size: int, device: str) -> list[str]:
    return [*CNN_ON_MNIST, f"data_root={data}", f"batch_size={batch_size}", f"device={device}"]


def _in_a_new_folder(work: Callable[[Path], object]) -> float:
    folder = Path(tempfile.mkdtemp())
    try:
        return timed(partial(work, folder))()
    finally:
        shutil.rmtree(folder)


_SIDES: dict[str, Callable[[Path, int, str, Turns], None]] = {
    "tutorial-epoch": _tutorial_epochs,
    "our-epoch": _our_epochs,
    "tutorial-run": _tutorial_runs,
    "our-run": _our_runs,
    "ceiling": _ceiling,
}


def main() -> None:
    """Serve the side given by the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=_SIDES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    _SIDES[options.side](options.data, options.batch_size, options.device, Turns())


if __name__ == "__main__":
    main()
