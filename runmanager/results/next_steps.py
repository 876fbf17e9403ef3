"""What to do next, as a sweep's own results suggest it: a sentence for each step, the most pressing one first."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from runmanager.records.spoken import counted, in_backticks, spoken, typed
from runmanager.records.states import Reason, Status
from runmanager.results.columns import STAND_IN, Table, setting_name
from runmanager.results.judging import INCONCLUSIVE, TOO_FEW_EPOCHS
from runmanager.results.options import CompareOptions
from runmanager.results.pairing import SEED
from runmanager.results.seeds import SEEDS, collapse_seeds
from runmanager.results.sentences import best_row, finished_cells

__all__ = ["next_steps"]

_BAD = (Status.FAILED, Status.KILLED, Status.CRASHED)
_LEAST_SEEDS = 3
_EPOCHS_ENOUGH = 7  # of those asked for: the first is warm-up, and another may be
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
    to_find: Sequence[str] = (),
    is_attended: bool = True,
) -> list[str]:
    """Sentences with commands and settings in backticks.

    `sweep` is the sweep's folder and `command` what made it; `settings` are those of a run, by which it is seen which
    can be given at all; `causes` say what bounds the compared runs and what to change first; `to_find` says what can be
    found with so many runs, which is of interest where rows are inconclusive. `is_attended` is whether a driver is at
    the runs that have not begun.
    """
    known = settings or {}
    steps = [
        *_unfinished(results, shlex.quote(sweep), command, is_attended=is_attended),
        *_surer(results, comparison, known),
        *(to_find if any(row["verdict"] == INCONCLUSIVE for row in comparison.rows) else ()),
        *causes,
        *_at_the_edge(results),
    ]
    if sum(row["status"] == Status.FINISHED for row in results.rows) > 1:
        steps += _other_device(results, known)
        steps += _to_repeat(results, shlex.quote(sweep))
    return steps


def _unfinished(results: Table, sweep: str, command: Sequence[str], *, is_attended: bool) -> list[str]:
    counts = Counter(row["status"] for row in results.rows)
    running, pending = counts[Status.RUNNING], counts[Status.PENDING]
    interrupted = sum(row["reason"] == Reason.INTERRUPTED for row in results.rows)  # by people: nothing to mend
    bad = sum(counts[each] for each in _BAD) - interrupted
    steps, again = [], in_backticks(typed(command))
    waiting = running + pending if running or is_attended else 0
    if waiting:
        steps.append(f"Wait for {_runs(waiting)}: {in_backticks(f'runmanager watch {sweep}')} follows them.")
    if bad and _resumes(command):
        missing = f"then give the same command again, which does only what is missing: {again}"
        steps.append(f"Mend what ended {_runs(bad)} early (`runmanager show RUN` has the log and the error), {missing}")
    elif bad:
        steps.append(f"See what ended {_runs(bad)} early: `runmanager show RUN` has the log and the error.")
    left = interrupted + (0 if waiting else pending)
    if left and not _resumes(command):
        steps.append(f"{_runs(left)} did not come to an end, and nobody is at work; with a `name=…` one could go on.")
    elif left and not bad:
        steps.append(f"Give the same command again for the {_runs(left)} that it lacks: {again}")
    return [*steps, *_skipped(results, command)]


def _skipped(results: Table, command: Sequence[str]) -> list[str]:
    """Where the runs could be made that lacked their device."""
    skipped = [row for row in results.rows if row["status"] == Status.SKIPPED]
    if not skipped:
        return []
    devices = " and ".join(sorted({str(row["device"]) for row in skipped if row["device"]})) or "the device"
    said = f"{_runs(len(skipped))} {'was' if len(skipped) == 1 else 'were'} skipped for want of {devices}"
    there = "give the same command where there is one"
    return [f"{said}: {there}{f', {in_backticks(typed(command))}' if command else '.'}"]


def _runs(count: int) -> str:
    return counted(count, "run")


def _resumes(command: Sequence[str]) -> bool:
    """Whether the same command comes back to this sweep: without a name each has a folder of its own."""
    return any(word.startswith("name=") for word in command)


def _surer(results: Table, comparison: Table, known: Mapping[str, Any]) -> list[str]:
    """What would make the answers surer, of the settings that the runs have."""
    steps = []
    finished = [row for row in results.rows if row["status"] == Status.FINISHED]
    if met := sum(bool(row["contended"]) for row in finished):
        can_pair = "measure.name" in known and any(map(_could_pair, comparison.rows))
        turns = ", or with `measure=paired`, whose sides take turns" if can_pair else ""
        of = f"{met} of {len(finished)} runs" if len(finished) > 1 else "the run"
        steps.append(f"Measure again when the machine is quiet{turns}: other load was on it during {of}.")
    steps += _more_epochs(comparison, finished, known)
    cells = finished_cells(collapse_seeds(results))
    if "seed" in known and len(cells) > 1 and max(row.get(SEEDS, 1) for row in cells) < _LEAST_SEEDS:
        steps.append("Run several seeds, as in `seed=0,1,2,3,4`: of fewer nobody knows which differences are chance.")
    return steps


def _more_epochs(comparison: Table, finished: Sequence[Mapping[str, Any]], known: Mapping[str, Any]) -> list[str]:
    """So many that each pair has enough: as many more than were asked for as the worst pair lacks."""
    planned = known.get("epochs")
    counted = ("baseline_epochs", "candidate_epochs")
    found = [row[name] for row in comparison.rows if TOO_FEW_EPOCHS in (row["reason"] or "") for name in counted]
    if not found or not isinstance(planned, int) or all(row["reason"] == Reason.EARLY_STOPPED for row in finished):
        return []  # what stops early does so however many are asked for
    wanted = max(_EPOCHS_ENOUGH, planned + CompareOptions.min_epochs - min(found))
    return [f"Train for more epochs, as in `epochs={wanted}`: those that count were too few to compare."]


def _could_pair(row: Mapping[str, Any]) -> bool:
    """Whether runs of both sides gave a throughput, of which a device that is not there gives none."""
    return not row[STAND_IN] and None not in (row["baseline_samples_per_second"], row["candidate_samples_per_second"])


def _other_device(results: Table, known: Mapping[str, Any]) -> list[str]:
    """What would tell whether a GPU is worth it, where the runs are of one device."""
    devices = {row["device"] for row in results.rows}
    if "measure.name" not in known or len(devices) != 1:
        return []
    device = spoken(devices.pop())
    other = "cuda" if device in ("cpu", "auto") else device
    names = {row["device_name"] for row in results.rows} - {None}
    where = f"was made on {names.pop()}" if len(names) == 1 else f"has `device={device}`"
    return [f"Whether a GPU is worth it is not known, as every run {where}: `device=cpu,{other}` compares both."]


def _to_repeat(results: Table, sweep: str) -> list[str]:
    """How the best cell is made again, best by the metric that the page's answer is about."""
    found = best_row(results)
    if found is None:
        return []
    by = "" if found[0] == _BEST_BY else f" --metric {found[0]}"
    return [f"{in_backticks(f'runmanager best {sweep}{by}')} gives the command that makes the best cell again."]


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
            if beyond == "smaller" and _is_least(best[name]):
                continue
            said = f"Try a {beyond} `{setting_name(name)}`: the best {metric} is at the {end} tried"
            steps.append(f"{said}, {spoken(best[name])}.")
    return steps


def _is_least(value: float) -> bool:
    """Whether nothing smaller is any use: rates and shares end at 0, sizes and counts at 1."""
    return value == 0 or (isinstance(value, int) and value == 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
