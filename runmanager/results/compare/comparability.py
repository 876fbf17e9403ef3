"""Whether two sides can be compared: enough measured values, equal code and libraries, one kind of memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from runmanager.records.run.environment_changes import changed_files, describe_files
from runmanager.records.run.run_record import Environment
from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.comparison_side import Side
from runmanager.results.compare.options import ENOUGH_SEEDS, CompareOptions
from runmanager.results.metrics.loss_functions import OF_THE_LOSS, loss_functions
from runmanager.results.metrics.metric_lookup import MEMORY, RUN_TIME, recorded_names

__all__ = [
    "TOO_FEW_EPOCHS",
    "compared_environments",
    "count_values",
    "describe_unfinished",
    "differences",
    "disagreements",
    "obstacles",
]

TOO_FEW_EPOCHS = "too few epochs"

_COMMIT_DIGITS = 10
_LARGEST = 1e100  # the squares of larger values soon overflow


def obstacles(sides: tuple[Side, Side], options: CompareOptions) -> list[str]:
    """Return the reasons why two sides cannot be compared; an empty list where they can."""
    if unfinished := describe_unfinished(sides):
        return unfinished
    metric, counts = sides[0].metric, count_values(sides)
    found = [*_untimed(sides), *_invalid_values(sides), *disagreements(sides)]
    if metric.name in OF_THE_LOSS:
        found += _different_losses(sides)
    if metric == MEMORY:
        found += differences(sides, _memory_kind)
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
        found.append(f"too few runs: {measured}, {options.min_seeds} needed; add seeds, as in {ENOUGH_SEEDS}")
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
        threads = differences(sides, lambda environment: {"torch threads": environment.torch_threads})
        within = [line for side in sides for line in _disagreements([side])]
        return list(dict.fromkeys([*threads, *within]))
    return _disagreements(sides)


def _disagreements(sides: Sequence[Side]) -> list[str]:
    found = differences(sides, _required_facts)
    files = changed_files(run.record.environment for side in sides for run in side.finished)
    return [*found, f"code differs: {describe_files(files)}"] if files else found


def _required_facts(environment: Environment) -> dict[str, Any]:
    commit = environment.commit
    return {
        "torch threads": environment.torch_threads,
        "commit": commit and commit[:_COMMIT_DIGITS],
        **environment.libraries,
    }


def compared_environments(sides: Sequence[Side]) -> list[str]:
    """Name what is compared where the sides are sweeps: commit, versions, host and device, as far as they differ."""
    if not all(side.is_sweep for side in sides):
        return []
    found = differences(sides, _compared_facts, runs_of=lambda side: side.started)
    if files := changed_files(run.record.environment for side in sides for run in side.started):
        found.append(f"code differs: {describe_files(files)}")
    return found or ["commit, libraries, host and device are equal"]


def _compared_facts(environment: Environment) -> dict[str, Any]:
    commit = environment.commit
    return {
        "commit": commit and commit[:_COMMIT_DIGITS],
        "python": environment.python or None,
        **environment.libraries,
        "host": environment.host or None,
        "CPU model": environment.cpu_model,
        "device": environment.device_name,
        "driver": environment.driver,
        "CUDA": environment.cuda,
    }


def _memory_kind(environment: Environment) -> dict[str, Any]:
    """`peak_memory_bytes` on CPU includes Python and torch; on an accelerator it is that of the tensors alone."""
    device = environment.device_name
    on_cpu = device in (environment.cpu_model, "cpu")
    return {"what is measured": None if device is None else "the process's" if on_cpu else "the accelerator's"}


def differences(
    sides: Iterable[Side],
    facts: Callable[[Environment], Mapping[str, Any]],
    *,
    runs_of: Callable[[Side], Sequence[StoredRun]] = lambda side: side.finished,
) -> list[str]:
    """Return the facts in which any two finished runs, or those of `runs_of`, differ, with the values of each side."""
    seen: dict[str, dict[str, dict[str, None]]] = {}
    known = [(side.label, [facts(run.record.environment) for run in runs_of(side)]) for side in sides]
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
