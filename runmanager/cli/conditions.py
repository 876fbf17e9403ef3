"""The option `--fail-if`: its conditions answered from a comparison, and the duel that would answer one left open."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runmanager.app.request.command import MULTIRUN, after_separator, option_words
from runmanager.app.request.command_reader import read_words
from runmanager.errors import UsageError
from runmanager.records.host.gpus import is_device_missing
from runmanager.records.settings.grid import is_seed, seed_grid, seeds_among, with_seeds
from runmanager.text import format_value, in_backticks, shell_join

if TYPE_CHECKING:
    from runmanager.records.storage.reader import StoredRun, SweepContents
    from runmanager.results.compare.comparison_table import CompareOptions, ComparisonRow, ComparisonTable
    from runmanager.results.gate.fail_if import Condition, GateStatus

FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Exit with 1 where it holds, with 0 where it is ruled out, with 3 where that is not known: slower, "
        "slower:5%, worse:val_accuracy:0.01. May be repeated. A failed run gives 1.",
    ),
]


def options_of_table(
    conditions: "Sequence[Condition]", requested: "CompareOptions", runs: "Sequence[StoredRun]"
) -> "CompareOptions":
    """Return the options of a table by `requested.metric`.

    `--better` and `--at` are left out where that metric cannot have them, and one of a condition does.
    Raises `UsageError` where no metric can have them.
    """
    from runmanager.results.metrics.metric import LAST
    from runmanager.results.metrics.metric_lookup import find_metric

    if faults := requested.faults():
        raise UsageError("\n".join(faults))
    try:
        find_metric(requested.metric, runs, better=requested.better, at=requested.at)
    except UsageError:
        own = [_options_of(each.metric, requested, runs) for each in conditions if each.metric is not None]
        better = None if any(each.better is not None for each in own) else requested.better
        at = LAST if any(each.at != LAST for each in own) else requested.at
        find_metric(requested.metric, runs, better=better, at=at)
        return dataclasses.replace(requested, better=better, at=at)
    return requested


def _options_of(name: str, requested: "CompareOptions", runs: "Sequence[StoredRun]") -> "CompareOptions":
    """Return the options of a condition by another metric than the table's.

    `--better` counts where nothing else tells its direction, `--at` where it is one of epochs. Raises `UsageError`.
    """
    from runmanager.results.metrics.metric import LAST
    from runmanager.results.metrics.metric_lookup import find_metric

    better = None
    try:
        metric = find_metric(name, runs)
    except UsageError:
        if requested.better is None:
            raise
        better = requested.better
        metric = find_metric(name, runs, better=better)
    at = LAST if metric.of_epoch is None else requested.at
    return dataclasses.replace(requested, metric=name, margin=None, better=better, at=at)


@dataclass(frozen=True)
class Verdict:
    """What all conditions of a command came to, None without any, and the lines that say it."""

    status: "GateStatus | None" = None
    lines: Sequence[str] = ()

    @property
    def exit_status(self) -> int:
        return 0 if self.status is None else int(self.status)


def answer_conditions(
    conditions: "Sequence[Condition]",
    options: "CompareOptions",
    comparison_by: "Callable[[CompareOptions], ComparisonTable]",
    contents: "SweepContents",
    duel: "Callable[[ComparisonRow], str]",
    *,
    requested: "CompareOptions | None" = None,
) -> Verdict:
    """Answer each condition from the comparison by its own metric; `duel` says what could answer an open one.

    A condition on speed is answered by the metric of `options`, where that is a time or a rate. `requested` are the
    options as given, of which `options_of_table` made `options`.
    """
    from runmanager.results.gate.fail_if import failed_runs, gate_status, judge_condition, unknown_runs
    from runmanager.results.metrics.metric import THROUGHPUT
    from runmanager.results.metrics.metric_lookup import find_metric

    if not conditions:
        return Verdict()
    answers, runs = [], contents.runs
    asked = find_metric(options.metric, runs, better=options.better, at=options.at)
    for condition in conditions:
        name = condition.metric or (asked.name if asked.effect == "speedup" else THROUGHPUT.name)
        of_metric = options if name == asked.name else _options_of(name, requested or options, runs)
        metric = find_metric(name, runs, better=of_metric.better, at=of_metric.at)
        answers.append(judge_condition(condition, comparison_by(of_metric), metric))
    failed, unknown = failed_runs(runs), unknown_runs(contents)
    lines = [*failed, *unknown, *(answer.line for answer in answers)]
    still_open = [row for answer in answers for row in answer.open_rows]
    if still_open:
        lines.append(duel(still_open[0]))
    return Verdict(gate_status(answers, failed, unknown), lines)


_NOT_OF_A_DUEL = ("name", "output_root", "resume", "rerun_changed", "measure")
_OF_SEEDS = "No `runmanager duel` could say: its sides differ in more than the seed. More runs narrow the interval."
_MAX_SETTING_CHARACTERS = 200
_NO_SIDES = (
    "No `runmanager duel` could say: its two sides are settings of the built-in job, or commits or environments. More "
    "seeds narrow the interval."
)
_NO_MODULE = "No `runmanager duel` could say: it takes a script by its file, not with -m."


def could_say(what: str) -> str:
    """Return the line that names what could answer an open condition."""
    return f"This could say: {what}"


def duel_of_sides(row: "ComparisonRow", runs: "Sequence[StoredRun]", *, seed_names: Sequence[str] = ()) -> str:
    """Name the duel of the two sides of a row along an axis; say so where the program of these `runs` has none.

    Its settings are all in which the runs of the row differ from today's defaults, however they were given. A stored
    `_target_`, which such a command would call, is not repeated. `seed_names` are further seeds (see `is_seed`).
    """
    from runmanager.app.reproduce_command import job_overrides

    compared = row["axis"].split("+")
    if all(is_seed(name, seed_names) for name in compared):
        return _OF_SEEDS
    of_row = next((run.record for run in runs if _is_in(run, row)), None)
    words = None if of_row is None else job_overrides(of_row, shown=set(row.values) - set(row.absent_settings))
    if words is None:
        return _NO_SIDES
    left_out = {*_NOT_OF_A_DUEL, *compared, *(name.removesuffix(".name") for name in compared)}
    settings = [
        word for word in words if left_out.isdisjoint(_names(word)) and not is_seed(_names(word)[0], seed_names)
    ]
    sides = ["runmanager", "duel", *(_side(row["axis"], row[side]) for side in ("baseline", "candidate"))]
    missing = [word for word in (*sides, *settings) if word.startswith("device=") and is_device_missing(word[7:])]
    where = f" on a machine with {missing[0][7:]}" if missing else ""
    if any("_target_=" in word for word in settings):
        rest = "with the other settings of the sweep, whose `_target_` is not repeated here."
        return could_say(f"{in_backticks(shell_join(sides))}{where} {rest}")
    return could_say(f"{in_backticks(shell_join([*sides, *settings]))}{where}")


def duel_of_sweeps(
    row: "ComparisonRow",
    runs: "Sequence[Sequence[StoredRun]]",
    command: Sequence[str],
    *,
    seed_names: Sequence[str] = (),
) -> str:
    """Name the duel of the commits, or of the environments, in which two sweeps were made.

    `command` is the one that made the candidate; its settings are the duel's. A cell of another program than the
    built-in job has a command of its own. `seed_names` are further seeds (see `is_seed`).
    """
    facts = [[run.record.environment for run in of_sweep] for of_sweep in runs]
    commits = [next((each.commit for each in of_sweep if each.commit), None) for of_sweep in facts]
    libraries = [next((dict(each.libraries) for each in of_sweep if each.libraries), {}) for of_sweep in facts]
    pythons = [next((each.python for each in of_sweep if each.python), "") for of_sweep in facts]
    sides: list[str] = []
    if all(commits):
        sides += [f"--baseline-rev={(commits[0] or '')[:10]}", f"--candidate-rev={(commits[1] or '')[:10]}"]
    if libraries[0] != libraries[1] or pythons[0] != pythons[1] or not sides:
        sides += ["--baseline-python=BASELINE/bin/python", "--candidate-python=CANDIDATE/bin/python"]
    in_row = [run for run in runs[1] if _is_in(run, row)]
    of_cell = next((run.record.cell_command for run in in_row if run.record.cell_command), None)
    if of_cell:
        of_runs = [run.record.settings for run in in_row]
        seeds = [{name: each[name] for name in seeds_among(each, seed_names)} for each in of_runs]
        words = _words_of_script(of_cell, seed_grid(seeds))
        if words is None:
            return _NO_MODULE
    else:
        own = read_words(command).settings
        given = dict(word.split("=", 1) for word in own if "=" in word and not word.startswith(("-", "hydra.")))
        words = [*(word for word in command[1:] if word.endswith(".py") and "=" not in word), *_settings(row, given)]
    return could_say(in_backticks(shell_join(["runmanager", "duel", *sides, *words])))


def _words_of_script(command: Sequence[str], seeds: Mapping[str, Sequence[Any]]) -> list[str] | None:
    """Return a script with its options, settings and arguments from a cell's command, for these seeds.

    None for a module, which a duel does not take.
    """
    parsed = read_words(command[2:] if command[0] == "runmanager" else command[1:])
    if parsed.program is None or parsed.is_module:
        return None
    own = [word for word in parsed.settings if word not in MULTIRUN and not word.startswith("hydra/sweeper=")]
    options = option_words(parsed.request, parsed.given)
    return [*options, parsed.program, *with_seeds(own, seeds), *after_separator(parsed.fixed)]


def _is_in(run: "StoredRun", row: "ComparisonRow") -> bool:
    """Whether the run's settings are those of the row."""
    settings = run.record.settings
    names = set(row.values) & set(settings) - set(row.metric.columns)
    return all(row[name] is None or row[name] == settings[name] for name in names)


def _names(word: str) -> tuple[str, str]:
    """The setting that a word gives, and its first part."""
    name = word.partition("=")[0].lstrip("+")
    return name, name.partition(".")[0]


def _side(axis: str, value: Any) -> str:
    if "+" in axis:
        return " ".join(str(value).split(", "))
    return f"{axis.removesuffix('.name')}={format_value(value)}"


def _settings(row: "ComparisonRow", given: Mapping[str, str]) -> list[str]:
    """The settings that both sides of a duel have: those of the command, with the row's values of an axis."""
    compared = row["axis"].split("+")
    values = {name: text for name, text in given.items() if name not in _NOT_OF_A_DUEL}
    for name, value in row.values.items():
        if name in row.metric.columns or name in compared or value is None or name in row.absent_settings:
            continue
        if not given or name in values:
            values[name] = format_value(value)
    return [f"{name}={text}" for name, text in values.items() if len(text) <= _MAX_SETTING_CHARACTERS]
