"""What the server shows at each address: all sweeps, a sweep's report, and two sweeps compared."""

import dataclasses
import datetime
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, NoReturn, TypeVar

from runmanager.app.ui.live_pages import Drawer, Drawing, DrawnPage, LivePage, address_of, compare_address, live_page
from runmanager.app.ui.sweep_board import (
    ALL_SWEEPS,
    BoardSweep,
    SweepBoard,
    comparison_page,
    listing_page,
    message_page,
)
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.measurement import OUTCOMES
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.lookup import Message, read_messages
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.figures.figure import SweepFigure, inline_svg
from runmanager.results.gate.sweep_pairs import TwoSweeps
from runmanager.results.load.loader import CachedReader
from runmanager.results.report.html_table import HtmlTable, build_html_table, render_template
from runmanager.results.report.report import render_report
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.table_model.columns import Row
from runmanager.results.tables.results_table import result_rows
from runmanager.text import pluralize, printable_line

_PLANNED = "planned"


@dataclass(frozen=True)
class Reading:
    """The runs and the plan of a sweep at a version of its files, and what its drivers had said."""

    version: int
    contents: SweepContents
    plan: SweepRecord | None
    said: Sequence[Message]


class OpenedSweep:
    """One sweep for all readers of its page."""

    def __init__(self, sweep: BoardSweep) -> None:
        self.page = DrawnPage(self._draw, has_figures=True)
        self._name = sweep.name
        self._reader = CachedReader(sweep.paths)
        self._lock = threading.Lock()
        self._reading: Reading | None = None
        self._running: tuple[int, HtmlTable | None] = (-1, None)
        self._snapshot: tuple[int, SweepSnapshot] | None = None
        self._figures: list[SweepFigure] = []

    def read(self, sweep: BoardSweep) -> Reading:
        """Return the runs at least as new as this state of the sweep; files are read once for all who ask."""
        with self._lock:
            if self._reading is None or self._reading.version < sweep.version:
                self._reading = Reading(sweep.version, *self._reader.read(), read_messages(sweep.paths))
            return self._reading

    def running(self, reading: Reading) -> HtmlTable | None:
        """Return the table of the runs that are being made; None without any."""
        with self._lock:
            if self._running[0] != reading.version:
                self._running = reading.version, _running_table(reading)
            return self._running[1]

    def _draw(self, with_figures: bool) -> tuple[int, LivePage]:
        """Draw the report, with the figures drawn last unless they are to be drawn too. Called by one thread."""
        reading = self._reading
        assert reading is not None, "a sweep is read before its page is drawn"
        if self._snapshot is None or self._snapshot[0] != reading.version:
            self._snapshot = reading.version, SweepSnapshot(reading.contents, reading.plan)
        snapshot = self._snapshot[1]
        if with_figures:
            self._figures = [_drawn(figure) for figure in snapshot.with_figures(None).figures]
        snapshot = snapshot.with_figures(self._figures)
        self._snapshot = None if with_figures else (reading.version, snapshot)
        report = render_report(snapshot, now=datetime.datetime.now(datetime.UTC))
        return reading.version, live_page(report, self._links())

    def _links(self) -> list[tuple[str, str]]:
        here = address_of(self._name)
        compared = ("Compare with another sweep", compare_address(self._name))
        return [ALL_SWEEPS, compared, *([("Reload", here)] if here else [])]


def _drawn(figure: SweepFigure) -> SweepFigure:
    return dataclasses.replace(figure, svg=inline_svg(figure), drawing=_never)


def _never() -> NoReturn:
    raise AssertionError("a figure that was drawn is shown again as it was")


