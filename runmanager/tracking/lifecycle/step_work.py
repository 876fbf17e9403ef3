"""The work of a tracked step of a user's loop, learnt from the calls of its first steps."""

from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

from runmanager.records.run.run_record import UNKNOWN_WORK
from runmanager.text import error_line
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.introspect.call_recorder import (
    CallRecorder,
    NetworkCall,
    RecordedCall,
    RecordedStep,
    recorded_call,
)
from runmanager.tracking.introspect.step_cost import StepCost, count_call_costs, count_update_cost
from runmanager.tracking.torch_internals import is_compiled

_MIN_STEPS = 12  # recorded in short epochs before recording ends
_MAX_COUNTED = 16  # steps of different work: each takes some of the time between two epochs
_NOTED_SPREAD = 0.02  # of the FLOP of steps, relative to their units
_MIN_SHARE = 0.95  # of the weights that are used in a type, for it to be the precision of the run
_STATE_IT = "RunOptions(flop_per_sample=…) states it"
_UNSEEN = "no call of the network was seen (of a compiled one, begin the run with what `torch.compile` returns)"


class StepWork:
    """Counts the work of the first steps, from the calls that were made between two tracked ones.

    ```
    begin         the network, and the optimiser if it is known
    epoch_begins  before the clock starts: observes the calls
    epoch_ends    after it has stopped: counts the steps so far, and stops observing if there are enough
    finish        once enough steps were seen, at the latest at the run's end: the notes
    ```

    With `flop_per_sample` nothing is observed but the numbers of samples. `counts` has the fields of `Measurements`.
    """

    def __init__(self, flop_per_sample: float | None = None) -> None:
        self.recorder = CallRecorder()
        self.counts: Mapping[str, Any] = {}
        self._stated = flop_per_sample
        self._network: torch.nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._costs: dict[Hashable, StepCost] = {}
        self._update: StepCost | None = None
        self._num_different = 0
        self._has_counted = False
        self._reason = ""
        self._notes: list[str] = []
        self._is_noted = False

    def begin(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        """Count the work of this network, and of the updates of `optimizer`."""
        self._network, self._optimizer = network, optimizer

    def observe(self) -> None:
        """Observe the calls that follow, unless enough were seen."""
        if self._network is not None and self._stated is None:
            self.recorder.install(self._network, self._optimizer)

    def epoch_begins(self, epoch: Epoch, *, continues: bool = False) -> None:
        """Separate evaluations of `epoch` from its training; one that `continues` another has its last calls."""
        if not continues:
            self.recorder.discard()
        self.recorder.is_in_evaluation = epoch.is_in_evaluation

    def epoch_ends(self, *, is_continued: bool = False) -> Sequence[str]:
        """Count the work of the steps so far; return notes once enough were seen.

        If it `is_continued` by the next epoch, the calls since the last tracked step belong to that one.
        """
        if self._is_noted:
            return ()
        if not is_continued:
            self.recorder.discard()
        self.recorder.is_in_evaluation = None
        if self.recorder.steps:
            self._count(self.recorder.steps)
        is_enough = self.recorder.is_finished or len(self.recorder.steps) >= _MIN_STEPS
        return self.finish() if is_enough else ()

    def finish(self) -> Sequence[str]:
        """Stop observing; return the notes on the work, once."""
        self.recorder.finish()
        if self._is_noted or not (self._has_counted or self.recorder.failure):
            return ()
        self._is_noted = True
        if self.recorder.failure or not self.counts:
            reason = self._reason or _UNSEEN
            if self.recorder.failure:
                reason = f"a call of the network cannot be recorded ({self.recorder.failure})"
            self.counts = dict.fromkeys(("flop_per_step", "operations_per_step", "bytes_per_step"))
            self._notes = [f"{UNKNOWN_WORK}: {reason}; {_STATE_IT}"]
        return self._notes

    @property
    def type_of_products(self) -> torch.dtype | None:
        """The type that nearly all weights were used in; None without one, or if no layer was seen."""
        types = self.recorder.weights_by_type
        return next((found for found, count in types.items() if count >= _MIN_SHARE * types.total()), None)

    @property
    def first_call(self) -> NetworkCall | None:
        """The first call of the whole network in a step that was seen, with tensors on `meta`; None without one."""
        calls = (call for step in self.recorder.steps for call in step.calls)
        found = next((call for call in calls if call.module is self._network), None)
        return None if found is None else recorded_call(found.module, *found.arguments)

    def _count(self, steps: Sequence[RecordedStep]) -> None:
        self._has_counted = True
        if self._stated is not None:
            if all("samples" in step.units for step in steps):
                samples = fmean(step.units["samples"] for step in steps)
                self.counts = {"flop_per_step": round(self._stated * samples), "step_units": {"samples": samples}}
            else:
                self._reason = "the number of samples in a step is not known"
        elif any(step.calls for step in steps) and not self.recorder.failure and not self._reason:
            try:
                self._count_calls(steps)
            except Exception as error:  # a model may fail here in any way; the run must not
                self._reason = f"it cannot be followed without data ({error_line(error)})"
                self.counts = {}

    def _count_calls(self, steps: Sequence[RecordedStep]) -> None:
        assert self._network is not None
        missing = self._uncounted(steps)
        self._costs |= zip(missing, count_call_costs(list(missing.values())), strict=True)
        if self._update is None:
            optimizer = self._optimizer
            self._update = StepCost() if optimizer is None else count_update_cost(self._network, optimizer)
        counted = _full_steps([step for step in steps if all(call.signature in self._costs for call in step.calls)])
        costs = [self._cost(step) for step in counted]
        flop = [cost.flop for cost in costs]
        unit, spread = _basis(counted, flop)
        called = {call.module for step in counted for call in step.calls}
        # Compiled code has other operators, and autocast other types, than the copy.
        has_compiled = any(is_compiled(part) for module in called for part in module.modules())
        has_other_bytes = has_compiled or self.recorder.has_autocast
        self.counts = {
            "flop_per_step": round(fmean(flop)),
            "operations_per_step": None if has_compiled else _mean([cost.operations for cost in costs]),
            "bytes_per_step": None if has_other_bytes else _mean([cost.bytes for cost in costs]),
        }
        if unit is not None:
            self.counts = {**self.counts, "step_units": {unit: fmean(step.units[unit] for step in counted)}}
        self._notes = []
        if spread > _NOTED_SPREAD:
            relative = f", relative to its {unit}," if unit else ""
            seen = f"over the first {len(counted)} steps that were counted"
            self._notes = [f"the work of a step{relative} varies by {spread:.0%} {seen}: its mean counts"]

    def _uncounted(self, steps: Sequence[RecordedStep]) -> dict[Hashable, RecordedCall]:
        """Return the calls whose work is to be counted, by signature: one of each kind."""
        missing: dict[Hashable, RecordedCall] = {}
        for step in steps:
            found = {call.signature: call for call in step.calls}
            if not found.keys() <= self._costs.keys() | missing.keys() and self._num_different < _MAX_COUNTED:
                self._num_different += 1
                missing |= {key: call for key, call in found.items() if key not in self._costs}
        return missing

    def _cost(self, step: RecordedStep) -> StepCost:
        updates = [self._update or StepCost()] * step.num_updates
        return sum((self._costs[call.signature] for call in step.calls), sum(updates, StepCost()))


def _mean(amounts: Sequence[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return round(fmean(known)) if len(known) == len(amounts) else None


def _full_steps(steps: Sequence[RecordedStep]) -> Sequence[RecordedStep]:
    """Leave out steps of fewer samples, as with the last batch of an epoch, if most have the same number."""
    counts = [step.units.get("samples", 0) for step in steps]  # 0 where it is not known
    full = [step for step, count in zip(steps, counts, strict=True) if count == max(counts)]
    return full if 2 * len(full) >= len(steps) else steps


def _basis(steps: Sequence[RecordedStep], flop: Sequence[int]) -> tuple[str | None, float]:
    """Return the unit that the FLOP of steps are most proportional to, and by how much they differ relative to it.

    None if every unit has a step without it; the difference is that of the steps then.
    """
    spreads: dict[str, float] = {}
    for unit in steps[0].units:
        amounts = [step.units.get(unit, 0) for step in steps]
        if all(amounts):
            spreads[unit] = _spread([each / amount for each, amount in zip(flop, amounts, strict=True)])
    if not spreads:
        return None, _spread(flop)
    unit = min(spreads, key=lambda each: round(spreads[each], 3))  # the first of equal ones: samples
    return unit, spreads[unit]


def _spread(values: Sequence[float]) -> float:
    mean = fmean(values)
    return (max(values) - min(values)) / mean if mean else 0.0
