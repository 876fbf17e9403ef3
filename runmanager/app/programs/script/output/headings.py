"""Lines without numbers that say what the numbers below them are: headings, and the names of a table's columns.

A table, as skorch, fastai and rich print it, counts where its first name is that of a counter: a row is a line where
that counter has grown.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from runmanager.records.run.metric_names import is_result, name_key, samples_words

_HEADER = re.compile(r"(?i)\W*(?:ep|epochs?|it|iter|iteration|step)\b")
_BAR = re.compile(r"[|│┃║]")
_CELL = re.compile(r"\S+(?: \S+)*")  # apart by two spaces, or a tab
_NAME = re.compile(r"[^\W\d][\w@/.% -]*")
_COUNT = re.compile(r"[\s|│┃║]*(\d+)(?:\s?/\s?\d+)?(?![\w.])")
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
        self._wanted: list[int] = []  # the columns of results
        self._count = -1

    def read_header(self, line: str) -> None:
        """Take a line without numbers, which may have the names of a table."""
        if _HEADER.match(line) is None or len(line) > _MAX_HEADER:
            return
        cells = _cells(line)
        names = [cell.text for cell in cells]
        wanted = [at for at, name in enumerate(names) if at > 0 and is_result(name)]
        if wanted and all(map(_NAME.fullmatch, names)) and len(set(names)) == len(names):
            self._header, self._count = cells, -1
            self._wanted = [at for at in wanted if name_key(names[at]) not in self._settings]

    def find(self, line: str) -> Iterator[tuple[str, float]]:
        """Yield the results in a line, by name, if it is a row of the table."""
        count = _COUNT.match(line) if self._header else None
        if count is None or int(count[1]) <= self._count:
            return
        texts = line.split()
        if len(texts) != len(self._header) or _BAR.search(line) is not None:
            texts = self._by_column(_cells(line))
        values = [(at, _VALUE.fullmatch(texts[at])) for at in self._wanted if texts]
        for at, value in values:
            if value is not None:
                self._count = int(count[1])
                yield self._header[at].text, float(value[1]) / (100 if value[2] else 1)

    def _by_column(self, cells: list[_Cell]) -> list[str]:
        """The text of each column; none where a cell belongs to no column of its own."""
        if len(cells) == len(self._header):
            return [cell.text for cell in cells]
        texts = [""] * len(self._header)
        for cell in cells:
            columns = [at for at, name in enumerate(self._header) if name.begin < cell.end and cell.begin < name.end]
            if len(columns) != 1 or texts[columns[0]]:
                return []
            texts[columns[0]] = cell.text
        return texts


def _cells(line: str) -> list[_Cell]:
    """The cells of a line: between its bars, else by its gaps."""
    text = line.expandtabs()
    if _BAR.search(text) is None:
        return [_Cell(each[0], each.start(), each.end()) for each in _CELL.finditer(text)]
    cells, begin = [], 0
    for part in _BAR.split(text.strip("|│┃║ ")):
        cells.append(_Cell(part.strip(), begin, begin + len(part)))
        begin += len(part) + 1
    return cells