def _running_table(reading: Reading) -> HtmlTable | None:
    """The runs that are being made, in order of start, with the columns of the results that are known by then."""
    runs = [run for run in reading.contents.runs if run.record.status is Status.RUNNING]
    if not runs:
        return None
    table = result_rows(SweepContents(reading.contents.paths, runs), None)
    planned = {run.name: run.record.epochs_planned for run in runs}
    order = {run.name: number for number, run in enumerate(runs)}
    rows = [Row({**row.values, _PLANNED: planned[row["run"]]}) for row in table.rows]
    shown = ("run", "epochs", _PLANNED, *OUTCOMES, *table.logged, "epoch_seconds", "samples_per_second")
    table = dataclasses.replace(
        table,
        columns=[*table.columns, _PLANNED],
        rows=sorted(rows, key=lambda row: order[row["run"]]),
        shown=shown,
        notes=(),
        legend="",
    )
    return build_html_table(table, title="Running now", file="running.csv")


_MAX_OPEN = 6  # sweeps and comparisons in memory; others are made again when they are asked for
_FIRST_SECONDS = 10.0  # how long a page is waited for that was never drawn
_NEXT_SECONDS = 0.3
_MAX_SAID = 5  # sentences of drivers

_K = TypeVar("_K")
_T = TypeVar("_T")


@dataclass(frozen=True)
class View:
    """A page as it is now, and its live part; `version` is that of the files and `drawn` names the page's drawing."""

    page: LivePage
    live: str
    version: str
    drawn: str

    def html(self) -> str:
        """Return the whole page."""
        return self.page.with_live(self.live)

    def news(self, seen: str, drawn: str) -> str | None:
        """Return what a reader lacks who has that version and that drawing: nothing, the live part, or all parts."""
        if drawn != self.drawn:
            return self.page.news(self.live)
        return None if seen == self.version else f'<!DOCTYPE html>\n<main data-part="live">\n{self.live}</main>\n'


class Pages:
    """The pages of a board's sweeps, for any number of threads."""

    def __init__(self, board: SweepBoard) -> None:
        self._board = board
        self._drawer = Drawer()
        self._opened = _Recent[str, OpenedSweep]()
        self._pairs = _Recent[tuple[str, str], DrawnPage]()
        self._listing: tuple[int, LivePage] | None = None

    def listing(self) -> View:
        """All sweeps, the newest first."""
        state = self._board.current()
        listing = self._listing
        if listing is None or listing[0] != state.version:
            listing = self._listing = state.version, listing_page(state, self._board.root)
        running = sum(map(bool, map(_num_running, state.sweeps.values())))
        status = f"{pluralize(len(state.sweeps), 'sweep')}, {running:,} with running runs."
        return _view(listing[1], status, state.version, str(state.version))

    def sweep(self, name: str) -> View | None:
        """A sweep's report, and the runs that are being made; None if there is no such sweep."""
        sweep = self._board.current().sweeps.get(name)
        if sweep is None:
            return None
        if sweep.listed is None:
            return _unread(sweep)
        opened = self._opened.get(name, partial(OpenedSweep, sweep))
        reading = opened.read(sweep)
        drawing = self._drawing(opened.page, reading.version, is_last=not _num_running(sweep))
        status = f"{sweep.listed.row[0]['states']}.{_idle(sweep)} {_age(drawing, sweep)}"
        drivers = _drivers_at_work(sweep)
        last = [each for each in reading.said if each.driver in drivers][-_MAX_SAID:]
        said = [f"{_clock(each.at)} {printable_line(each.line)}" for each in last]
        page, table = _page_of(sweep.name, drawing), opened.running(reading)
        return _view(page, status, reading.version, drawing.name, said=said, table=table)

    def comparison(self, baseline: str, candidate: str) -> View | None:
        """Two sweeps compared, or the choice of two where one is not named; None if there is no sweep of that name."""
        state = self._board.current()
        if any(name and name not in state.sweeps for name in (baseline, candidate)):
            return None
        if not baseline or not candidate or baseline == candidate:
            page = comparison_page(state, baseline, candidate, None)
            return _view(page, "Choose two different sweeps.", state.version, str(state.version))
        sides = state.sweeps[baseline], state.sweeps[candidate]
        for side in sides:
            if side.listed is None:
                return _unread(side)
        page_of_pair = self._pairs.get(
            (baseline, candidate), lambda: DrawnPage(partial(self._compare, sides), has_figures=False)
        )
        newest = max(sides, key=lambda side: side.version)
        drawing = self._drawing(page_of_pair, newest.version, is_last=not any(map(_num_running, sides)))
        return _view(_page_of("Comparison", drawing), _age(drawing, newest), newest.version, drawing.name)

    def end(self) -> None:
        """End the drawing of pages; to be called before Python ends."""
        self._drawer.end()

    def _drawing(self, page: DrawnPage, version: int, *, is_last: bool) -> Drawing:
        self._drawer.request(page, version, is_last=is_last)
        was_drawn = page.drawing.version >= 0
        return page.wait(version, _NEXT_SECONDS if was_drawn else _FIRST_SECONDS)

    def _compare(self, sides: tuple[BoardSweep, BoardSweep], _with_figures: bool) -> tuple[int, LivePage]:
        """Draw the comparison of two sweeps as they are now."""
        state = self._board.current()
        baseline, candidate = now = [state.sweeps.get(side.name, side) for side in sides]
        first, second = (self._opened.get(side.name, partial(OpenedSweep, side)).read(side) for side in now)
        names = baseline.name, candidate.name
        two = TwoSweeps(names, (first.contents, second.contents), (first.plan, second.plan))
        return max(baseline.version, candidate.version), comparison_page(state, *names, two)


