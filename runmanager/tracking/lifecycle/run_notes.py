"""The readable lines of a run: what could not be done or was chosen, and what is done otherwise than asked."""

from collections.abc import Iterable

from runmanager.records.storage.run_folder import RunFolder
from runmanager.text import encodable, truncated

__all__ = ["RunNotes"]


class RunNotes:
    """Gathers the lines of a run, those of its earlier attempts first, and keeps them in its record."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._lines = list(folder.record.notes)

    def extend(self, lines: Iterable[str]) -> None:
        """Gather lines that the record gets when it is next written."""
        self._lines.extend(lines)

    @property
    def said(self) -> tuple[str, ...]:
        """Each line once, and such as a record keeps: some quote an exception."""
        return tuple(dict.fromkeys(map(_kept, self._lines)))

    def note(self, line: str) -> None:
        """Gather a line and write it down at once."""
        self._lines.append(line)
        self._folder.write(notes=self.said)

    def deviates(self, line: str) -> None:
        """Write down at once what is done otherwise than asked; tables name it."""
        self._folder.write(deviations=tuple(dict.fromkeys((*self._folder.record.deviations, _kept(line)))))


def _kept(line: str) -> str:
    return truncated(encodable(line))
