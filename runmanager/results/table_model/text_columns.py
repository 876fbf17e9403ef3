"""Columns of text in a terminal: how narrow each may be, which are left out, and how wide the others become."""

import textwrap
from collections.abc import Sequence

from runmanager.results.table_model.columns import EFFECTS
from runmanager.text import printable_line, text_width

__all__ = ["SETTINGS", "TextColumn", "column_widths", "smallest_width", "split_columns"]

SETTINGS = "settings"
"""A column with all settings of a row."""

_GAP = 2  # between two columns
_FOLD_WIDTH = 14  # wider text is broken into lines; numbers never are
_FOLD_WIDTHS = {SETTINGS: 28, "command": 40}  # of columns whose text is long
_NAMES = ("sweep",)  # columns of names to be copied, which are not broken unless they are very long
_MAX_NAME = 32
_WORDS = ("status", "reason")  # columns of single words, broken only if no other column can be narrower
_PHRASES = (
    "verdict",
    "compared",
    "states",
    "axes",
    "created",
    "tags",
)  # columns of a few words, which are broken first


class TextColumn:
    """The texts of a column and the widths that it may have: `preferred`, `minimum`, and `smallest` in an emergency.

    Its heading is made of the column's `name`, or of a setting's, as a command takes it.
    """

    def __init__(self, name: str, texts: Sequence[str], is_number: bool, *, setting: str = "") -> None:
        self.name = name
        self._title = printable_line(setting or name)
        self.texts = texts
        self.is_number = is_number
        self.folds = not is_number and name not in ("95% interval", "note", *EFFECTS)
        words = self._words.split()
        widest = max(map(text_width, texts), default=0)
        self.preferred = max([widest, *map(text_width, words)])
        is_name = name in _NAMES and widest <= _MAX_NAME
        broken_at = widest if is_name else _FOLD_WIDTHS.get(name, _FOLD_WIDTH)
        self.minimum = min(self.preferred, broken_at) if self.folds else max(widest, min(self.preferred, broken_at))
        smallest = self.minimum
        if name in _PHRASES:
            words = [word for text in [name, *texts] for word in text.split()]
            smallest = min(smallest, max(map(text_width, words), default=0))
        if name in _WORDS:
            self.minimum = self.preferred
        # As a last resort a mean stands above its deviation, and the ends of an interval above each other; numbers are
        # never broken.
        parts = [text_width(part) for text in texts for part in _parts(text)]
        has_two_parts = not self.folds and any(len(_parts(text)) > 1 for text in texts)
        self.smallest = max([*parts, *map(text_width, words)]) if has_two_parts else smallest

    def heading(self, width: int) -> str:
        return textwrap.fill(self._words, width)

    @property
    def _words(self) -> str:
        """The name in words; without the unit where the texts have another one."""
        has_unit = any(text.endswith("iB") for text in self.texts)
        return (self._title.removesuffix("_bytes") if has_unit else self._title).replace("_", " ")

    def fields(self, width: int) -> list[str]:
        """The texts; a mean with its deviation or an interval takes two lines if one is too narrow."""
        return [text if self.folds or text_width(text) <= width else "\n".join(_parts(text)) for text in self.texts]


def _parts(text: str) -> list[str]:
    return text.replace(" ± ", "\n± ").replace(" to ", "\nto ").split("\n")


def _total_minimum(columns: Sequence[TextColumn]) -> int:
    return sum(column.minimum for column in columns) + _GAP * (len(columns) - 1)


def smallest_width(columns: Sequence[TextColumn]) -> int:
    """Return the width that these columns need at least."""
    return sum(column.smallest for column in columns) + _GAP * (len(columns) - 1)


def split_columns(
    columns: Sequence[TextColumn], width: int, *, omittable: Sequence[str], logged: Sequence[str], last: Sequence[str]
) -> tuple[list[TextColumn], list[str]]:
    """Return the columns that fit into `width`, and the names of the omitted ones.

    The `omittable` columns are left out in their order, if the others do not fit at their usual minimum; the `logged`
    ones, in theirs, if the others do not fit at their smallest width; the `last` ones together, if that is not enough.
    """
    shown, omitted = list(columns), []
    for names, total in ((omittable, _total_minimum), (logged, smallest_width)):
        for name in names:
            if total(shown) <= width:
                break
            if any(column.name == name for column in shown):
                shown = [column for column in shown if column.name != name]
                omitted.append(name)
    if _total_minimum(shown) > width:
        if smallest_width(shown) > width:
            omitted += [column.name for column in shown if column.name in last]
            shown = [column for column in shown if column.name not in last]
        for column in shown:
            column.minimum = column.smallest
    return shown, omitted


def column_widths(columns: Sequence[TextColumn], width: int) -> list[int]:
    """The minimum width of each column; spare width goes to the first columns, up to their preferred width."""
    spare = max(0, width - _total_minimum(columns))
    widths = []
    for column in columns:
        more = min(spare, column.preferred - column.minimum)
        widths.append(column.minimum + more)
        spare -= more
    return widths
