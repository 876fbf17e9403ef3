"""The HTML report of a sweep: the answer first, then the tables and figures that support it."""

import dataclasses
import datetime
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import Environment
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.records.sweep.lookup import typed_name
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.comparison import with_numbered_reasons
from runmanager.results.compare.comparison_table import ComparisonTable
from runmanager.results.figures.figure import SweepFigure, inline_svg
from runmanager.results.findings.bottleneck import bottleneck_notes
from runmanager.results.findings.crossover import crossover_lines
from runmanager.results.findings.recommendations import next_steps
from runmanager.results.findings.roofline import roofline_rows
from runmanager.results.findings.sample_size import detectable_by_more_runs
from runmanager.results.report.html_table import HtmlTable, build_html_table, render_template
from runmanager.results.report.markdown_summary import headlines
from runmanager.results.report.page_data import encode_page_data, page_data, pair_runs, run_places
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.table_model.columns import Row, Table
from runmanager.results.table_model.formatting import FACTS, human, in_words
from runmanager.results.tables.results_table import has_times
from runmanager.results.tables.shown_rows import collapse_seeds, pairs_with_answer, seed_groups, without_shorter_runs
from runmanager.results.tables.sorting import best_first
from runmanager.text import in_backticks, pluralize, shell_command, shell_join

_IN_CSV = "the CSV files of the sweep have"
_BY_COMPARE = "`compare --all` has"  # also of a stand-in axis, which comparison.csv lacks


_FIRST_SENTENCE = re.compile(r"(?<=[.)]) (?=[A-Z])")
_BY_SPEED = ("speedups", "rounds", "crossover", "throughput", "phases", "curves", "parallel", "scatter")
_BY_QUALITY = ("curves", "parallel", "scatter", "speedups", "rounds", "crossover", "throughput", "phases")
_INTERACTIVE = {
    "curves": (
        "On the screen, any recorded metric can be drawn, over epochs, steps, time or samples. A group's line is the "
        "mean over its finished runs, its band their range, over the points that all of them have; where their points "
        "differ, as over time, straight lines between points are averaged. Curves rank by their last value. Time "
        "includes everything since the run's start, samples count those of training."
    ),
    "parallel": "On the screen, lines through one value are not spread, and the means are those of the selected runs.",
    "scatter": (
        "Each dot is a run. Times and throughput are medians over its measured epochs, as in the results; a metric is "
        "the one in the results."
    ),
    "speedups": "On the screen, the pairs are those with a selected run.",
    "throughput": "On the screen, the cells are those with a selected run.",
}
_DRAWN_ONLY_BY_SCRIPT = {
    "curves": ("Learning curves", "Learning curves of the metrics that the runs recorded."),
    "scatter": ("The runs by two columns", "Each dot is a run, by any two columns of the results."),
}


@dataclass(frozen=True)
class FigureView:
    """A figure on the page. `svg` is empty for one that only the page's script draws."""

    name: str
    title: str
    caption: str
    description: str
    method: str
    svg: str


def figure_views(figures: Sequence[SweepFigure], data: Mapping[str, Any], *, is_of_speed: bool) -> list[FigureView]:
    """Return the sweep's figures in the order of the reader's question, with those that only a script draws.

    `is_of_speed`: devices are compared, so speedups come first; else quality is asked, and curves do. `data` is the
    page's data.
    """
    views = [_drawn(figure) for figure in figures]
    names = {view.name for view in views}
    if data["curves"] and "curves" not in names:
        views.append(_undrawn("curves"))
    if len(data["runs"]) > 1:
        views.append(_undrawn("scatter"))
    order = _BY_SPEED if is_of_speed else _BY_QUALITY
    return sorted(views, key=lambda view: _rank(view.name, order))


def _rank(name: str, order: Sequence[str]) -> int:
    """The place of a figure's kind: that of `rounds` for `rounds-2`, of `throughput` for `throughput-by-lr`."""
    return next((place for place, kind in enumerate(order) if re.match(rf"{kind}\b", name)), len(order))


def _drawn(figure: SweepFigure) -> FigureView:
    caption, *details = _FIRST_SENTENCE.split(figure.caption, maxsplit=1)
    method = " ".join([*details, *filter(None, [_INTERACTIVE.get(figure.name)])])
    return FigureView(figure.name, figure.title, caption, figure.description, method, inline_svg(figure))


def _undrawn(name: str) -> FigureView:
    title, caption = _DRAWN_ONLY_BY_SCRIPT[name]
    return FigureView(name, title, caption, "", _INTERACTIVE[name], "")


