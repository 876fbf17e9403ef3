"""What to do next, as a sweep's own results suggest it: a sentence for each step, the most pressing one first."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from runmanager.records.run.status import Reason, Status
from runmanager.records.sweep.lookup import OUTPUT_ROOT
from runmanager.results.compare.comparability import TOO_FEW_EPOCHS
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable
from runmanager.results.compare.options import CompareOptions
from runmanager.results.compare.pairing import SEED
from runmanager.results.compare.verdict import INCONCLUSIVE
from runmanager.results.findings.answers import best_row, finished_cells
from runmanager.results.model.columns import Row, Table, setting_name
from runmanager.results.tables.seeds import SEEDS, collapse_seeds
from runmanager.text import format_value, in_backticks, pluralize, shell_command

__all__ = ["next_steps"]

_BAD = (Status.FAILED, Status.KILLED, Status.CRASHED)
_PROGRAM = ("python", "-m", "runmanager")
_RUNS_MORE = ("resume=", "rerun_changed=")  # with these a command would also run what is finished
_LEAST_SEEDS = 3
_EPOCHS_ENOUGH = 7  # of those asked for: the first is warm-up, and another may be
_LEAST_VALUES = 3  # of an axis: of two values the best is always at an end
_BEST_BY = "val_accuracy"  # what `runmanager best` goes by where no other metric is named
_NO_WAY_ON = ("num_workers", "eval_batch_size", SEED)  # these change the speed alone, or nothing for the better


def next_steps(
    results: Table,
    comparison: ComparisonTable,
    *,
    sweep: str,
    commands: Mapping[str, Sequence[str]] | None = None,
    settings: Mapping[str, Any] | None = None,
    causes: Sequence[str] = (),
    to_find: Sequence[str] = (),
    is_attended: bool = True,
) -> list[str]:
    """Sentences with commands and settings in backticks.

    `sweep` is the folder, `commands` have for each run the one that asked for it. `settings` are those of a run, by
    which it is seen which can be given at all; `causes` say what bounds the compared runs and what to change first;
    `to_find` says what so many runs can find, which is of interest where rows are inconclusive. `is_attended` is
    whether a driver is at the runs that have not begun.
    """
    known = settings or {}
    steps = [
        *_unfinished(results, sweep, commands or {}, is_attended=is_attended),
        *_surer(results, comparison, known),
        *(to_find if any(row["verdict"] == INCONCLUSIVE for row in comparison.rows) else ()),
        *causes,
        *_at_the_edge(results),
    ]
    if sum(row["status"] == Status.FINISHED for row in results.rows) > 1:
        steps += _other_device(results, known)
        steps += _to_repeat(results, shlex.quote(sweep))
    return steps


def _unfinished(results: Table, sweep: str, commands: Mapping[str, Sequence[str]], *, is_attended: bool) -> list[str]:
    def rows_where(is_so: Callable[[Row], bool]) -> list[Row]:
        return [row for row in results.rows if is_so(row)]

    running = rows_where(lambda row: row["status"] == Status.RUNNING)
    pending = rows_where(lambda row: row["status"] == Status.PENDING)
    interrupted = rows_where(lambda row: row["reason"] == Reason.INTERRUPTED)  # by people: nothing to mend
    bad = rows_where(lambda row: row["status"] in _BAD and row["reason"] != Reason.INTERRUPTED)
    steps = []
    waiting = len(running) + len(pending) if running or is_attended else 0
    if waiting:
        watch = in_backticks(f"runmanager watch {shlex.quote(sweep)}")
        steps.append(f"Wait for {_runs(waiting)}: {watch} follows them.")
    left = interrupted + ([] if waiting else pending)
    again = _again([*bad, *left], sweep, commands)
    if bad and again:
        give, do = ("command", "does") if len(again) == 1 else ("commands", "do")
        missing = f"then give the same {give} again, which {do} only what is missing: {_listed(again)}"
        steps.append(
            f"Mend what ended {_runs(len(bad))} early (`runmanager show RUN` has the log and the error), {missing}"
        )
    elif bad:
        steps.append(f"See what ended {_runs(len(bad))} early: `runmanager show RUN` has the log and the error.")
    if left and not again:
        way_out = "with a `name=…` a sweep can be resumed"
        steps.append(f"{_runs(len(left))} did not come to an end, and no driver is at work; {way_out}.")
    elif left and not bad:
        give, lack = ("command", "it lacks") if len(again) == 1 else ("commands", "they lack")
        steps.append(f"Give the same {give} again for the {_runs(len(left))} that {lack}: {_listed(again)}")
    return [*steps, *_skipped(results, sweep, commands)]


def _skipped(results: Table, sweep: str, commands: Mapping[str, Sequence[str]]) -> list[str]:
    """Where the runs could be made that lacked their device."""
    skipped = [row for row in results.rows if row["status"] == Status.SKIPPED]
    if not skipped:
        return []
    devices = " and ".join(sorted({str(row["device"]) for row in skipped if row["device"]})) or "the device"
    said = f"{pluralize(len(skipped), 'run was', 'runs were')} skipped for want of {devices}"
    given = _again(skipped, sweep, commands) or _given(skipped, commands)
    there = f"give the same command{'s' if len(given) > 1 else ''} where there is one"
    return [f"{said}: {there}{f', {_listed(given)}' if given else '.'}"]


def _given(rows: Sequence[Row], commands: Mapping[str, Sequence[str]]) -> list[Sequence[str]]:
    """The commands that asked for these cells, in the order in which they were given."""
    runs = {row["run"] for row in rows}
    return list(dict.fromkeys(tuple(command) for run, command in commands.items() if run in runs and command))


def _again(rows: Sequence[Row], sweep: str, commands: Mapping[str, Sequence[str]]) -> list[Sequence[str]]:
    """The commands that run what is missing and nothing else; none where one would begin another sweep."""
    found = [_resumed(command, sweep) for command in _given(rows, commands)]
    return list(dict.fromkeys(filter(None, found))) if all(found) else []


def _resumed(command: Sequence[str], sweep: str) -> tuple[str, ...]:
    """The command as it comes back to this sweep and keeps what is finished; empty where none does."""
    words = tuple(word for word in command if not word.startswith(_RUNS_MORE))
    if any(word.startswith("name=") for word in words):
        return words
    if words[: len(_PROGRAM)] != _PROGRAM:
        return ()
    folder = PurePath(sweep)
    has_root = folder.parent.name == OUTPUT_ROOT.name or any(word.startswith("output_root=") for word in words)
    return (*words, f"name={folder.name}", *(() if has_root else (f"output_root={folder.parent}",)))


def _listed(commands: Sequence[Sequence[str]]) -> str:
    return " and ".join(in_backticks(shell_command(command)) for command in commands)


def _runs(count: int) -> str:
    return pluralize(count, "run")


def _surer(results: Table, comparison: ComparisonTable, known: Mapping[str, Any]) -> list[str]:
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
    if "seed" in known and len(cells) > 1 and max(row.values.get(SEEDS, 1) for row in cells) < _LEAST_SEEDS:
        steps.append("Run several seeds, as in `seed=0,1,2,3,4`: of fewer nobody knows which differences are chance.")
    return steps


def _more_epochs(comparison: ComparisonTable, finished: Sequence[Row], known: Mapping[str, Any]) -> list[str]:
    """So many that each pair has enough: as many more than were asked for as the worst pair lacks."""
    planned = known.get("epochs")
    pluralize = ("baseline_epochs", "candidate_epochs")
    found = [row[name] for row in comparison.rows if TOO_FEW_EPOCHS in (row["reason"] or "") for name in pluralize]
    if not found or not isinstance(planned, int) or all(row["reason"] == Reason.EARLY_STOPPED for row in finished):
        return []  # what stops early does so however many are asked for
    wanted = max(_EPOCHS_ENOUGH, planned + CompareOptions.min_epochs - min(found))
    return [f"Train for more epochs, as in `epochs={wanted}`: those that count were too few to compare."]


def _could_pair(row: ComparisonRow) -> bool:
    """Whether runs of both sides gave a throughput, of which a device that is not there gives none."""
    return not row.is_stand_in and None not in (row["baseline_samples_per_second"], row["candidate_samples_per_second"])


def _other_device(results: Table, known: Mapping[str, Any]) -> list[str]:
    """What would tell whether a GPU is worth it, where the runs are of one device."""
    devices = {row["device"] for row in results.rows}
    if "measure.name" not in known or len(devices) != 1:
        return []
    device = format_value(devices.pop())
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
            steps.append(f"{said}, {format_value(best[name])}.")
    return steps


def _is_least(value: float) -> bool:
    """Whether nothing smaller is any use: rates and shares end at 0, sizes and counts at 1."""
    return value == 0 or (isinstance(value, int) and value == 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
