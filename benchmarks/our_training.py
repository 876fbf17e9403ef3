"""This package's own training of one cell, given as the words of a command, with somebody who hears of its epochs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from runmanager.app.compose.schema import Config, conf_folder, plain_config, read_config, register_schema
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.tracking.manager import RunManager
from runmanager.tracking.run import ActiveRun
from runmanager.tracking.sinks import EpochDetails, RunStart, Sink
from runmanager.training.job import train_run

__all__ = ["CNN_ON_MNIST", "FASTEST", "Cell", "Listener", "composed", "fastest_on", "train"]

CNN_ON_MNIST = ("dataset=mnist", "model=cnn", "optimizer=adam", "lr=0.01")
"""The tutorial's cell; its images are MNIST's here."""

FASTEST = ("loader=resident", "channels_last=true", "micro_batch=auto")
"""The settings that make the CNN's epoch fastest on a CPU, and nothing else."""

_FASTEST_ON_CUDA = ("loader=resident", "graphs=true")  # where the epoch is bound by how fast operations are started

_HYDRAS_OWN = ("hydra/sweeper=basic", "hydra/launcher=basic")  # there is nothing to launch


def fastest_on(device: str) -> tuple[str, ...]:
    """The settings that make the CNN's epoch fastest on `device`."""
    return _FASTEST_ON_CUDA if device.partition(":")[0] == "cuda" else FASTEST


@dataclass
class Listener:
    """A sink that is called when training is about to begin and after each epoch; where it says no, that was the last.

    `epoch` is given the record and the losses of the steps, where these are logged.
    """

    begin_epochs: Callable[[], object]
    epoch_ended: Callable[[EpochRecord, Sequence[float]], bool]
    run: ActiveRun | None = None

    def begin(self, start: RunStart) -> Sequence[str]:
        self.begin_epochs()
        return ()

    def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
        assert self.run is not None
        if not self.epoch_ended(record, details.step_losses.values):
            self.run.stop_early("nobody wants another epoch")
        return ()

    def end(self, record: RunRecord) -> None:
        pass


@dataclass(frozen=True)
class Cell:
    """A composed cell: what the job is told, and the settings that are stored."""

    options: Config
    params: Mapping[str, Any]


def composed(words: Sequence[str]) -> Cell:
    """The cell that `words` say."""
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        cfg = compose("config", overrides=[*_HYDRAS_OWN, *words])
    return Cell(read_config(cfg), plain_config(cfg))


def train(cell: Cell, folder: Path, *, listener: Listener | None = None) -> RunRecord:
    """Train the cell as one run of a sweep in `folder`, tracked as it says, and return its record.

    With a `listener` nothing else is tracked, but for the record of each epoch.
    """
    sinks: list[Sink] | None = None if listener is None else [listener]
    manager = RunManager(folder, tensorboard=cell.options.tensorboard, console=False, sinks=sinks)

    def claimed(run: ActiveRun) -> None:
        if listener is not None:
            listener.run = run

    paths = SweepPaths(folder).run("run")
    return train_run(manager, cell.options, params=cell.params, folder=paths, when_claimed=claimed)
