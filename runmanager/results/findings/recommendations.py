"""Recommended next steps for a sweep: a sentence for each, the most urgent one first."""

from collections.abc import Mapping, Sequence
from typing import Any

from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.gpus import has_cuda
from runmanager.records.run.status import Reason, Status, is_complete
from runmanager.records.storage.reader import StoredRun
from runmanager.records.sweep.lookup import OUTPUT_ROOT, command_on
from runmanager.results.compare.comparability import TOO_FEW_EPOCHS
from runmanager.results.compare.comparison_table import CompareOptions, ComparisonRow, ComparisonTable, enough_seeds
from runmanager.results.compare.verdict import INCONCLUSIVE
from runmanager.results.findings.answer_sentences import best_row, finished_cells
from runmanager.results.table_model.columns import Row, Table, setting_name
from runmanager.results.tables.shown_rows import SEEDS, collapse_seeds
from runmanager.text import format_value, in_backticks, pluralize, shell_command

_BAD = (Status.FAILED, Status.KILLED, Status.CRASHED)
_PROGRAM = ("python", "-m", "runmanager")
_RERUN_SETTINGS = ("resume=", "rerun_changed=")  # with these a command would also rerun finished cells
MIN_EPOCHS = 7  # requested: the first is warm-up, and another may be
_MIN_VALUES = 3  # of an axis: of two values the best is always at an end
_DEFAULT_METRIC = "val_accuracy"  # of `runmanager best`
_NOT_EXTENDED = ("num_workers", "eval_batch_size")  # they do not improve the metrics


def next_steps(
    results: Table,
    comparison: ComparisonTable,
    *,
    sweep: SweepPaths,
    commands: Mapping[str, Sequence[str]] | None = None,
    settings: Mapping[str, Any] | None = None,
    causes: Sequence[str] = (),
    to_find: Sequence[str] = (),
    is_attended: bool = True,
    runs: Sequence[StoredRun] = (),
) -> list[str]:
    """Recommend next steps, in sentences with commands and settings in backticks.

    `commands` has the command that requested each run. `settings` are those of a run, which show what can be set.
    `causes` describe what bounds the compared runs and what to change first; `to_find` describes what this number of
    runs can detect, which is shown where rows are inconclusive. `is_attended` is whether a driver may still start the
    pending runs. `runs` are the records of the rows.
    """
    known = settings or {}
    steps = [
        *_unfinished(results, sweep, commands or {}, is_attended=is_attended),
        *_more_certainty(results, comparison, known),
        *(to_find if any(row["verdict"] == INCONCLUSIVE for row in comparison.rows) else ()),
        *causes,
        *_at_the_edge(results, runs),
    ]
    if sum(is_complete(row["status"], row["reason"]) for row in results.rows) > 1:
        steps += _other_device(results, known)
        steps += _to_repeat(results, runs, sweep)
    return steps


def _unfinished(
    results: Table, sweep: SweepPaths, commands: Mapping[str, Sequence[str]], *, is_attended: bool
) -> list[str]:
    running = [row for row in results.rows if row["status"] == Status.RUNNING]
    pending = [row for row in results.rows if row["status"] == Status.PENDING]
    interrupted = [row for row in results.rows if row["reason"] == Reason.INTERRUPTED]  # by the user: nothing to fix
    bad = [row for row in results.rows if row["status"] in _BAD and row["reason"] != Reason.INTERRUPTED]
    steps = []
    waiting = len(running) + len(pending) if running or is_attended else 0
    if waiting:
        steps.append(f"Wait for {_runs(waiting)}: {in_backticks(command_on(sweep, 'watch'))} follows them.")
    left = interrupted + ([] if waiting else pending)
    again = _again([*bad, *left], sweep, commands)
    if bad and again:
        command, run = ("command", "runs") if len(again) == 1 else ("commands", "run")
        missing = f"then repeat the same {command}, which {run} only what is missing: {_listed(again)}"
        steps.append(
            f"Fix what ended {_runs(len(bad))} early (`runmanager show RUN` has the log and the error), {missing}"
        )
    elif bad:
        steps.append(f"See what ended {_runs(len(bad))} early: `runmanager show RUN` has the log and the error.")
    if left and not again:
        way_out = "with a `name=…` a sweep can be resumed"
        steps.append(f"{_runs(len(left))} did not finish, and no driver is running; {way_out}.")
    elif left and not bad:
        command = "command" if len(again) == 1 else "commands"
        steps.append(f"Repeat the same {command} for {_runs(len(left))} still missing: {_listed(again)}")
    return [*steps, *_skipped(results, sweep, commands)]


