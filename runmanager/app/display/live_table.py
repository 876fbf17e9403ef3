"""Rows of the live table: one run each, in as many columns as the terminal has room for."""

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from runmanager.records.run.run_record import EpochRecord
from runmanager.results.table_model.columns import MISSING
from runmanager.text import printable_line

_BAR_WIDTH = 10  # that of the longest state
_MIN_LABEL_WIDTH = 12
_ELLIPSIS = "…"
_STYLES = {"finished": "green", "skipped": "yellow", "running": "cyan", "pending": "dim"}
_SYMBOLS = {"finished": "✓", "skipped": "-", "running": ">"}


@dataclass(frozen=True)
class LiveRow:
    """A run as a row: `seconds` is the time taken so far, `seconds_left` the estimate of the rest.

    `epoch` is the last one, `rate` its samples per second, or their median. `metrics` are the last values that it
    logged or printed, None for one that is not finite. `counted` is what the number of its last record counts, `epoch`
    or `step`; `planned` is 0 where it is not known how many there will be. `share` is how much of the epoch under way
    is done. `is_measuring`: its epochs are done, and its speed is measured.
    """

    label: str
    status: str
    reason: str = ""
    epoch: EpochRecord | None = None
    rate: float | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    counted: str = "epoch"
    planned: int = 0
    seconds: float | None = None
    seconds_left: float | None = None
    share: float = 0.0
    is_measuring: bool = False


@dataclass(frozen=True)
class _Column:
    heading: str
    width: int
    is_logged: bool = False


# By priority: in a narrow terminal the last columns are dropped first.
_COLUMNS = (
    _Column("epoch", 7),
    _Column("left", 6),
    _Column("val_acc", 7),
    _Column("loss", 8),
    _Column("samples/s", 10),
    _Column("took", 6),
    _Column("acc", 6),
    _Column("val_loss", 8),
)
_TIME = _Column("time", 11)  # where there is no room for two columns: `31s left` while it runs, then what it took
RESULTS = frozenset(("loss", "acc", "val_loss", "val_acc", "samples/s"))
"""The headings of results that a program need not have."""

# "" is a logged metric.
_ORDER = ("epoch", "loss", "acc", "val_loss", "val_acc", "", "samples/s", "took", "left", "time")
_NUM_FIXED = 2  # columns before a requested metric
_NUM_OUTCOMES = 4  # columns before the others
_NUM_LOGGED_BEFORE_SPEED = 2
_LOGGED_WIDTHS = 8, 14


