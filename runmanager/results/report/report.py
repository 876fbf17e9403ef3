"""The page for people: the answer first, then what it rests on."""

import dataclasses
import datetime
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.record import Environment
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.records.sweep.record import SweepRecord
from runmanager.results.compare.comparison import with_numbered_reasons
from runmanager.results.figures.figure import inline_svg
from runmanager.results.findings.bottleneck_notes import bottleneck_notes
from runmanager.results.findings.crossover import crossover_lines
from runmanager.results.findings.headlines import headlines
from runmanager.results.findings.recommendations import next_steps
from runmanager.results.findings.roofline import roofline_rows
from runmanager.results.findings.sample_size import detectable_by_more_runs
from runmanager.results.model.columns import STAND_IN, Table
from runmanager.results.model.environment_text import FACTS
from runmanager.results.model.formatting import human
from runmanager.results.report.html import render_template
from runmanager.results.report.html_table import build_html_table
from runmanager.results.snapshot import SweepSnapshot
from runmanager.results.tables.seeds import collapse_seeds, seed_groups
from runmanager.text import in_backticks, pluralize, shell_command

__all__ = ["render_report"]


def render_report(snapshot: SweepSnapshot, *, now: datetime.datetime) -> str:
    """The whole of report.html, with styles and figures inline: it loads nothing.

    `now` is printed only if runs are pending or running: the page of a sweep that has ended is the same whenever it is
    made.
    """
    sweep, plan, results, comparison = snapshot.sweep, snapshot.plan, snapshot.results, snapshot.comparison
    first_sentence, *more = headlines(
        sweep, plan, results=results, comparison=comparison, crossovers=snapshot.crossovers
    )
    failures = _failures(sweep)
    work = roofline_rows(sweep, plan)
    is_attended = _is_attended(plan)
    steps = next_steps(
        results,
        comparison,
        sweep=str(sweep.paths.root),
        commands=plan.given_by() if plan else {},
        settings=sweep.runs[0].record.settings if sweep.runs else None,
        causes=bottleneck_notes(snapshot.matches),
        to_find=detectable_by_more_runs(snapshot.matches, plan),
        is_attended=is_attended,
    )
    shown = {
        "next": ("What to do next", steps),
        "comparison": ("Comparison", comparison),
        "figures": ("Figures", snapshot.figures),
        "results": ("Results", results),
        "failures": ("Runs without a result", failures.rows),
        "work": ("What these runs achieve", work.rows),
        "method": ("How it was measured", True),
    }
    groups = {runs[0]["run"]: runs for runs in seed_groups(results)}
    return render_template(
        "report.html",
        title=sweep.paths.name,
        first_sentence=first_sentence,
        sentences=more,
        unfinished=_unfinished(results, str(sweep.paths.root), now, is_attended=is_attended),
        failed=_failed(failures),
        steps=steps,
        contents=[(place, heading) for place, (heading, content) in shown.items() if content],
        comparison=build_html_table(
            with_numbered_reasons(
                dataclasses.replace(comparison, notes=(*comparison.notes, *snapshot.crossover_limits))
            ),
            title="Comparison",
            # The file beside the page has no row that nobody asked for.
            file="comparison_shown.csv" if any(row[STAND_IN] for row in comparison.rows) else "comparison.csv",
            whole=comparison,
        ),
        crossings=[line for line in crossover_lines(snapshot.crossovers) if line not in more],
        work=build_html_table(work, title="What these runs achieve", file="work.csv") if work.rows else None,
        figures=[(figure, inline_svg(figure)) for figure in snapshot.figures],
        results=build_html_table(
            collapse_seeds(results, each="What is copied has a line for each run."),
            title="Results",
            file="results.csv",
            whole=results,
            of_row=groups,
        ),
        failures=build_html_table(failures, title="Runs without a result", file="failures.csv"),
        run_notes=_run_notes(sweep.runs),
        facts=_facts(sweep.runs, plan),
    )


def _is_attended(plan: SweepRecord | None) -> bool:
    """Whether somebody else may be at the sweep: a driver that writes its report has done what it would."""
    others = [each for each in plan.drivers if each != ProcessIdentity.current()] if plan else []
    return any(each.is_alive() is not False for each in others)


def _unfinished(results: Table, sweep: str, now: datetime.datetime, *, is_attended: bool) -> str:
    """Of a sweep that has not ended: when the page was made, what it lacks, and how it is made anew; else nothing."""
    counts = Counter(row["status"] for row in results.rows)
    running, pending = counts[Status.RUNNING], counts[Status.PENDING]
    if not running + pending:
        return ""
    lacks = [pluralize(running, "was still running", "were still running")] if running else []
    lacks += [f"{pending:,} had not begun"] if pending else []
    made = f"Made at {now.astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC, before the end of the sweep"
    said = f"{made}: of {pluralize(len(results.rows), 'run')} {' and '.join(lacks)}"
    if running or is_attended:
        return f"{said}. {in_backticks(shlex.join(('runmanager', 'report', sweep)))} makes the page anew."
    return f"{said}, and nobody was at work."


def _failures(sweep: SweepContents) -> Table:
    """The runs that ended without a result, with what they said last."""
    columns = ["run", "status", "reason", "what happened"]
    ended = [run for run in sweep.runs if run.record.status.is_ended and run.record.status != Status.FINISHED]
    rows = []
    for run in ended:
        reason = run.record.reason.value if run.record.reason else None
        rows.append(
            dict(zip(columns, (run.record.name, run.record.status.value, reason, run.record.message), strict=True))
        )
    return Table(columns, rows, shown=tuple(columns))


def _failed(failures: Table) -> str:
    """How many runs have no result, and of which reasons."""
    count = len(failures.rows)
    reasons = Counter(row["reason"] or row["status"] for row in failures.rows)
    said = ", ".join(f"{number:,} {reason}" for reason, number in reasons.most_common())
    return f"{pluralize(count, 'run has', 'runs have')} no result: {said}."


def _run_notes(runs: Sequence[StoredRun]) -> list[str]:
    """What runs have to say of themselves: each note once, with how many runs say it."""
    of_note: dict[str, list[str]] = {}
    for run in runs:
        for note in (*run.record.deviations, *run.record.notes):
            of_note.setdefault(note, []).append(run.record.name)
    return [
        f"{names[0]}{f' and {len(names) - 1:,} more' if len(names) > 1 else ''}: {note}"
        for note, names in of_note.items()
    ]


def _facts(runs: Sequence[StoredRun], plan: SweepRecord | None) -> list[tuple[str, str]]:
    """Where and with what the runs were made: each fact with all its values, those unknown throughout left out."""
    environments = [run.record.environment for run in runs]
    facts = [(words, _values([getattr(environment, name) for environment in environments])) for name, words in FACTS]
    facts.append(("Libraries", _values([_libraries(environment) for environment in environments])))
    if plan is not None:
        facts.append(
            ("Command" if len(plan.commands) == 1 else "Commands", "; ".join(map(shell_command, plan.commands)))
        )
        facts.append(("Created", plan.created))
    return [(words, values) for words, values in facts if values]


def _libraries(environment: Environment) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(environment.libraries.items()))


def _values(values: Sequence[Any]) -> str:
    """The distinct values; numbers that differ from run to run as their range."""
    known = list(dict.fromkeys(value for value in values if value not in (None, "")))
    if len(known) > 1 and all(isinstance(value, float) for value in known):
        return f"{min(known):.4g} to {max(known):.4g}"
    if len(known) == 1 and isinstance(known[0], float):
        return f"{known[0]:.4g}"
    return "; ".join(human(value) for value in known)
