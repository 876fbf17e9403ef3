"""The run of a training that a framework drives: its start, its settings, its epochs, what it logs, and its end."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path, PurePath
from typing import Any

import torch

from runmanager.errors import UsageError
from runmanager.records.run.metric_names import column_of_metric
from runmanager.records.settings.values import plain_settings
from runmanager.tracking.environment.cell_process import RUN_VARIABLE
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.inactive_run import InactiveRun
from runmanager.tracking.lifecycle.finalizers import last_run_begun_here
from runmanager.tracking.program.start_run import start_run_of_framework
from runmanager.tracking.run import ActiveRun
from runmanager.tracking.timing.phases import DrivenLoop

__all__ = ["FrameworkRun", "missing_package", "settings_of_hyperparameters"]


_left_open: "FrameworkRun | None" = None
"""The bridge of this process that has started a run and not ended it."""


def settings_of_hyperparameters(given: Any) -> dict[str, Any]:
    """Return hyperparameters as settings: numbers, text, lists and mappings of them, and functions by their name.

    Other objects, such as modules, are left out: their text may hold an address, which differs in each run. So are
    names that begin with `_`.
    """
    mapping = given if isinstance(given, Mapping) else vars(given)
    kept = {str(name): _kept(value) for name, value in mapping.items() if not str(name).startswith("_")}
    return plain_settings({name: value for name, value in kept.items() if value is not _DROPPED})


_DROPPED = object()


def _kept(value: Any) -> Any:
    if isinstance(value, Mapping):
        parts = {str(name): _kept(each) for name, each in value.items()}
        return {name: each for name, each in parts.items() if each is not _DROPPED}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        parts_of = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [each for part in parts_of if (each := _kept(part)) is not _DROPPED]
    is_number = hasattr(value, "item") and getattr(value, "ndim", None) == 0
    if value is None or isinstance(value, bool | int | float | str) or is_number:
        return value
    if isinstance(value, PurePath | torch.device | torch.dtype):
        return str(value)
    if callable(value) and hasattr(value, "__qualname__") and "<" not in value.__qualname__:
        return f"{value.__module__}.{value.__qualname__}"
    return _DROPPED


def missing_package(package: str, error: ImportError) -> UsageError:
    """Return the error for a bridge to `package`, which could not be imported."""
    return UsageError(
        f"runmanager.integrations.{package} needs the package {package}, got {error}; "
        f"pip install 'torch-runmanager[{package}]'"
    )


class FrameworkRun:
    """Records the training that a framework drives; each method is one event of that training.

    ```
    start            the run of this process's cell, or one of its own; a run that `start_run` began is continued
    begin_training   which epochs will follow
    begin_epoch      records the epoch before, if that is still open
    loop             the parts of the open epoch's loop
    end_loop         the epoch's last batch was trained; an evaluation and values may follow
    end_epoch        records the epoch
    end              records the end of a run that was started here
    ```

    Outside of a run, and in an epoch that is not recorded, every event is ignored. A run stays open after a training,
    as a test may follow. It ends with the process, or as the next one is started. `undisturbed` surrounds every call in
    which the network may be copied. `is_alone`: of several ranks only rank 0 is told of the events.
    """

    def __init__(
        self,
        root: str | Path | None,
        undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext,
        *,
        is_alone: bool = False,
    ) -> None:
        self.run: ActiveRun | InactiveRun | None = None
        self.loop: DrivenLoop | None = None
        self._root = root
        self._undisturbed = undisturbed
        self._is_alone = is_alone
        self._epoch: Epoch | None = None
        self._owns_run = False
        self._offset = 0
        self._has_loss = self._is_loop_over = False

    @property
    def is_kept(self) -> bool:
        """Whether the run was finished earlier, and is kept: nothing is to be trained."""
        return isinstance(self.run, InactiveRun)

    @property
    def has_ended(self) -> bool:
        """Whether the run was started, and has ended."""
        return isinstance(self.run, ActiveRun) and not self._is_open

    @property
    def folder(self) -> Path | None:
        """The folder of the run, or of the cell that this process is; None while that is not known."""
        if isinstance(self.run, ActiveRun):
            return self.run.paths.root
        cell = os.environ.get(RUN_VARIABLE)
        return Path(cell) if cell else None

    def start(self, device: torch.device, params: Mapping[str, Any] | None, network: torch.nn.Module | None) -> None:
        """Start the run on `device` unless it is open, with `params` or the settings on the command line."""
        if self.run is not None and (self.is_kept or self._is_open):
            return
        _leave_to(self)
        found = last_run_begun_here()
        self._owns_run = found is None
        self.run = found or start_run_of_framework(device, params=params, root=self._root, is_alone=self._is_alone)
        if self._owns_run and network is not None:
            with self._undisturbed():
                self.run.begin(network, None)

    @property
    def _is_open(self) -> bool:
        return isinstance(self.run, ActiveRun) and not self.run.record.status.is_ended

    def begin_training(self, first: int, last: int | None) -> None:
        """Begin a training of the epochs `first` to `last`, if that is known; a further one continues the numbers."""
        if not isinstance(self.run, ActiveRun) or not self._is_open:
            return
        if self._epoch is not None:  # a training was left by an exception, and is repeated
            self._epoch = self.loop = None
            self.run.discard_epoch()
        recorded = self.run.history[-1].epoch if self.run.history else 0
        self._offset = max(0, recorded + 1 - first)
        if last is not None:
            self.run.plan_epochs(last + self._offset)

    def begin_epoch(self, number: int) -> bool:
        """Begin an epoch, whose first batch is about to be read; return False if the run asks to stop instead."""
        self.end_epoch()
        if self.run is not None and self.run.should_stop:
            return False
        if isinstance(self.run, ActiveRun) and self._is_open:
            self._has_loss = self._is_loop_over = False
            self._epoch = self.run.begin_epoch(number + self._offset)
            self.loop = self._epoch.driven_loop()
        return True

    def show_batch(self, batch: Any) -> None:
        """Show the batch to what needs one before the first step, as the graph of the network does."""
        if self._epoch is not None and self._epoch.awaits_batch:
            with self._undisturbed():
                self._epoch.show_first_batch(batch)

    def step(self, loss: torch.Tensor | float | None, samples: int | None) -> None:
        """End a step with this mean loss and number of samples, as far as they are known."""
        if self.loop is not None:
            self._has_loss = self._has_loss or loss is not None
            self.loop.end_step(loss, samples)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Count the time of the body as tracking."""
        with nullcontext() if self._epoch is None else self._epoch.phase("tracking"):
            yield

    def end_loop(self) -> None:
        """End the loop over the epoch's batches."""
        if self.loop is not None:
            self.loop.end()
            self._is_loop_over = True

    def end_epoch(self) -> None:
        """Record the open epoch, if any."""
        epoch, self._epoch, self.loop = self._epoch, None, None
        if epoch is None or not isinstance(self.run, ActiveRun) or not self._is_open:
            return
        with self._undisturbed():
            self.run.end_epoch(epoch)

    def log(self, values: Mapping[str, Any], *, step: int | None = None) -> None:
        """Log numbers under their names, those of columns under the column's; others are left out.

        Names of training mean a column only after the epoch's loop: before, they may be values of a batch.
        """
        if self.run is None or (isinstance(self.run, ActiveRun) and not self._is_open):
            return
        numbers: dict[str, float | torch.Tensor] = {}
        for name, value in values.items():
            if isinstance(value, bool | int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1):
                numbers[self._name(name, value)] = value
        if numbers:
            self.run.log(numbers, step=step)

    def summarize(self, values: Mapping[str, float]) -> None:
        """Record values of the whole run, under their names."""
        if isinstance(self.run, ActiveRun) and self._is_open:
            self.run.summary.update(values)

    def _name(self, name: str, value: Any) -> str:
        column = column_of_metric(name)
        if column is None or (column == "loss" and self._has_loss):
            return name
        if not (self._is_loop_over or column.startswith("val_") or name.endswith("_epoch")):
            return name
        is_fraction = isinstance(value, int | float) and 0 <= value <= 1
        return column if is_fraction or not column.endswith("accuracy") else name

    def end(self, error: BaseException | None = None) -> None:
        """End the run if it was started here; an epoch that is not complete is not recorded."""
        self._epoch = self.loop = None
        if self._owns_run and isinstance(self.run, ActiveRun) and self._is_open:
            with self._undisturbed():
                self.run.end(error)


def _leave_to(following: FrameworkRun) -> None:
    """End the run that an earlier bridge has left open, unless it is a cell's, which has one run."""
    global _left_open
    if _left_open is not None and _left_open is not following and RUN_VARIABLE not in os.environ:
        with suppress(UsageError):  # its training was left within an epoch: the record says so
            _left_open.end()
    _left_open = following
