"""What to do next, as a sweep's own results suggest it: a sentence for each step, the most pressing one first."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from runmanager.records.spoken import spoken
from runmanager.records.states import Status
from runmanager.results.columns import Table, setting_name
from runmanager.results.judging import CONTENDED, TOO_FEW_EPOCHS
from runmanager.results.pairing import SEED
from runmanager.results.seeds import SEEDS, collapse_seeds
from runmanager.results.sentences import best_row, finished_cells

__all__ = ["next_steps"]

_BAD = (Status.FAILED, Status.KILLED, Status.CRASHED)
_LEAST_SEEDS = 3
_LEAST_VALUES = 3  # of an axis: of two values the best is always at an end
_SPEED_ONLY = ("num_workers", "eval_batch_size")


def next_steps(
    results: Table,
    comparison: Table,
    *,
    sweep: str,
    command: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    causes: Sequence[str] = (),
) -> list[str]:
    """Sentences with commands and settings in backticks.

    `sweep` is the sweep's folder and `command` what made it; `settings` are those of a run, by which it is seen which
    can be given at all; `causes` say what bounds the compared runs and what to change first.
    """
    known = settings or {}
    steps = [
        *_unfinished(results, shlex.quote(sweep), command),
        *_surer(results, comparison, known),
        *causes,
        *_at_the_edge(results),
    ]
    if sum(row["status"] == Status.FINISHED for row in results.rows) > 1:
        steps += _to_compare(results, comparison, shlex.quote(sweep))
        steps.append(f"`runmanager best {shlex.quote(sweep)}` gives the command that makes the best cell again.")
    return steps


def _unfinished(results: Table, sweep: str, command: Sequence[str]) -> list[str]:
    counts = Counter(row["status"] for row in results.rows)
    steps = []
    bad, waiting = sum(counts[each] for each in _BAD), counts[Status.PENDING] + counts[Status.RUNNING]
    if waiting:
        steps.append(f"Wait for {_runs(waiting)}: `runmanager watch {sweep}` follows them.")
    if bad and _resumes(command):
        again = f"then give the same command again, which does only what is missing: `{shlex.join(command)}`"
        steps.append(f"Mend what ended {_runs(bad)} early (`runmanager show RUN` has the log and the error), {again}")
    elif bad:
        steps.append(f"See what ended {_runs(bad)} early: `runmanager show RUN` has the log and the error.")
    if skipped := counts[Status.SKIPPED]:
        where = "Give the same command on a machine that has the device"
        steps.append(f"{where}: {_runs(skipped)} {'was' if skipped == 1 else 'were'} skipped for want of it.")
    return steps


def _runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"


def _resumes(command: Sequence[str]) -> bool:
    """Whether the same command comes back to this sweep: without a name each has a folder of its own."""
    return any(word.startswith("name=") for word in command)


def _surer(results: Table, comparison: Table, known: Mapping[str, Any]) -> list[str]:
    """What would make the answers surer, of the settings that the runs have."""
    steps = []
    reasons = [row["reason"] or "" for row in comparison.rows]
    if any(reason.startswith(CONTENDED) for reason in reasons):
        turns = ", or with `measure=paired`, whose sides take turns" if "measure.name" in known else ""
        steps.append(f"Measure again when the machine is quiet{turns}: other load was on it.")
    if "epochs" in known and any(TOO_FEW_EPOCHS in reason for reason in reasons):
        steps.append("Train for more epochs, as in `epochs=7`: those that count were too few to compare.")
    finished = finished_cells(collapse_seeds(results))
    if "seed" in known and len(finished) > 1 and max(row.get(SEEDS, 1) for row in finished) < _LEAST_SEEDS:
        steps.append("Run several seeds, as in `seed=0,1,2,3,4`: of fewer nobody knows which differences are chance.")
    return steps


def _to_compare(results: Table, comparison: Table, sweep: str) -> list[str]:
    """What can be compared where the devices cannot."""
    varying = [setting_name(name) for name in results.settings if name in results.shown and name != SEED]
    finished = [row for row in results.rows if row["status"] == Status.FINISHED]
    if comparison.rows or not varying or len(finished) < 2:
        return []
    return [f"`runmanager compare {sweep} --axis {shlex.quote(varying[-1])}` compares what varies."]


def _at_the_edge(results: Table) -> list[str]:
    """Where the best cell lies at an end of an axis, better ones may lie beyond it."""
    found = best_row(results)
    if found is None:
        return []
    metric, best, results = found
    equal = [row for row in finished_cells(results) if row[metric] == best[metric]]
    steps = []
    for name in results.settings:
        values = [row[name] for row in results.rows]
        if setting_name(name) in _SPEED_ONLY or not all(map(_is_number, values)) or len(set(values)) < _LEAST_VALUES:
            continue
        if any(row[name] != best[name] for row in equal):
            continue  # as good a one lies elsewhere on this axis
        if best[name] in (min(values), max(values)):
            end, beyond = ("largest", "larger") if best[name] == max(values) else ("smallest", "smaller")
            said = f"Try a {beyond} `{setting_name(name)}`: the best {metric} is at the {end} tried"
            steps.append(f"{said}, {spoken(best[name])}.")
    return steps


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