@dataclass(frozen=True)
class Layout:
    """Columns and label width for a terminal of `width` characters.

    All labels have names of settings, or none has: then `names` are those of the widest.
    """

    label: int
    columns: tuple[_Column, ...]
    width: int
    counted: str = "epoch"
    names: str = ""

    @classmethod
    def fitting(
        cls,
        width: int,
        *,
        labels: Collection[str],
        logged: Sequence[str] = (),
        requested: str | None = None,
        unused: Container[str] = (),
        counted: str = "epoch",
    ) -> "Layout":
        """Return the layout for a terminal of `width` characters and the labels of the runs.

        `logged` metrics have columns where there is room, the `requested` one first. Columns of the other metrics that
        are `unused` are left out. `counted` is the heading of the number of epochs, or steps, done.
        """
        most = max(_MIN_LABEL_WIDTH, width * 2 // 5)
        widest = max(labels, key=len, default="")
        names = _names_of(widest) if len(widest) > most else ""
        shown = map(_values_of, labels) if names else labels
        label = max(_MIN_LABEL_WIDTH, min(max(map(len, shown), default=0), most))
        room = width - len("> ") - label - 1 - _BAR_WIDTH - 1  # some terminals wrap after the last character
        columns = _by_priority(logged, requested, unused)
        chosen = _fitting(columns, room)
        if not any(each.heading == "took" for each in chosen):
            both = [_TIME if each.heading == "left" else each for each in columns if each.heading != "took"]
            chosen = _fitting(both, room)
        chosen.sort(key=lambda column: _ORDER.index("" if column.is_logged else column.heading))
        return cls(label, tuple(chosen), width, counted, names)

    def header(self) -> Text:
        """Return the heading row."""
        first = _COLUMNS[0]
        names = [self.counted if each == first else printable_line(each.heading) for each in self.columns]
        words = map(_padded, names, self.columns)
        return Text(f"  {'run':{self.label}} {'state':{_BAR_WIDTH}} {' '.join(words)}".rstrip(), style="bold")

    def legend(self) -> list[Text]:
        """Return a line with the names of the settings whose values the labels are, where they lack them."""
        return [Text(_cut(f"  run: {self.names}", self.width - 1), style="dim")] if self.names else []

    def row(self, row: LiveRow) -> Text:
        """Return the row of a run; a running one has a progress bar as its state."""
        style = _STYLES.get(row.status, "red")
        done = row.epoch.epoch if row.epoch is not None else 0
        state = row.status
        if row.status == "running" and row.planned:
            state = "measuring" if row.is_measuring else _bar((done + row.share) / row.planned)
        text = Text.assemble((_SYMBOLS.get(row.status, "✗"), style), f" {self._shortened(row.label):{self.label}} ")
        text.append(f"{state:{_BAR_WIDTH}}", style=style)
        if row.reason and row.epoch is None and not row.metrics:
            text.append(f" {row.reason}", style=style)
            return text
        values = _values(row) | {"epoch": f"{done}/{row.planned}" if row.planned else str(done or "")}
        logged = {name: MISSING if value is None else _short(value) for name, value in row.metrics.items()}
        for column in self.columns:
            text.append(f" {_padded((logged if column.is_logged else values).get(column.heading, ''), column)}")
        text.rstrip()
        return text

    def _shortened(self, label: str) -> str:
        return _cut(_values_of(label) if self.names else label, self.label)


class LiveLayout:
    """The columns that the rows noted so far need; all of them until one row has a result.

    `labels` are those of the runs. Logged metrics have columns where there is room, the requested `metric` first.
    """

    def __init__(self, *, labels: Collection[str] = (), metric: str | None = None) -> None:
        # The widest decide, with names and without; a large sweep is not gone through again for each row.
        self._labels = {max(labels, key=key) for key in (len, lambda label: len(_values_of(label)))} if labels else ()
        self._requested = metric
        self._logged: dict[str, None] = {}
        self._used: set[str] = set()
        self._counted: set[str] = set()

    def note(self, row: LiveRow) -> None:
        """Keep which columns this row needs."""
        self._logged |= dict.fromkeys(row.metrics)
        self._used |= {heading for heading, value in _values(row).items() if value}
        if row.epoch is not None:
            self._counted.add(row.counted)

    def fitting(self, width: int) -> Layout:
        """Return the layout for a terminal of `width` characters."""
        return Layout.fitting(
            width,
            labels=self._labels,
            logged=tuple(self._logged),  # a copy, as a thread redraws the table
            requested=self._requested,
            unused=RESULTS - self._used if self._used & RESULTS or self._logged else (),
            counted="step" if self._counted == {"step"} else "epoch",
        )


def _fitting(columns: Sequence[_Column], room: int) -> list[_Column]:
    """The first of the columns, as many as have room."""
    chosen = []
    for column in columns:
        if room < column.width + 1:
            if column.is_logged:
                continue  # a name may be long
            break
        room -= column.width + 1
        chosen.append(column)
    return chosen


def _by_priority(logged: Sequence[str], requested: str | None, unused: Container[str]) -> list[_Column]:
    least, most = _LOGGED_WIDTHS
    of_logged = {name: _Column(name, max(least, min(len(name), most)), is_logged=True) for name in logged}
    first = [of_logged.pop(requested)] if requested in of_logged else []
    used = [column for column in _COLUMNS if column.heading not in unused]
    outcomes = sum(column in used for column in _COLUMNS[:_NUM_OUTCOMES])
    others = list(of_logged.values())
    before, after = others[:_NUM_LOGGED_BEFORE_SPEED], others[_NUM_LOGGED_BEFORE_SPEED:]
    return [*used[:_NUM_FIXED], *first, *used[_NUM_FIXED:outcomes], *before, *used[outcomes:], *after]


def _values(row: LiveRow) -> dict[str, str]:
    values = {"took": _duration_or_empty(row.seconds), "left": _duration_or_empty(row.seconds_left)}
    is_over = row.status not in ("running", "pending")
    values["time"] = values["took"] if is_over else f"{values['left']} left" if values["left"] else ""
    epoch = row.epoch
    if epoch is None:
        return values
    for heading, metric in (("loss", epoch.loss), ("val_loss", epoch.val_loss)):
        values[heading] = "" if metric is None else _short(metric)
    for heading, metric in (("acc", epoch.accuracy), ("val_acc", epoch.val_accuracy)):
        values[heading] = "" if metric is None else f"{metric:.3f}"
    values["samples/s"] = "" if row.rate is None else f"{row.rate:,.0f}"
    return values


def _short(number: float) -> str:
    """A number with four significant digits, or three with an exponent: at most eight characters."""
    text = f"{number:.4g}"
    return text if len(text) <= 8 else f"{number:.2e}"


def _bar(share: float) -> str:
    whole, half = divmod(round(2 * _BAR_WIDTH * min(1.0, share)), 2)
    return ("━" * whole + "╸" * half).ljust(_BAR_WIDTH, "╌")


def _padded(text: str, column: _Column) -> str:
    return _cut(text, column.width).rjust(column.width)


def _values_of(label: str) -> str:
    """Return a label without the names of its settings, as their values tell the rows apart."""
    return ",".join(part.rpartition("=")[2] for part in label.split(","))


def _names_of(label: str) -> str:
    """Return the names of a label's settings, empty if it has none."""
    return ",".join(name for part in label.split(",") if (name := part.rpartition("=")[0]))


def _cut(text: str, width: int) -> str:
    """Keep the end of a long text: the settings that vary most come last in a grid."""
    return text if len(text) <= width else _ELLIPSIS + text[-(width - 1) :]


def _duration_or_empty(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


def duration(seconds: float) -> str:
    """Format seconds in at most six characters: 8.4s, 42s, 3:07, 1h12m, 4d06h."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    minutes = whole // 60
    if minutes < 60 * 24:
        return f"{minutes // 60}h{minutes % 60:02}m"
    hours = minutes // 60
    return f"{hours // 24}d{hours % 24:02}h"


def footer(
    counts: Sequence[tuple[str, int]], *, seconds: float, seconds_left: float | None, is_least: bool, is_over: bool
) -> Text:
    """Return the state of the sweep in one line; `is_least`: it takes `seconds_left`, and more for some of its runs."""
    parts = [f"{number} {word}" for word, number in counts if number]
    parts.append(f"over after {duration(seconds)}" if is_over else f"{duration(seconds)} so far")
    if seconds_left is not None and not (is_least and seconds_left < 1):
        parts.append(f"{'at least' if is_least else 'about'} {duration(seconds_left)} left")
    return Text(" · ".join(parts), style="dim", no_wrap=True)