def render_report(snapshot: SweepSnapshot, *, now: datetime.datetime) -> str:
    """Render report.html, with styles, scripts, figures and their data inline: the page loads nothing.

    Where devices are compared, the comparison and its figures come first, else the learning curves and the results.

    `now` is printed only if runs are pending or running, so that the report of a completed sweep is reproducible.
    """
    sweep, plan, results, comparison = snapshot.sweep, snapshot.plan, snapshot.results, snapshot.comparison
    answer, *sentences = headlines(sweep, plan, results=results, comparison=comparison, crossovers=snapshot.crossovers)
    failures = _failures(sweep)
    work = roofline_rows(sweep, plan)
    is_attended = _is_attended(plan)
    data, places = page_data(snapshot), run_places(results)
    is_of_speed = any(row.effect is not None and not row.is_stand_in for row in comparison.rows)
    figures = figure_views(snapshot.figures, data, is_of_speed=is_of_speed)
    steps = next_steps(
        results,
        comparison,
        sweep=sweep.paths,
        commands=plan.commands_by_run() if plan else {},
        settings=sweep.runs[0].record.settings if sweep.runs else None,
        causes=bottleneck_notes(snapshot.matches),
        to_find=detectable_by_more_runs(snapshot.matches, plan),
        is_attended=is_attended,
        runs=sweep.runs,
    )
    crossings = [in_words(line) for line in crossover_lines(snapshot.crossovers) if line not in sentences]
    pairs = _comparison_table(comparison, snapshot.crossover_limits, pair_runs(snapshot, places))
    compared = ("comparison", ("Comparison", pairs.rows or crossings))
    shown = ("results", ("Results", results))
    sections = {
        "next": ("What to do next", steps),
        **dict([compared] if is_of_speed else []),
        "figures": ("Figures", figures),
        **dict([shown] if is_of_speed else [shown, compared]),
        "failures": ("Runs without a result", failures.rows),
        "work": ("What these runs achieve", work.rows),
        "method": ("How it was measured", True),
    }
    return render_template(
        "report.html",
        title=sweep.paths.name,
        answer=in_words(answer),
        sentences=list(map(in_words, sentences)),
        unfinished=_unfinished(results, typed_name(sweep.paths), now, is_attended=is_attended),
        failure_count=_failure_count(failures),
        steps=list(map(in_words, steps)),
        contents=[(anchor, heading) for anchor, (heading, content) in sections.items() if content],
        is_of_speed=is_of_speed,
        is_timed=has_times(results.rows),
        data=encode_page_data(data),
        comparison=pairs,
        crossings=crossings,
        work=build_html_table(work, title="What these runs achieve", file="work.csv") if work.rows else None,
        figures=figures,
        results=_results_table(results, places),
        failures=_failures_table(failures, places),
        run_notes=_run_notes(sweep.runs),
        facts=_facts(sweep.runs, plan),
    )


def _comparison_table(
    comparison: ComparisonTable, crossover_limits: Sequence[str], runs: Sequence[Sequence[int]]
) -> HtmlTable:
    """The pairs that have an answer; what the others lack is in the sentences above."""
    answered = pairs_with_answer(comparison)
    notes = [*comparison.notes, *crossover_limits]
    if unmeasured := sum(row.effect is None for row in comparison.rows):
        which = pluralize(unmeasured, "pair is", "pairs are")
        notes.append(f"{which} not measured and left out; {_BY_COMPARE} their reasons.")
    noted = dataclasses.replace(answered, notes=tuple(notes))
    kept = {id(row) for row in answered.rows if not row.is_continued}
    shown = [id(row) in kept for row in comparison.rows]
    return build_html_table(
        with_numbered_reasons(without_shorter_runs(noted, _BY_COMPARE)),
        title="Comparison",
        # comparison.csv in the sweep's folder lacks the rows of a stand-in axis, so the download has another name.
        file="comparison_shown.csv" if any(row.is_stand_in for row in comparison.rows) else "comparison.csv",
        whole=comparison,
        runs=list(itertools.compress(runs, shown)),
    )


def _results_table(results: Table, places: Mapping[str, int]) -> HtmlTable:
    shown = without_shorter_runs(results, _IN_CSV)
    of_row = {runs[0]["run"]: runs for runs in seed_groups(shown)}
    table = best_first(collapse_seeds(shown, each="The copied CSV has a line for each run."))
    return build_html_table(
        table,
        title="Results",
        file="results.csv",
        whole=results,
        of_row=of_row,
        runs=[[places[run["run"]] for run in of_row[row["run"]]] for row in table.rows],
    )


