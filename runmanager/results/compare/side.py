"""One side of a comparison: its runs, what they measured, and what stands against taking them for one."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from runmanager.records.run.environment_changes import changed_files, describe_files
from runmanager.records.run.record import Environment
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.metrics import THROUGHPUT, Metric
from runmanager.results.load.cells import Cell
from runmanager.results.stats.descriptive import mean, median
from runmanager.results.stats.effects import geometric_mean
from runmanager.text import format_value

__all__ = ["Side", "differences", "disagreements", "label_of", "memory_kind", "should_agree", "unknown_code"]

_SHORT_COMMIT = 10


@dataclass(frozen=True)
class Side:
    """The cells of one value of the axis. Only finished runs are measured."""

    label: str
    cells: Sequence[Cell]
    metric: Metric = THROUGHPUT
    paired: bool = False
    """Whether every cell asks for paired measurement, along whichever axis."""
    in_turns: bool = False
    """Whether it does so along the axis that is compared, which interleaves the two sides."""

    @cached_property
    def finished(self) -> list[StoredRun]:
        runs = (cell.stored for cell in self.cells)
        return [run for run in runs if run is not None and run.record.status is Status.FINISHED]

    @cached_property
    def measured(self) -> list[tuple[StoredRun, list[float]]]:
        """The finished runs that have values of the metric, with these: a value an epoch, or one for the run."""
        return [(run, values) for run in self.finished if (values := self.metric.values(run))]

    @cached_property
    def values(self) -> list[list[float]]:
        """The values of each measured run."""
        return [values for _, values in self.measured]

    @cached_property
    def typical(self) -> float | None:
        """The mean over its runs of a run's median over epochs; the geometric mean where sides have a ratio."""
        middles = [middle for values in self.values if (middle := median(values)) is not None]
        if not middles:
            return None
        if self.metric.effect == "difference":
            return mean(middles)
        # Values that cannot be are shown, and stand in the reason why the row is not measured.
        return geometric_mean(middles) if 0 < min(middles) <= max(middles) < math.inf else median(middles)

    @property
    def without_values(self) -> int:
        """Finished runs of which the metric says nothing."""
        return len(self.finished) - len(self.values)

    @property
    def state(self) -> str:
        """Where the side stands: `skipped (device_unavailable)`, or `2 failed (exception), 1 finished`."""
        if not self.cells:
            return "no run with these settings"
        states = Counter(map(_state, self.cells))
        if len(states) == 1:
            return next(iter(states))
        return ", ".join(f"{count} {state}" for state, count in states.items())


def label_of(axis: str, value: Any) -> str:
    """What a side is called: a device by its name, any other value with its setting (`batch_size=1000`).

    Where several settings are compared together, the value says them itself.
    """
    return (
        format_value(value)
        if axis == "device" or "+" in axis
        else f"{axis.removesuffix('.name')}={format_value(value)}"
    )


def _state(cell: Cell) -> str:
    if cell.stored is None:
        return Status.PENDING.value
    record = cell.stored.record
    if record.status is Status.FINISHED or record.reason is None:
        return record.status.value
    return f"{record.status.value} ({record.reason.value})"


def disagreements(sides: Sequence[Side]) -> list[str]:
    """The facts and the files of code in which any two finished runs differ, which makes them incomparable."""
    found = differences(sides, _must_agree)
    files = changed_files(run.record.environment for side in sides for run in side.finished)
    return [*found, f"code differs: {describe_files(files)}"] if files else found


def _must_agree(environment: Environment) -> dict[str, Any]:
    commit = environment.commit
    return {
        "torch threads": environment.torch_threads,
        "commit": commit and commit[:_SHORT_COMMIT],
        **environment.libraries,
    }


def unknown_code(sides: Iterable[Side]) -> list[str]:
    """The sides of which a finished run does not say what its code was, nor does its commit, where others do."""
    runs = [(side.label, run.record.environment) for side in sides for run in side.finished]
    lacking = dict.fromkeys(label for label, each in runs if each.code is None and each.commit_clean is not True)
    if all(each.code is None for _, each in runs) or not lacking:
        return []
    return [f"whether the code is the same is not known: {', '.join(lacking)}"]


def memory_kind(environment: Environment) -> dict[str, Any]:
    """Whose memory `peak_memory_bytes` is: on CPU with Python and torch in it, on an accelerator the tensors alone."""
    device = environment.device_name
    on_cpu = device in (environment.cpu_model, "cpu")
    return {"what is measured": None if device is None else "the process's" if on_cpu else "the accelerator's"}


def should_agree(environment: Environment) -> dict[str, Any]:
    """What a reader must know of where it differs."""
    return {"host": environment.host or None, "CPU model": environment.cpu_model}


def differences(sides: Iterable[Side], facts: Callable[[Environment], Mapping[str, Any]]) -> list[str]:
    """The facts in which any two finished runs differ, with the values of each side."""
    seen: dict[str, dict[str, dict[str, None]]] = {}
    known = [(side.label, [facts(run.record.environment) for run in side.finished]) for side in sides]
    names = dict.fromkeys(name for _, runs in known for run in runs for name in run)
    for name in names:
        for label, runs in known:
            for run in runs:
                value = run.get(name)
                text = "unknown" if value is None else str(value)
                seen.setdefault(name, {}).setdefault(label, {})[text] = None
    return [
        f"{name} differs: " + ", ".join(f"{' and '.join(values)} ({label})" for label, values in of_sides.items())
        for name, of_sides in seen.items()
        if len({value for values in of_sides.values() for value in values}) > 1
    ]
