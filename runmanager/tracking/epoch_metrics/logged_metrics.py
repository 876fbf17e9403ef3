"""Metrics and units of an epoch: logged values, and means over samples, kept on their device until its end."""

import math
import numbers
import operator
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from runmanager.errors import UsageError
from runmanager.records.files.file_errors import MAX_INT64
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses, LossBuffer, sum_type, zeros
from runmanager.tracking.epoch_metrics.step_values import Reduce, StepValues
from runmanager.tracking.epoch_part import MeanState, SeriesState
from runmanager.tracking.options import check_name
from runmanager.tracking.torch_internals import as_plain
from runmanager.validation import did_you_mean


def num_samples(preds: torch.Tensor | None, labels: torch.Tensor | None, samples: int | None) -> int | None:
    """Return `samples`, by default the number of rows of labels; None for labels whose rows cannot be counted.

    Raises `UsageError` without either, and for predictions without labels, or that are not tensors.
    """
    if preds is not None and labels is None:
        raise UsageError("Tracked predictions must come with their labels, got none; pass both or leave both out.")
    if preds is not None and not (isinstance(preds, torch.Tensor) and isinstance(labels, torch.Tensor)):
        raise UsageError(
            f"Predictions and labels must be tensors, got {type(preds).__name__} and {type(labels).__name__}; use "
            "torch.as_tensor(…)."
        )
    if samples is not None:
        return whole_number("samples", samples)
    if not isinstance(labels, torch.Tensor):
        got = "neither labels nor samples=…" if labels is None else f"labels that are a {type(labels).__name__}"
        raise UsageError(f"A tracked step must come with its number of samples, got {got}; pass samples=…")
    rows = as_plain(labels)
    try:
        count = int(rows.size(0)) if rows.dim() else None
    except Exception:  # a tensor that stands for others may not know
        return None
    if count is None:
        raise UsageError(
            "A tracked step must come with its number of samples, got labels of no dimension; pass samples=…"
        )
    return count


def whole_number(name: str, count: Any) -> int:
    """Return the number, which fits a record; tensors are rejected, as reading one would wait for the device."""
    if not isinstance(count, bool | torch.Tensor):
        try:
            number = operator.index(count)
        except TypeError:
            number = -1
        if 0 <= number <= MAX_INT64:
            return number
    raise UsageError(f"`{name}` must be a whole number from 0 to 2**63 - 1, got {count!r}; pass int(…) of a tensor.")


def require_64_bits(counts: Mapping[str, int]) -> None:
    """Raise `UsageError` for a sum that no record can hold."""
    for name, count in counts.items():
        if count > MAX_INT64:
            raise UsageError(f"The `{name}` of an epoch must be at most 2**63 - 1, got {count}; count smaller steps.")


_ARGUMENTS = ("loss", "preds", "labels", "samples", "metrics", "task", "class_dim", "ignore_index")
_MISSPELT = 0.8  # similarity; that of `tokens` and `task` is 0.6


class _Accumulator(Protocol):
    """A metric that adds up its state itself, as those of torchmetrics do."""

    def compute(self) -> Any: ...

    def reset(self) -> None: ...


@dataclass
class _Mean:
    """A mean over samples, of the values that one method gets."""

    call: str
    values: LossBuffer = field(default_factory=LossBuffer)
    samples: int = 0

    def result(self) -> float:
        total = self.values.total()
        return math.nan if total is None or not self.samples else total / self.samples


