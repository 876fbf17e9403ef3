"""Train one cell with this package in this process, with a callback after each epoch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from runmanager.app.compose.schema import Config, conf_folder, plain_config, read_config, register_schema
from runmanager.app.run_cell import train_cell
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.storage.reader import read_record
from runmanager.tracking.lifecycle.finalizers import last_run_begun_here
from runmanager.tracking.sinks import EpochDetails, RunStart, Sink

__all__ = [
    *("CNN_ON_MNIST", "FASTEST", "PLAIN_STEPS", "Cell", "EpochListener"),
    *("compose_cell", "default_settings", "fastest_settings", "train"),
]

CNN_ON_MNIST = ("dataset=mnist", "model=cnn", "optimizer=adam", "lr=0.01", "dataset.val_size=null")
"""Settings of the tutorial's cell, on MNIST."""

FASTEST = ("loader=resident",)
"""Settings that, together with the defaults, make the CNN's epoch fastest on a CPU without changing its results."""

PLAIN_STEPS = ("channels_last=false", "micro_batch=null")
"""Settings that compute a step as a loop without any does."""

_FASTEST_ON_CUDA = ("loader=resident", "graphs=true")  # there the launches of operations are the bottleneck

_HYDRA_DEFAULTS = ("hydra/sweeper=basic", "hydra/launcher=basic")  # nothing is launched


def default_settings(device: str) -> tuple[str, ...]:
    """Return no settings, as all defaults apply; on CUDA the fastest ones, because `graphs` is off by default."""
    return fastest_settings(device) if device.partition(":")[0] == "cuda" else ()


def fastest_settings(device: str) -> tuple[str, ...]:
    """Return the settings that make the CNN's epoch fastest on `device`."""
    return _FASTEST_ON_CUDA if device.partition(":")[0] == "cuda" else FASTEST


@dataclass
class EpochListener:
    """Sink that calls back before training and after each epoch; training stops when `on_epoch_end` returns False.

    `on_epoch_end` gets the record and the losses of the steps if they are logged.
    """

    on_training_start: Callable[[], object]
    on_epoch_end: Callable[[EpochRecord, Sequence[float]], bool]

    def begin(self, start: RunStart) -> Sequence[str]:
        self.on_training_start()
        return ()

    def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
        run = last_run_begun_here()
        assert run is not None
        if not self.on_epoch_end(record, details.step_losses.values):
            run.stop_early("the benchmark has enough epochs")
        return ()

    def end(self, record: RunRecord) -> None:
        pass


@dataclass(frozen=True)
class Cell:
    """A composed cell: the options of the job and the settings to store."""

    options: Config
    params: Mapping[str, Any]


def compose_cell(args: Sequence[str]) -> Cell:
    """Compose the cell given by overrides."""
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        cfg = compose("config", overrides=[*_HYDRA_DEFAULTS, *args])
    return Cell(read_config(cfg), plain_config(cfg))


def train(cell: Cell, folder: Path, *, listener: EpochListener | None = None) -> RunRecord:
    """Train the cell as one run of a sweep in `folder`, tracked according to its settings, and return its record.

    With a `listener`, only the epoch records are tracked.
    """
    paths = SweepPaths(folder).run("run")
    sinks: list[Sink] | None = None if listener is None else [listener]
    train_cell(paths, cell.options, cell.params, sinks=sinks)
    return read_record(paths)