def _skipped(results: Table, sweep: SweepPaths, commands: Mapping[str, Sequence[str]]) -> list[str]:
    """Recommend where to run the cells that were skipped."""
    skipped = [row for row in results.rows if row["status"] == Status.SKIPPED]
    if not skipped:
        return []
    devices = " and ".join(sorted({str(row["device"]) for row in skipped if row["device"]})) or "the device"
    text = f"{pluralize(len(skipped), 'run was', 'runs were')} skipped because the host has no {devices}"
    given = _again(skipped, sweep, commands) or _given(skipped, commands)
    there = f"repeat the same command{'s' if len(given) > 1 else ''} on one that has"
    return [f"{text}: {there}{f', {_listed(given)}' if given else '.'}"]


def _given(rows: Sequence[Row], commands: Mapping[str, Sequence[str]]) -> list[Sequence[str]]:
    """Return the commands that requested these cells, in the order in which they were given."""
    runs = {row["run"] for row in rows}
    return list(dict.fromkeys(tuple(command) for run, command in commands.items() if run in runs and command))


def _again(rows: Sequence[Row], sweep: SweepPaths, commands: Mapping[str, Sequence[str]]) -> list[Sequence[str]]:
    """Return the commands that run only what is missing; empty where one would start another sweep."""
    found = [_resumed(command, sweep) for command in _given(rows, commands)]
    return list(dict.fromkeys(filter(None, found))) if all(found) else []


def _resumed(command: Sequence[str], sweep: SweepPaths) -> tuple[str, ...]:
    """Return the command that resumes this sweep and keeps what is finished; empty without one."""
    arguments = tuple(argument for argument in command if not argument.startswith(_RERUN_SETTINGS))
    folder = sweep.root
    if any(argument.startswith("name=") for argument in arguments):
        return tuple(_named(argument, folder.name) for argument in arguments)
    if arguments[: len(_PROGRAM)] != _PROGRAM:
        return ()
    has_root = folder.parent.name == OUTPUT_ROOT.name or any(each.startswith("output_root=") for each in arguments)
    return (*arguments, f"name={folder.name}", *(() if has_root else (f"output_root={folder.parent}",)))


def _named(argument: str, name: str) -> str:
    """Return an argument of a command, the name of the sweep as it is now: it may have been renamed."""
    given, _, value = argument.partition("=")
    return f"name={name}" if given == "name" and value.strip("'\"") != name else argument


def _listed(commands: Sequence[Sequence[str]]) -> str:
    return " and ".join(in_backticks(shell_command(command)) for command in commands)


def _runs(count: int) -> str:
    return pluralize(count, "run")


def _more_certainty(results: Table, comparison: ComparisonTable, known: Mapping[str, Any]) -> list[str]:
    """Recommend settings of these runs that would make the answers more certain."""
    steps = []
    finished = [row for row in results.rows if is_complete(row["status"], row["reason"])]
    is_about_time = all(row.metric.effect == "speedup" for row in comparison.rows)
    if (met := sum(bool(row["contended"]) for row in finished)) and is_about_time:
        can_pair = "measure.name" in known and any(map(_could_pair, comparison.rows))
        turns = ", or with `measure=paired`, whose sides take turns" if can_pair else ""
        of = f"{met} of {len(finished)} runs" if len(finished) > 1 else "the run"
        steps.append(f"Measure again when the machine is quiet{turns}: other load was on it during {of}.")
    steps += _more_epochs(comparison, finished, known)
    cells = finished_cells(collapse_seeds(results))
    if results.seeds and len(cells) > 1 and max(row.values.get(SEEDS, 1) for row in cells) < CompareOptions.min_seeds:
        enough = in_backticks(enough_seeds(results.seeds))
        steps.append(f"Run several seeds, as in {enough}: fewer do not show which differences are chance.")
    return steps