class EpochMetrics:
    """The values that a program logs in one epoch, by name, and its counts of units in addition to samples.

    A name is either logged, and then its last value counts, or logged by steps and reduced, or a mean of one of `track`
    and `track_eval`. Values on a device are copied there, as the caller may reuse their memory. Only `results` waits
    for the device; it leaves the values of steps in `points`.
    """

    def __init__(self) -> None:
        self.units: dict[str, int] = {}
        self.error: Exception | None = None
        self.points: dict[str, LoggedLosses] = {}
        self._values: dict[str, float | torch.Tensor | _Accumulator | _Mean | StepValues] = {}  # in order of appearance

    def log(self, values: Mapping[str, Any]) -> None:
        """Keep the values. Raises `UsageError`, and keeps none, for a bad name or for what is not a number."""
        checked: dict[str, Any] = {}
        for name, value in values.items():
            check_name(name)
            if isinstance(self._values.get(name), _Mean | StepValues):
                raise _two_sources(name, "log", self._values[name])
            checked[name] = value if is_accumulator(value) else as_number(name, value)
        for name, value in checked.items():
            is_on_device = isinstance(value, torch.Tensor)
            self._values[name] = self._copied(name, value) if is_on_device else value

    def log_steps(self, values: Mapping[str, float | torch.Tensor], steps: Mapping[str, int], reduce: Reduce) -> None:
        """Keep checked values of steps, whose numbers are `steps`. Raises `UsageError` for a name of another source."""
        for name in values:
            known = self._values.get(name)
            if known is not None and not isinstance(known, StepValues):
                raise _two_sources(name, "run.log", known)
        for name, value in values.items():
            series = self._values.setdefault(name, StepValues())
            assert isinstance(series, StepValues)
            series.reduce = reduce
            series.add(value, steps[name])

    def _copied(self, name: str, value: torch.Tensor) -> torch.Tensor:
        slot = self._values.get(name)
        if not isinstance(slot, torch.Tensor) or slot.device != value.device:
            slot = zeros(dtype=sum_type(value.device), device=value.device)
        return slot.copy_(value.detach().reshape(()))

    def check_means(self, call: str, values: Mapping[str, Any]) -> None:
        """Raise `UsageError` if one of the names was logged, or is a mean of another method than `call`."""
        for name in values:
            known = self._values.get(name)
            if known is None:
                check_name(name)
            elif not isinstance(known, _Mean) or known.call != call:
                raise _two_sources(name, call, known)

    def add_means(self, call: str, values: Mapping[str, float | torch.Tensor], samples: int) -> None:
        """Add the checked values of one step or batch, each weighted by its number of samples."""
        for name, value in values.items():
            mean = self._values.get(name)
            if not isinstance(mean, _Mean):
                mean = self._values[name] = _Mean(call)
            mean.values.add(value, samples)
            mean.samples += samples

    def add_units(self, counts: Mapping[str, int]) -> None:
        """Add checked counts to their sums."""
        for name, count in counts.items():
            self.units[name] = self.units.get(name, 0) + count

    def state(self) -> dict[str, float | MeanState]:
        """Return numbers and means by name for a checkpoint; waits for the device. Accumulators are left out."""
        found: dict[str, float | MeanState] = {}
        for name, value in self._values.items():
            if isinstance(value, _Mean):
                found[name] = MeanState(value.call, value.values.state(), value.samples)
            elif isinstance(value, float | torch.Tensor):
                found[name] = float(value)
        return found

    def series_state(self) -> dict[str, SeriesState]:
        """Return the values logged by steps, by name, for a checkpoint; waits for the device."""
        return {name: value.state() for name, value in self._values.items() if isinstance(value, StepValues)}

    def restore(
        self,
        values: Mapping[str, float | MeanState],
        series: Mapping[str, SeriesState],
        units: Mapping[str, int],
    ) -> None:
        """Continue a new epoch's metrics from what `state` and `series_state` returned, and its units."""
        for name, value in values.items():
            if isinstance(value, MeanState):
                mean = self._values[name] = _Mean(value.call, samples=value.samples)
                mean.values.restore(value.values)
            else:
                self._values[name] = value
        self._values |= {name: StepValues.restored(each) for name, each in series.items()}
        self.units = dict(units)

    def reductions(self) -> dict[str, str]:
        """Return how the values of steps are reduced, by name."""
        return {name: value.reduce for name, value in self._values.items() if isinstance(value, StepValues)}

    def weights(self) -> dict[str, int]:
        """Return the number of samples of each mean, by name."""
        return {name: value.samples for name, value in self._values.items() if isinstance(value, _Mean)}

    def drop_partial(self, is_complete: Callable[[Any], bool]) -> list[str]:
        """Drop and reset the accumulators that have seen only a part of the epoch, and return their names."""
        logged = self._values.items()
        dropped = [name for name, each in logged if is_accumulator(each) and not is_complete(each)]
        accumulators: list[Any] = [self._values.pop(name) for name in dropped]
        for each in accumulators:
            each.reset()
        return dropped

    def results(self) -> dict[str, float]:
        """Return the values by name, NaN for a mean over no sample; waits for the device.

        Accumulators are computed and then reset; one that computes several numbers by name, as a collection does, gives
        each below its own name and a slash. A metric that cannot be computed is left out, and `error` says why: the
        epoch is trained, and must be recorded first.
        """
        found: dict[str, float | torch.Tensor] = {}
        accumulators: dict[int, _Accumulator] = {}  # one may have two names
        for name, value in self._values.items():
            try:
                if isinstance(value, StepValues):
                    self.points[name] = value.read()
                    found[name] = value.result()
                elif isinstance(value, _Mean):
                    found[name] = value.result()
                elif isinstance(value, float | torch.Tensor):
                    found[name] = value
                else:
                    found |= computed(name, value.compute(), known=found)
                    accumulators[id(value)] = value
            except Exception as error:
                error.add_note(f"This was metric {name!r}, at the end of the epoch.")
                self.error = self.error or error
        results = on_host(found)
        for each in accumulators.values():
            each.reset()
        return results


