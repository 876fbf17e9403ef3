"""All sweeps below a folder, kept up to date in memory for many readers at once; nothing is written."""

import dataclasses
import datetime
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runmanager.app.follow.sweep_state import SweepReader
from runmanager.app.ui.live_pages import LivePage, address_of, compare_address, live_page
from runmanager.errors import UsageError
from runmanager.records.files.paths import EPOCHS, RECORD, SweepPaths, folder_entries
from runmanager.results.compare.comparison import with_numbered_reasons
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.findings.comparison_findings import comparison_answers
from runmanager.results.gate.sweep_pairs import TwoSweeps
from runmanager.results.load.several_sweeps import SWEEP, SizeMemory, find_sweeps
from runmanager.results.load.summary_cache import CachedRun, SummaryMemory, stamps_of
from runmanager.results.report.html_table import HtmlTable, build_html_table, render_template
from runmanager.results.table_model.columns import Row, Table
from runmanager.results.tables.shown_rows import without_shorter_runs
from runmanager.results.tables.sweep_listing import ListedSweep, list_sweep, listing, sweep_name
from runmanager.results.write_throttle import WriteThrottle
from runmanager.text import error_line

_OPENED = frozenset(
    (RECORD, EPOCHS, "reported.json", "turns.jsonl", "heartbeat", "config.yaml", "run.log", "error.txt")
)
"""The files of a run folder that readers open by their names."""

_FRESH_SECONDS = 0.25  # readers within this time share one look at the files


@dataclass(frozen=True)
class BoardSweep:
    """A sweep as last read: `version` rises with every change, and `read_at` is when it was seen.

    Of a sweep that cannot be read `listed` is None and `fault` says why, in one line.
    """

    name: str
    paths: SweepPaths
    version: int
    read_at: datetime.datetime
    listed: ListedSweep | None
    fault: str = ""


@dataclass(frozen=True)
class BoardState:
    """All sweeps by their names at one moment, and lines about folders that cannot be read."""

    version: int
    sweeps: Mapping[str, BoardSweep]
    notes: Sequence[str]


class SweepBoard:
    """The sweeps below `root`. Any number of threads may ask: the files are looked at on demand, by one at a time.

    Searching for sweeps and looking at runs at rest are limited to a small share of the time, so that ten thousand
    stored runs cost little while a few are being made. `clock` returns seconds.
    """

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self._clock = clock
        self._throttle = WriteThrottle(clock=clock)
        self._lock = threading.Lock()
        self._looked_at = -float("inf")
        self._sweeps: dict[str, _WatchedSweep] = {}
        self._notes: list[str] = []
        self._state = BoardState(0, {}, ())

    def current(self) -> BoardState:
        """Return the sweeps as they are now, or were a moment ago."""
        with self._lock:
            if self._clock() - self._looked_at >= _FRESH_SECONDS:
                self._look()
                self._looked_at = self._clock()
            return self._state

    def _look(self) -> None:
        if self._throttle.is_due:
            with self._throttle.writing():  # without reading what has changed, of which the first time is much
                self._search()
                changed = [each for each in self._sweeps.values() if each.has_changed(thorough=True)]
        else:
            changed = [each for each in self._sweeps.values() if each.has_changed(thorough=False)]
        version = self._state.version + 1
        for each in changed:
            each.read(version)
        sweeps = {name: each.state for name, each in self._sweeps.items() if each.state is not None}
        if changed or sweeps.keys() != self._state.sweeps.keys() or self._notes != list(self._state.notes):
            self._state = BoardState(version, sweeps, tuple(self._notes))

    def _search(self) -> None:
        self._notes = []
        found = {sweep_name(paths, self.root): paths for paths in find_sweeps(self.root, self._notes)}
        self._sweeps = {
            name: self._sweeps.get(name) or _WatchedSweep(name, paths, self.root) for name, paths in found.items()
        }


class _WatchedSweep:
    """One sweep, with all that is remembered of it between two readings."""

    def __init__(self, name: str, paths: SweepPaths, root: Path) -> None:
        self.state: BoardSweep | None = None
        self._name = name
        self._paths = paths
        self._root = root
        self._reader = SweepReader(paths)
        self._seen: Hashable = None
        self._num_disturbed = 0
        self._summaries = SummaryMemory()
        self._sizes: SizeMemory = {}

    def has_changed(self, *, thorough: bool) -> bool:
        settled, listed = self._summaries.settled, self.state.listed if self.state is not None else None
        runs = self._paths.runs
        if thorough and any(stamps_of(f"{runs}/{name}") != run.stamps for name, run in settled.items()):
            self._num_disturbed += 1  # a run at rest was begun again, or edited
        plan = None if listed is None else listed.sweep.plan
        try:
            seen: Hashable = self._reader.fingerprint(settled, plan.drivers if plan else ())
        except OSError as error:
            seen = error.errno
        has_changed = self.state is None or (seen, self._num_disturbed) != self._seen
        self._seen = seen, self._num_disturbed
        return has_changed

    def read(self, version: int) -> None:
        listed, fault = None, ""
        try:
            listed = self._listed()
        except Exception as error:  # of this sweep alone: the others are shown
            fault = str(error) if isinstance(error, _LeadsOutError) else error_line(error)
        read_at = datetime.datetime.now(datetime.UTC)
        self.state = BoardSweep(self._name, self._paths, version, read_at, listed, fault)

    def _listed(self) -> ListedSweep:
        link = _link_leading_out(self._paths, os.path.realpath(self._root), self._summaries.settled)
        if link is not None:
            raise _LeadsOutError(f"not shown: {link} is a link that leads out of {self._root}")
        listed = list_sweep(
            self._paths, self._root, now_ns=time.time_ns(), summaries=self._summaries, sizes=self._sizes
        )
        _ = listed.row  # made here, once, and not for each page
        return listed


class _LeadsOutError(Exception):
    """A sweep with a file from elsewhere."""


def _link_leading_out(paths: SweepPaths, root: str, settled: Mapping[str, CachedRun]) -> str | None:
    """Return the first link among the files that readers open which leads out of the folder `root`, a real path.

    The `settled` runs were looked at before.
    """
    links = (entry.path for entry in _opened(paths, settled) if entry.is_symlink())
    return next((link for link in links if not _is_below(os.path.realpath(link), root)), None)


def _opened(paths: SweepPaths, settled: Mapping[str, CachedRun]) -> Iterator["os.DirEntry[str]"]:
    names = [each.name for each in (paths.record, paths.labels, paths.messages, paths.runs)]
    yield from (entry for entry in folder_entries(str(paths.root)) if entry.name in names)
    for run in folder_entries(str(paths.runs)):
        if run.name not in settled:
            yield run
            yield from (entry for entry in folder_entries(run.path) if entry.name in _OPENED)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


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