def _more_epochs(comparison: ComparisonTable, finished: Sequence[Row], known: Mapping[str, Any]) -> list[str]:
    """Recommend enough epochs for each pair: the requested number plus what the worst pair lacks."""
    planned = known.get("epochs")
    columns = ("baseline_epochs", "candidate_epochs")
    counts = [row[name] for row in comparison.rows if TOO_FEW_EPOCHS in (row["reason"] or "") for name in columns]
    if not counts or not isinstance(planned, int) or all(row["reason"] == Reason.EARLY_STOPPED for row in finished):
        return []  # runs that stop early do so for any number
    wanted = max(MIN_EPOCHS, planned + CompareOptions.min_epochs - min(counts))
    return [f"Train for more epochs, as in `epochs={wanted}`: too few of them were measured to compare."]


def _could_pair(row: ComparisonRow) -> bool:
    """Whether runs of both sides have a throughput; a missing device gives none."""
    return not row.is_stand_in and None not in (row[name] for name in row.metric.value_columns)


def _other_device(results: Table, known: Mapping[str, Any]) -> list[str]:
    """Recommend a comparison with another device, where all runs used one."""
    devices = {row["device"] for row in results.rows}
    if "measure.name" not in known or len(devices) != 1:
        return []
    device = format_value(devices.pop())
    other = "cuda" if device in ("cpu", "auto") else device
    if other == "cuda" != device and not has_cuda():
        return []  # it could not be followed here
    names = {row["device_name"] for row in results.rows} - {None}
    where = f"used {names.pop()}" if len(names) == 1 else f"has `device={device}`"
    return [f"Whether a GPU is worth it is not known, as every run {where}: `device=cpu,{other}` compares both."]


def _to_repeat(results: Table, runs: Sequence[StoredRun], sweep: SweepPaths) -> list[str]:
    """Recommend the command that repeats the best cell, by the metric of the answer."""
    found = best_row(results, runs)
    if found is None:
        return []
    by = [] if found.outcome.name == _DEFAULT_METRIC else ["--metric", found.outcome.name]
    return [f"{in_backticks(command_on(sweep, 'best', *by))} prints the command that repeats the best cell."]


def _at_the_edge(results: Table, runs: Sequence[StoredRun]) -> list[str]:
    """Recommend values beyond the end of an axis where the best cell, and all equally good ones, lie."""
    found = best_row(results, runs)
    if found is None:
        return []
    best = found.row
    steps = []
    for name in found.cells.settings:
        values = [row[name] for row in found.cells.rows]
        is_extended = setting_name(name) not in _NOT_EXTENDED and name not in results.seeds
        if not is_extended or not all(map(_is_number, values)) or len(set(values)) < _MIN_VALUES:
            continue
        if best[name] in (min(values), max(values)) and all(row[name] == best[name] for row in found.equally_good):
            end, beyond = ("largest", "larger") if best[name] == max(values) else ("smallest", "smaller")
            if beyond == "smaller" and _is_lower_bound(best[name]):
                continue
            text = f"Try a {beyond} `{setting_name(name)}`: the best {found.outcome.name} is at the {end} tried"
            steps.append(f"{text}, {format_value(best[name])}.")
    return steps


def _is_lower_bound(value: float) -> bool:
    """Whether smaller values are not valid: rates and shares end at 0, sizes and counts at 1."""
    return value == 0 or (isinstance(value, int) and value == 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