def computed(name: str, result: Any, *, known: Container[str]) -> dict[str, float | torch.Tensor]:
    """Return the numbers that an accumulator computed, by name. Raises `UsageError` for a name that is `known`."""
    if not isinstance(result, Mapping):
        return {name: as_number(name, result)}
    named = {f"{name}/{part}": value for part, value in result.items()}
    for each in named:
        check_name(each)
        if each in known:
            raise UsageError(f"Metric {each!r} must be logged once in an epoch, got it from {name!r} too.")
    return {each: as_number(each, value) for each, value in named.items()}


def checked_numbers(values: Mapping[str, Any]) -> dict[str, float | torch.Tensor]:
    """Return the values of `metrics=` as numbers, on their device. Raises `UsageError` for what is not a number."""
    if not isinstance(values, Mapping):
        raise UsageError(f"`metrics` must be a mapping of names to numbers, got {type(values).__name__}.")
    return {name: as_number(name, value) for name, value in values.items()}


def checked_units(units: Mapping[str, Any]) -> dict[str, int]:
    """Return counts of units. Raises `UsageError` unless names are identifiers and counts whole numbers.

    A name that is almost that of an argument of `track` is refused: it would be counted, and the argument missing.
    """
    for name in units:
        if hint := did_you_mean(name, _ARGUMENTS, max_names=1, cutoff=_MISSPELT):
            raise UsageError(f"`{name}` must be an argument of track or the name of a unit, got one in between; {hint}")
        if not name.isidentifier():
            raise UsageError(f"A unit's name must be an identifier, got {name!r}; as in track(loss, …, tokens=512).")
    return {name: whole_number(name, count) for name, count in units.items()}


def as_number(name: str, value: Any) -> float | torch.Tensor:
    """Return a number, or a tensor of one number on another device than the CPU, which is not waited for.

    Raises `UsageError` for anything else.
    """
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise UsageError(
                f"Metric {name!r} must be one number, got a tensor of shape {tuple(value.shape)}; take its mean."
            )
        if value.dtype != torch.bool and not value.is_complex():
            return float(value.detach()) if value.is_cpu else value
    elif isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # an integer with more than 300 digits
            return math.inf if operator.gt(value, 0) else -math.inf
    elif getattr(value, "size", None) == 1 and hasattr(value, "item"):  # an array of NumPy with one element
        return as_number(name, value.item())
    way_out = "; pass it to epoch.log(…)" if is_accumulator(value) else ""
    shown = f"a tensor of {value.dtype}" if isinstance(value, torch.Tensor) else f"{type(value).__name__}"
    raise UsageError(f"Metric {name!r} must be a number or a tensor of one number, got {shown}{way_out}.")


def checked_values(values: Mapping[str, Any] | None, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a call of `log` by name. Raises `UsageError` unless they have names."""
    if values is not None and not isinstance(values, Mapping):
        raise UsageError(
            f"log() must get names with their values, got {type(values).__name__}; call log(name=value) or "
            'log({"name": value}).'
        )
    return {**(values or {}), **named}


def is_accumulator(value: Any) -> bool:
    """Return whether a value is an object of torchmetrics, or like one."""
    methods = (getattr(value, "compute", None), getattr(value, "reset", None))
    return not isinstance(value, type) and all(map(callable, methods))


def _two_sources(name: str, call: str, known: object) -> UsageError:
    before = known.call if isinstance(known, _Mean) else "run.log" if isinstance(known, StepValues) else "log"
    return UsageError(
        f"Metric {name!r} must come from one method in an epoch, got {call}() after {before}(); use two names, as "
        f"'val_{name}' for the evaluation."
    )


def on_host(values: Mapping[str, float | torch.Tensor]) -> dict[str, float]:
    """Return the numbers, with one transfer from each device."""
    by_device: dict[torch.device, dict[str, torch.Tensor]] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            number = value.detach().reshape(()).to(sum_type(value.device))
            by_device.setdefault(value.device, {})[name] = number
    transferred: dict[str, float] = {}
    for tensors in by_device.values():
        transferred |= dict(zip(tensors, torch.stack(list(tensors.values())).tolist(), strict=True))
    return {name: transferred[name] if isinstance(value, torch.Tensor) else value for name, value in values.items()}
