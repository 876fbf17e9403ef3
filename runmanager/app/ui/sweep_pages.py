"""The pages that only the server has: the list of sweeps, two sweeps compared, and a message."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from runmanager.app.ui.live_page import LivePage, address_of, compare_address, live_page
from runmanager.app.ui.sweep_board import BoardState, BoardSweep
from runmanager.errors import UsageError
from runmanager.results.compare.comparison import with_numbered_reasons
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.findings.comparison_findings import comparison_answers
from runmanager.results.gate.sweep_pairs import TwoSweeps
from runmanager.results.load.several_sweeps import SWEEP
from runmanager.results.report.html_table import HtmlTable, build_html_table, render_template
from runmanager.results.table_model.columns import Row, Table
from runmanager.results.tables.seeds import without_shorter_runs
from runmanager.results.tables.sweep_listing import listing

__all__ = ["ALL_SWEEPS", "comparison_page", "listing_page", "message_page"]

ALL_SWEEPS = ("All sweeps", "/")
_STATES = "states"


def listing_page(state: BoardState, root: Path) -> LivePage:
    """The list of all sweeps, with the columns of `runmanager ls`, and the choice of two to compare."""
    page = render_template(
        "ui/sweeps.html",
        title=f"Sweeps in {root}",
        table=build_html_table(
            _table(state), title="Sweeps", file="sweeps.csv", link=lambda row: address_of(row[SWEEP])
        ),
        **_choice(state),
    )
    return live_page(page, [("Reload", "/")])


def _table(state: BoardState) -> Table:
    """The table of `ls`, with what could not be read in the row of its sweep."""
    sweeps = state.sweeps.values()
    read = [each.listed for each in sweeps if each.listed is not None]
    table = listing(read)
    rows = [_with_damage(row, state.sweeps[row[SWEEP]]) for row in table.rows]
    unread = [
        Row(dict.fromkeys(table.columns) | {SWEEP: each.name, _STATES: each.fault, "folder": str(each.paths.root)})
        for each in sweeps
        if each.listed is None
    ]
    return dataclasses.replace(table, rows=[*rows, *unread], notes=tuple(state.notes))


def _with_damage(row: Row, sweep: BoardSweep) -> Row:
    damaged = sweep.listed.sweep.summary.damaged if sweep.listed is not None else ()
    if not damaged:
        return row
    more = f" (and {len(damaged) - 1:,} more)" if len(damaged) > 1 else ""
    return Row({**row.values, _STATES: f"{row[_STATES]}; not read: {damaged[0].message}{more}"})


def comparison_page(state: BoardState, baseline: str, candidate: str, sweeps: TwoSweeps | None) -> LivePage:
    """Two sweeps compared, as by `runmanager compare BASELINE CANDIDATE`; with None only the choice of two."""
    answers: Sequence[str] = ()
    table: HtmlTable | None = None
    if sweeps is not None:
        try:
            answers, table = _compared(sweeps)
        except UsageError as error:  # no cells, for example
            answers = [str(error)]
    page = render_template(
        "ui/comparison.html",
        title=f"Comparison of {candidate} with {baseline}" if sweeps is not None else "Compare two sweeps",
        answers=answers,
        table=table,
        **_choice(state, baseline, candidate),
    )
    sides = [(name, address) for name in (baseline, candidate) if name and (address := address_of(name))]
    return live_page(page, [ALL_SWEEPS, *sides, ("Reload", compare_address(candidate, baseline))])


def _compared(sweeps: TwoSweeps) -> tuple[list[str], HtmlTable]:
    pairs = sweeps.compare(CompareOptions())
    answers = [line for lines in comparison_answers(pairs.rows, pairs) for line in lines]
    shown = with_numbered_reasons(without_shorter_runs(pairs, "the copied CSV has"))
    return answers, build_html_table(shown, title="Comparison", file="comparison.csv", whole=pairs)


def _choice(state: BoardState, baseline: str = "", candidate: str = "") -> dict[str, object]:
    """What the form for two sweeps shows: at first the two newest."""
    names = sorted(state.sweeps, key=lambda name: _created(state.sweeps[name]), reverse=True)
    candidate = candidate or next((name for name in names if name != baseline), "")
    baseline = baseline or next((name for name in names if name != candidate), "")
    return {"names": names, "baseline": baseline, "candidate": candidate}


def _created(sweep: BoardSweep) -> str:
    return (sweep.listed.row[0]["created"] or "") if sweep.listed is not None else ""


def message_page(title: str, lines: Sequence[str], *, asks: bool = False) -> LivePage:
    """A page with lines of text; with `asks` it has a field for the token."""
    links = [] if asks else [ALL_SWEEPS]
    return live_page(render_template("ui/message.html", title=title, lines=lines, asks=asks), links)