def _failures_table(failures: Table, places: Mapping[str, int]) -> HtmlTable:
    runs = [[places[row["run"]]] if row["run"] in places else [] for row in failures.rows]
    table = build_html_table(failures, title="Runs without a result", file="failures.csv", runs=runs)
    return dataclasses.replace(table, spare=())  # its reasons are what it is for


def _is_attended(plan: SweepRecord | None) -> bool:
    """Whether another driver may be working on the sweep; a driver writes its own report when it is done."""
    others = [driver for driver in plan.drivers if driver != ProcessIdentity.current()] if plan else []
    return any(driver.is_alive() is not False for driver in others)


def _unfinished(results: Table, sweep: str, now: datetime.datetime, *, is_attended: bool) -> str:
    """When the page was made, which runs it lacks and how to rebuild it; empty for a completed sweep."""
    counts = Counter(row["status"] for row in results.rows)
    running, pending = counts[Status.RUNNING], counts[Status.PENDING]
    if not running + pending:
        return ""
    missing = [pluralize(running, "was still running", "were still running")] if running else []
    missing += [f"{pending:,} had not started"] if pending else []
    made = f"Made at {now.astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC, before the end of the sweep"
    line = f"{made}: of {pluralize(len(results.rows), 'run')} {' and '.join(missing)}"
    if running or is_attended:
        return f"{line}. {in_backticks(shell_join(('runmanager', 'report', sweep)))} rebuilds this page."
    return f"{line}, and no process was working on the sweep."


def _failures(sweep: SweepContents) -> Table:
    """The runs that ended without a result, with their messages."""
    columns = ["run", "status", "reason", "what happened"]
    ended = [run for run in sweep.runs if run.record.status.is_ended and run.record.status != Status.FINISHED]
    rows = []
    for run in ended:
        reason = run.record.reason.value if run.record.reason else None
        rows.append(
            Row(dict(zip(columns, (run.record.name, run.record.status.value, reason, run.record.message), strict=True)))
        )
    return Table(columns, rows, shown=tuple(columns))


def _failure_count(failures: Table) -> str:
    """A sentence with the number of runs without a result, by how they ended."""
    ends = Counter(f"{row['status']}{f' ({reason})' if (reason := row['reason']) else ''}" for row in failures.rows)
    counts = ", ".join(f"{count:,} {end}" for end, count in ends.most_common())
    return in_words(f"{pluralize(len(failures.rows), 'run has', 'runs have')} no result: {counts}.")


def _run_notes(runs: Sequence[StoredRun]) -> list[str]:
    """The sources of metrics, deviations and notes of the runs, each once, with the first run and how many more."""
    names_by_note: dict[str, list[str]] = {}
    for run in runs:
        for note in (*_sources(run), *run.record.deviations, *run.record.notes):
            names_by_note.setdefault(note, []).append(run.record.name)
    return [
        f"{names[0]}{f' and {len(names) - 1:,} more' if len(names) > 1 else ''}: {note}"
        for note, names in names_by_note.items()
    ]


def _sources(run: StoredRun) -> list[str]:
    """Where the metrics come from that the program did not log itself."""
    names: dict[str, list[str]] = {}
    for name, origin in (run.record.origins or {}).items():
        names.setdefault(origin, []).append(name)
    found = "; ".join(f"{', '.join(some)} ({origin})" for origin, some in names.items())
    return [f"metrics that it did not log, with their sources: {found}"] if found else []


def _facts(runs: Sequence[StoredRun], plan: SweepRecord | None) -> list[tuple[str, str]]:
    """The environment of the runs: each known fact by label, with all its values."""
    environments = [run.record.environment for run in runs]
    facts = [(label, _values([getattr(environment, name) for environment in environments])) for name, label in FACTS]
    facts.append(("Libraries", _values([_libraries(environment) for environment in environments])))
    if plan is not None:
        facts.append(
            ("Command" if len(plan.commands) == 1 else "Commands", "; ".join(map(shell_command, plan.commands)))
        )
        facts.append(("Created", plan.created))
    return [(label, values) for label, values in facts if values]


def _libraries(environment: Environment) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(environment.libraries.items()))


def _values(values: Sequence[Any]) -> str:
    """The distinct values; several floats are given as a range."""
    known = list(dict.fromkeys(value for value in values if value not in (None, "")))
    if len(known) > 1 and all(isinstance(value, float) for value in known):
        return f"{min(known):.4g} to {max(known):.4g}"
    if len(known) == 1 and isinstance(known[0], float):
        return f"{known[0]:.4g}"
    return "; ".join(human(value) for value in known)
