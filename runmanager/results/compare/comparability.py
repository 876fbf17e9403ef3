"""Whether two sides can be compared: enough measured values, equal code and libraries, one kind of memory."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from runmanager.records.run.environment_changes import (
    MUST_AGREE,
    UNKNOWN_AGREES,
    changed_files,
    describe_files,
    facts_of,
)
from runmanager.records.run.measurement import LOSSES
from runmanager.records.run.program_report import ProgramKind, kind_of_program
from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.comparison_table import CompareOptions, Side, enough_seeds
from runmanager.results.metrics.metric import TIME_TO
from runmanager.results.metrics.metric_lookup import RUN_TIME, loss_functions, recorded_names

TOO_FEW_EPOCHS = "too few epochs"

_COMPARED = ("commit", "python", "host", "CPU model", "device", "driver", "CUDA")
"""The facts, besides the versions of libraries, that are compared where the sides are sweeps."""

_MEMORY_KIND = "what is measured"
_NEGLIGIBLE = 0.01  # of a time: less compilation than that decides no comparison
_LARGEST = 1e100  # the squares of larger values soon overflow


def obstacles(sides: tuple[Side, Side], options: CompareOptions) -> list[str]:
    """Return the reasons why two sides cannot be compared; an empty list where they can."""
    if unfinished := describe_unfinished(sides):
        return unfinished
    metric, counts = sides[0].metric, count_values(sides)
    found = [*_untimed(sides), *_invalid_values(sides), *disagreements(sides), *_hidden_compilation(sides)]
    if metric.name in LOSSES:
        found += _different_losses(sides)
    if metric.effect == "ratio":
        found += differences(sides, [_MEMORY_KIND])
    if metric == RUN_TIME and any(side.paired for side in sides):
        found.append("run_seconds of paired runs include their rounds, which take both sides equally long")
    measured = ", ".join(f"{count} of {side.label}" for side, count in zip(sides, counts, strict=True))
    if metric.per_epoch and not any(run.epochs for side in sides for run in side.finished):
        found.append("no epochs were recorded")
    elif metric.per_epoch:
        if min(counts) < options.min_epochs:
            found.append(f"{TOO_FEW_EPOCHS}: {measured} measured, {options.min_epochs} needed")
    elif lacking := [side for side in sides if side.without_values]:
        # Leaving out the runs that never got there would favour the side that has more of them.
        found += [f"{side.label}: {side.without_values} of {len(side.finished)} {metric.lack}" for side in lacking]
    elif min(counts) < options.min_seeds:
        add = f"add seeds, as in {enough_seeds(sides[0].seeds)}"
        found.append(f"too few runs: {measured}, {options.min_seeds} needed; {add}")
    return found


def _different_losses(sides: Sequence[Side]) -> list[str]:
    losses = loss_functions([run.record for side in sides for run in side.finished])
    return [f"the loss functions differ, and so what is measured: {', '.join(losses)}"] if len(losses) > 1 else []


def _untimed(sides: tuple[Side, Side]) -> list[str]:
    """Name the sides with adopted runs, where the metric is a time or a rate."""
    if sides[0].metric.effect != "speedup":
        return []
    labels = [side.label for side in sides if any(run.is_adopted for run in side.finished)]
    if not labels:
        return []
    names = recorded_names([run for side in sides for run in side.finished])
    way_out = f"; what they recorded is compared with --metric: {', '.join(names)}" if names else ""
    return [f"adopted runs were not timed: {', '.join(labels)}{way_out}"]


def _hidden_compilation(sides: tuple[Side, Side]) -> list[str]:
    """Name the sides whose times contain compilation that cannot be taken out: what it takes depends on caches."""
    metric = sides[0].metric
    if metric == RUN_TIME:
        contains = _has_compiled_before
    elif metric.name.startswith(TIME_TO):
        contains = _compiles_in_epochs
    else:
        return []
    labels = [
        side.label
        for side in sides
        for run, values in side.measured
        if contains(run.record) and (run.record.measurements.compile_seconds or 0.0) > _NEGLIGIBLE * values[-1]
    ]
    found = ", ".join(dict.fromkeys(labels))
    return [f"{metric.name} includes compilation, and how much of it is not known: {found}"] if labels else []


def _has_compiled_before(record: RunRecord) -> bool:
    return bool(record.earlier)  # the seconds recorded are those of the last attempt


def _compiles_in_epochs(record: RunRecord) -> bool:
    return not (kind_of_program(record) is ProgramKind.BUILT_IN and record.config.get("compile") is True)


def describe_unfinished(sides: Sequence[Side]) -> list[str]:
    """Return the state of each side without a finished run."""
    return [f"{side.label}: {side.state}" for side in sides if not side.finished]


def count_values(sides: tuple[Side, Side]) -> tuple[int, int]:
    """Return the number of measured values of each side."""
    baseline, candidate = (sum(map(len, side.values)) for side in sides)
    return baseline, candidate


def _invalid_values(sides: Sequence[Side]) -> list[str]:
    """Name values that cannot have been measured, or whose statistics would overflow."""
    least = -_LARGEST if sides[0].metric.effect == "difference" else 1 / _LARGEST
    found = {
        side.label: value for side in sides for run in side.values for value in run if not least < value < _LARGEST
    }
    return [
        f"{label}: {sides[0].metric.name} of {value:g} is not a valid measurement" for label, value in found.items()
    ]


def disagreements(sides: Sequence[Side]) -> list[str]:
    """Return the facts and files of code in which any two finished runs differ, which makes them incomparable.

    Two sweeps may differ in commit, libraries and code, but the runs of each of them may not.
    """
    if all(side.is_sweep for side in sides):
        between = differences(sides, MUST_AGREE)
        within = [line for side in sides for line in _disagreements([side])]
        return list(dict.fromkeys([*between, *within]))
    return _disagreements(sides)


def _disagreements(sides: Sequence[Side]) -> list[str]:
    found = differences(sides, [*MUST_AGREE, "commit"], libraries=True)
    files = changed_files(run.record.environment for side in sides for run in side.finished)
    return [*found, f"code differs: {describe_files(files)}"] if files else found


def compared_environments(sides: Sequence[Side]) -> list[str]:
    """Name what is compared where the sides are sweeps: commit, versions, host and device, as far as they differ."""
    if not all(side.is_sweep and side.cells for side in sides):
        return []
    runs = [run.record.environment for side in sides for run in side.started]
    found = differences(sides, _COMPARED, libraries=True, runs_of=lambda side: side.started)
    if files := changed_files(runs):
        found.append(f"code differs: {describe_files(files)}")
    if found or all(run.commit for run in runs):
        return found or ["commit, libraries, host and device are equal"]
    return ["libraries, host and device are equal", f"the commit is {_shown('commit', None, runs[0].commit_unknown)}"]


def _facts(record: RunRecord) -> dict[str, Any]:
    """The facts of a run's environment, and whose memory its `peak_memory_bytes` is.

    On CPU it includes Python and torch; on an accelerator it is that of the tensors alone.
    """
    device, cpu = record.environment.device_name, record.environment.cpu_model
    kind = None if device is None else "the process's" if device in (cpu, "cpu") else "the accelerator's"
    return facts_of(record.environment, record.measurements) | {_MEMORY_KIND: kind}


def differences(
    sides: Iterable[Side],
    names: Collection[str],
    *,
    libraries: bool = False,
    runs_of: Callable[[Side], Sequence[StoredRun]] = lambda side: side.finished,
) -> list[str]:
    """Return the facts of these names in which any two runs differ, with the values of each side.

    `libraries`: the versions of the libraries too. The runs are the finished ones, or those of `runs_of`.
    """
    of_sides = [(side.label, [(run.record.environment, _facts(run.record)) for run in runs_of(side)]) for side in sides]
    more = dict.fromkeys(name for _, runs in of_sides for run, _ in runs for name in run.libraries)
    found = []
    for name in (*names, *(more if libraries else ())):
        texts: dict[str, dict[str, None]] = {}
        values: set[Any] = set()
        for label, runs in of_sides:
            for run, facts in runs:
                value = facts.get(name)
                texts.setdefault(label, {})[_shown(name, value, run.commit_unknown)] = None
                values.add(value)
        if len(values - {None} if name in UNKNOWN_AGREES else values) > 1:
            sides_text = ", ".join(f"{' and '.join(shown)} ({label})" for label, shown in texts.items())
            found.append(f"{name} differs: {sides_text}")
    return found


def _shown(name: str, value: Any, why_no_commit: str | None) -> str:
    if value is not None:
        return str(value)
    return f"unknown ({why_no_commit})" if name == "commit" and why_no_commit else "unknown"
