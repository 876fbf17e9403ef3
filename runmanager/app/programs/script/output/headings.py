"""Lines without numbers that say what the numbers below them are: headings, and the names of a table's columns.

A table, as skorch, fastai and rich print it, counts where its first name is that of a counter: a row is a line where
that counter has grown.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from runmanager.records.run.metric_direction import has_known_word
from runmanager.records.run.metric_names import is_result, name_key, samples_words

_COUNTERS = frozenset(("ep", "epoch", "epochs", "it", "iter", "iteration", "step"))
_BAR = re.compile(r"[|│┃║]")
_CELL = re.compile(r"\S+(?: \S+)*")  # apart by two spaces, or a tab
_NAME = re.compile(r"[^\W\d][\w@/.% -]*")
_COUNT = re.compile(r"(\d+)(?:\s?/\s?\d+)?")
_VALUE = re.compile(r"([-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?|(?i:nan|[-+]?inf))(\s?%)?")
_MAX_HEADING, _MAX_HEADER = 40, 500  # characters
_BEST_HEADING = re.compile(
    r"(?i)\W*(?:(?!\w+(?:ing|ed)\b)[a-z]+ ){0,2}best(?:(?: [a-z]+){0,2} (?:results?|metrics|scores?|values?|far))?\W*"
)

BEST = "best"
"""The heading above values that are the best of what was printed before."""


def heading_of(line: str) -> str:
    """Return the word for samples that a line announces, or `BEST`; empty for a line that is no heading."""
    if len(line) > _MAX_HEADING:
        return ""
    samples = samples_words(line)
    return BEST if _BEST_HEADING.fullmatch(line) else samples[0] if len(samples) == 1 else ""


@dataclass(frozen=True)
class _Cell:
    text: str
    begin: int
    end: int


class NumberTable:
    """Takes lines in order: the last line of names says what the rows below it are.

    `settings` are names, by their `name_key`, whose numbers are no results.
    """

    def __init__(self, settings: Collection[str] = ()) -> None:
        self._settings = settings
        self._header: list[_Cell] = []
        self._count = -1

    def read_header(self, line: str) -> None:
        """Take a line without numbers, which may have the names of a table."""
        if len(line) > _MAX_HEADER or not has_known_word(line):
            return
        cells = _cells(line)
        names = [cell.text for cell in cells]
        is_header = names[0].lower() in _COUNTERS and any(map(is_result, names)) and all(map(_NAME.fullmatch, names))
        if is_header and len(set(names)) == len(names):
            self._header, self._count = cells, -1

    def find(self, line: str) -> Iterator[tuple[str, float]]:
        """Yield the results in a line, by name, if it is a row of the table."""
        if not self._header or _COUNT.match(line.lstrip(" \t|│┃║")) is None:
            return
        row = dict(self._by_column(_cells(line)))
        count = _COUNT.fullmatch(row.get(self._header[0].text, ""))
        if count is None or int(count[1]) <= self._count:
            return
        values = {name: _VALUE.fullmatch(text) for name, text in row.items() if is_result(name)}
        if any(values.values()):
            self._count = int(count[1])
        for name, value in values.items():
            if value is not None and name_key(name) not in self._settings:
                yield name, float(value[1]) / (100 if value[2] else 1)

    def _by_column(self, cells: list[_Cell]) -> Iterator[tuple[str, str]]:
        """Yield name and text of each cell; nothing where a cell belongs to no column, or to several."""
        if len(cells) == len(self._header):
            yield from ((name.text, cell.text) for name, cell in zip(self._header, cells, strict=True))
            return
        columns = [
            [name.text for name in self._header if name.begin < cell.end and cell.begin < name.end] for cell in cells
        ]
        if all(len(names) == 1 for names in columns):
            yield from ((names[0], cell.text) for names, cell in zip(columns, cells, strict=True))


def _cells(line: str) -> list[_Cell]:
    """The cells of a line: between its bars, else by its gaps."""
    text = line.expandtabs()
    if _BAR.search(text) is None:
        return [_Cell(each[0], each.start(), each.end()) for each in _CELL.finditer(text)] or [_Cell("", 0, 0)]
    cells, begin = [], 0
    for part in _BAR.split(text.strip("|│┃║ ")):
        cells.append(_Cell(part.strip(), begin, begin + len(part)))
        begin += len(part) + 1
    return cells
