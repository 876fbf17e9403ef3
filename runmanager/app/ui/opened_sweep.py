"""A sweep whose page is open: its runs in memory, read again when they have changed, and the page as drawn."""

import dataclasses
import datetime
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from runmanager.app.ui.drawing import DrawnPage
from runmanager.app.ui.live_page import LivePage, address_of, compare_address, live_page
from runmanager.app.ui.sweep_board import BoardSweep
from runmanager.app.ui.sweep_pages import ALL_SWEEPS
from runmanager.records.run.measurement import OUTCOMES
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.messages import Message, read_messages
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.figures.figure import SweepFigure, inline_svg
from runmanager.results.load.loader import CachedReader
from runmanager.results.report.html_table import HtmlTable, build_html_table
from runmanager.results.report.report import render_report
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.table_model.columns import Row
from runmanager.results.tables.results_table import result_rows

__all__ = ["OpenedSweep", "Reading"]

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
