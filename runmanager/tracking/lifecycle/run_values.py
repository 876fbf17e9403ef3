"""What a program logs of the whole run: its summary, kept in the run's record, and values of steps for the sinks."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import msgspec
import torch

from runmanager.errors import UsageError
from runmanager.records.run.measurement import METRICS
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.storage.run_folder import RunFolder
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.epoch_metrics.logged_metrics import as_number, computed, is_accumulator, on_host
from runmanager.tracking.epoch_metrics.sample_count import whole_number
from runmanager.tracking.epoch_metrics.step_values import Reduce, StepValues, check_reduce
from runmanager.tracking.epoch_part import LoggedState, SeriesState
from runmanager.tracking.lifecycle.run_sinks import RunSinks
from runmanager.tracking.metric_definitions import check_name

__all__ = ["RunValues", "Summary"]

_SECONDS_BETWEEN_WRITES = 1.0


class Summary(MutableMapping[str, float]):
    """The metrics of a whole run, by name: `run.summary["test_accuracy"] = 0.93`.

    A value is a number, a tensor of one number, or an object with `compute()` and `reset()`, which are called at once.
    It is in the run's record within a second, and when the run ends. Reading a tensor's value waits for its device.
    Raises `UsageError` for other values, for a name that is empty or not text, and in another thread or after the end.
    """

    def __init__(self, stored: Mapping[str, float | None], check: Callable[[], None], changed: Callable[[], None]):
        self._values: dict[str, float | torch.Tensor | StepValues] = {
            name: math.nan if value is None else value for name, value in stored.items()
        }
        self._check = check
        self._changed = changed

    def __setitem__(self, name: str, value: Any) -> None:
        self._check()
        check_name(name)
        if is_accumulator(value):
            result = computed(name, value.compute(), known=())
            value.reset()
        else:
            result = {name: as_number(name, value)}
        for each, number in result.items():
            self._values[each] = number.detach().clone() if isinstance(number, torch.Tensor) else number
        self._changed()

    def __getitem__(self, name: str) -> float:
        value = self._values[name]
        if isinstance(value, StepValues):
            return value.result()
        return float(value)

    def __delitem__(self, name: str) -> None:
        self._check()
        del self._values[name]
        self._changed()

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self))

    def series(self, name: str) -> StepValues:
        """Return the collection of the values of steps under a name; one that was set is replaced."""
        known = self._values.get(name)
        if not isinstance(known, StepValues):
            known = self._values[name] = StepValues()
        return known

    def state(self) -> dict[str, float | SeriesState]:
        """Return all values for a checkpoint; waits for the devices that hold some."""
        return {
            name: each.state() if isinstance(each, StepValues) else float(each) for name, each in self._values.items()
        }

    def restore(self, state: Mapping[str, float | SeriesState]) -> None:
        """Replace all values by what `state` returned."""
        self._values = {
            name: StepValues.restored(each) if isinstance(each, SeriesState) else each for name, each in state.items()
        }

    def numbers(self) -> dict[str, float]:
        """Return all values; waits for the devices that hold some, once each."""
        known = {name: each.result() if isinstance(each, StepValues) else each for name, each in self._values.items()}
        return on_host(known)


class RunValues:
    """Takes the values that a program logs: for the open record, else for the run's summary.

    The summary is written at most once a second. `begin` makes the sinks ready, which get the values of steps.
    """

    def __init__(
        self,
        folder: RunFolder,
        sinks: RunSinks,
        begin: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.summary = Summary(folder.record.summary or {}, self._check, self._changed)
        self._folder = folder
        self._sinks = sinks
        self._begin = begin
        self._clock = clock
        self._thread = threading.get_ident()
        self._steps: dict[str, int] = {}
        self.media_steps: dict[str, int] = {}
        self._written_at = -math.inf
        self._is_changed = False
        self._series: dict[str, StepValues] = {}
        self._reductions: dict[str, Reduce] = {}

    @property
    def has_any(self) -> bool:
        """Whether the run has a summary."""
        return len(self.summary) > 0

    def log(self, values: Mapping[str, Any], *, step: int | None, reduce: Reduce, record: Epoch | None) -> None:
        """Log values of a step in the open `record`, an epoch or interval, else in the summary."""
        check_reduce(reduce)
        self._check()
        if step is not None:
            step = whole_number("step", step)
        accumulators = {name: value for name, value in values.items() if is_accumulator(value)}
        checked = {name: as_number(name, value) for name, value in values.items() if name not in accumulators}
        for name in values:
            check_name(name)
        self._check_reductions(checked, reduce)
        steps = {name: self._steps.get(name, 0) + 1 if step is None else step for name in checked}
        if record is not None:
            record.log(accumulators)
            record.log_steps(checked, steps, reduce)
        else:
            self._begin()
            for name, number in checked.items():
                series = self._series[name] = self.summary.series(name)
                series.reduce = reduce
                series.add(number, steps[name])
            for name, value in accumulators.items():
                self.summary[name] = value
            self._changed()
        self._steps.update(steps)
        self._reductions.update(dict.fromkeys(checked, reduce))

    def _check_reductions(self, names: Iterable[str], reduce: Reduce) -> None:
        """Raise `UsageError` for a name that another call reduces otherwise: its column would mean two things."""
        for name in names:
            known = self._reductions.get(name, reduce)
            if known != reduce:
                rule = f"be the same in all calls that log {name!r}"
                raise UsageError(f"`reduce` must {rule}, got {reduce} after {known}; log one of them by another name.")

    def keep(self, record: EpochRecord) -> None:
        """Add the values of a record that is not recorded itself, as it has no step of training."""
        columns = {name: getattr(record, name) for name in METRICS}
        known = {name: value for name, value in columns.items() if value is not None} | (record.metrics or {})
        for name, value in known.items():
            self.summary[name] = math.nan if value is None else value

    def state(self) -> LoggedState:
        """Return the values so far for a checkpoint; they are written first, so that it has no value of a step."""
        self.write()
        return LoggedState(self.summary.state(), dict(self._steps), dict(self.media_steps))

    def restore(self, state: LoggedState) -> None:
        """Continue from what `state` returned; values that were logged later are no longer in the record."""
        self.summary.restore(state.summary)
        self._steps |= state.steps
        self.media_steps |= state.media_steps
        self._is_changed = True
        self.write()

    def write(self) -> None:
        """Write the summary into the record, and the values of steps to the sinks."""
        if not self._is_changed:
            return
        self._is_changed = False
        points = {name: series.read() for name, series in self._series.items()}
        self._series.clear()
        if points:
            self._sinks.points(points)
        numbers = self.summary.numbers()
        known = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        self._folder.write(summary=known or msgspec.UNSET)
        self._written_at = self._clock()

    def _changed(self) -> None:
        self._is_changed = True
        if self._clock() - self._written_at >= _SECONDS_BETWEEN_WRITES:
            self.write()

    def _check(self) -> None:
        self._folder.refuse_others()
        if threading.get_ident() != self._thread:
            raise UsageError(
                "A value must be logged by the thread that began the run, got another one; give each thread its own "
                "run."
            )
