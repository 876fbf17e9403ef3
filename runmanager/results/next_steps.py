"""What to do next, as a sweep's own results suggest it: a sentence for each step, the most pressing one first."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from runmanager.records.spoken import spoken
from runmanager.records.states import Reason, Status
from runmanager.results.columns import Table, setting_name
from runmanager.results.judging import CONTENDED, TOO_FEW_EPOCHS
from runmanager.results.pairing import SEED
from runmanager.results.seeds import SEEDS, collapse_seeds
from runmanager.results.sentences import best_row, finished_cells

__all__ = ["next_steps"]

_BAD = (Status.FAILED, Status.KILLED, Status.CRASHED)
_LEAST_SEEDS = 3
_LEAST_VALUES = 3  # of an axis: of two values the best is always at an end
_BEST_BY = "val_accuracy"  # what `runmanager best` goes by where no other metric is named
_NO_WAY_ON = ("num_workers", "eval_batch_size", SEED)  # these change the speed alone, or nothing for the better


def next_steps(
    results: Table,
    comparison: Table,
    *,
    sweep: str,
    command: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    causes: Sequence[str] = (),
    is_attended: bool = True,
) -> list[str]:
    """Sentences with commands and settings in backticks.

    `sweep` is the sweep's folder and `command` what made it; `settings` are those of a run, by which it is seen which
    can be given at all; `causes` say what bounds the compared runs and what to change first. `is_attended` is whether
    somebody is at the runs that have not begun.
    """
    known = settings or {}
    steps = [
        *_unfinished(results, shlex.quote(sweep), command, is_attended=is_attended),
        *_surer(results, comparison, known),
        *causes,
        *_at_the_edge(results),
    ]
    if sum(row["status"] == Status.FINISHED for row in results.rows) > 1:
        steps += _to_compare(results, comparison, shlex.quote(sweep))
        steps += _to_repeat(results, shlex.quote(sweep))
    return steps


def _unfinished(results: Table, sweep: str, command: Sequence[str], *, is_attended: bool) -> list[str]:
    counts = Counter(row["status"] for row in results.rows)
    running, pending = counts[Status.RUNNING], counts[Status.PENDING]
    interrupted = sum(row["reason"] == Reason.INTERRUPTED for row in results.rows)  # by people: nothing to mend
    bad = sum(counts[each] for each in _BAD) - interrupted
    steps = []
    waiting = running + pending if running or is_attended else 0
    if waiting:
        steps.append(f"Wait for {_runs(waiting)}: `runmanager watch {sweep}` follows them.")
    if bad and _resumes(command):
        again = f"then give the same command again, which does only what is missing: `{shlex.join(command)}`"
        steps.append(f"Mend what ended {_runs(bad)} early (`runmanager show RUN` has the log and the error), {again}")
    elif bad:
        steps.append(f"See what ended {_runs(bad)} early: `runmanager show RUN` has the log and the error.")
    left = interrupted + (0 if waiting else pending)
    if left and not _resumes(command):
        steps.append(f"{_runs(left)} did not come to an end, and nobody is at work; with a `name=…` one could go on.")
    elif left and not bad:
        steps.append(f"Give the same command again for the {_runs(left)} that it lacks: `{shlex.join(command)}`")
    if skipped := counts[Status.SKIPPED]:
        devices = {str(row["device"]) for row in results.rows if row["status"] == Status.SKIPPED and row["device"]}
        where = f"Give the same command on a machine that has {' and '.join(sorted(devices)) or 'the device'}"
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
        can_pair = "measure.name" in known and any(map(_has_both_sides, comparison.rows))
        turns = ", or with `measure=paired`, whose sides take turns" if can_pair else ""
        steps.append(f"Measure again when the machine is quiet{turns}: other load was on it.")
    if "epochs" in known and any(TOO_FEW_EPOCHS in reason for reason in reasons):
        steps.append("Train for more epochs, as in `epochs=7`: those that count were too few to compare.")
    finished = finished_cells(collapse_seeds(results))
    if "seed" in known and len(finished) > 1 and max(row.get(SEEDS, 1) for row in finished) < _LEAST_SEEDS:
        steps.append("Run several seeds, as in `seed=0,1,2,3,4`: of fewer nobody knows which differences are chance.")
    return steps


def _has_both_sides(row: Mapping[str, Any]) -> bool:
    """Whether runs of both sides gave a throughput: of a device that is not there none did."""
    return None not in (row["baseline_samples_per_second"], row["candidate_samples_per_second"])


def _to_compare(results: Table, comparison: Table, sweep: str) -> list[str]:
    """What can be compared where the devices cannot."""
    finished = [row for row in results.rows if row["status"] == Status.FINISHED]
    shown = [name for name in results.settings if name in results.shown and name != SEED]
    varying = [setting_name(name) for name in shown if len({spoken(row[name]) for row in finished}) > 1]
    if any(map(_has_both_sides, comparison.rows)) or not varying:
        return []
    return [f"`runmanager compare {sweep} --axis {shlex.quote(varying[-1])}` compares what varies."]


def _to_repeat(results: Table, sweep: str) -> list[str]:
    """How the best cell is made again, best by the metric that the page's answer is about."""
    found = best_row(results)
    if found is None:
        return []
    by = "" if found[0] == _BEST_BY else f" --metric {found[0]}"
    return [f"`runmanager best {sweep}{by}` gives the command that makes the best cell again."]


def _at_the_edge(results: Table) -> list[str]:
    """Where the best cell, and all that are as good, lie at an end of an axis, better ones may lie beyond it."""
    found = best_row(results)
    if found is None:
        return []
    metric, best, results = found
    as_good = [row for row in finished_cells(results) if row[metric] == best[metric]]
    steps = []
    for name in results.settings:
        values = [row[name] for row in results.rows]
        if setting_name(name) in _NO_WAY_ON or not all(map(_is_number, values)) or len(set(values)) < _LEAST_VALUES:
            continue
        if best[name] in (min(values), max(values)) and all(row[name] == best[name] for row in as_good):
            end, beyond = ("largest", "larger") if best[name] == max(values) else ("smallest", "smaller")
            said = f"Try a {beyond} `{setting_name(name)}`: the best {metric} is at the {end} tried"
            steps.append(f"{said}, {spoken(best[name])}.")
    return steps


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