class _Recent(Generic[_K, _T]):
    """The values that were asked for last."""

    def __init__(self) -> None:
        self._values: OrderedDict[_K, _T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _K, make: Callable[[], _T]) -> _T:
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            self._values.move_to_end(key)
            while len(self._values) > _MAX_OPEN:
                self._values.popitem(last=False)
            return self._values[key]


def _view(
    page: LivePage, status: str, version: int, drawn: str, *, said: Sequence[str] = (), table: HtmlTable | None = None
) -> View:
    """The page with what stands below its heading, which is all that is sent while nothing else has changed."""
    live = render_template("ui/live.html", status=status, version=str(version), drawn=drawn, said=said, table=table)
    return View(page, live, str(version), drawn)


def _page_of(title: str, drawing: Drawing) -> LivePage:
    """The page as drawn, or a line in its place while it never was."""
    return drawing.page or message_page(title, [drawing.fault or "This page is being made; reload it in a moment."])


def _unread(sweep: BoardSweep) -> View:
    return _view(message_page(sweep.name, [sweep.fault]), sweep.fault, sweep.version, f"unread {sweep.version}")


def _clock(time: datetime.datetime) -> str:
    return f"{time:%H:%M:%S}"


def _idle(sweep: BoardSweep) -> str:
    """Whether cells wait while nothing is at work on the sweep, in a sentence."""
    if sweep.listed is None or not sweep.listed.row[0]["pending"] or _num_running(sweep):
        return ""
    return "" if _drivers_at_work(sweep) else " No process is at work on it."


def _drivers_at_work(sweep: BoardSweep) -> Sequence[ProcessIdentity]:
    plan = None if sweep.listed is None else sweep.listed.sweep.plan
    return plan.drivers_at_work if plan else ()


def _num_running(sweep: BoardSweep) -> int:
    return 0 if sweep.listed is None else int(sweep.listed.row[0]["running"])


def _age(drawing: Drawing, sweep: BoardSweep) -> str:
    """When the sweep was read, and what on the page is older, in a sentence."""
    times = [f"As of {_clock(sweep.read_at)} UTC"]
    if drawing.drawn_at is not None and drawing.version < sweep.version:
        times.append(f"answers and tables of {_clock(drawing.drawn_at)}")
    if drawing.figures_at is not None and drawing.figures_version < drawing.version:
        times.append(f"figures of {_clock(drawing.figures_at)}")
    fault = f" The page below could not be made again: {drawing.fault}" if drawing.fault else ""
    return f"{', '.join(times)}.{fault}"
