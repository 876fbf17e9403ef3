"""The readable notes of a run, and its deviations from the requested settings."""

from collections.abc import Iterable

from runmanager.records.settings.secrets import redacted
from runmanager.records.storage.run_folder import RunFolder
from runmanager.text import encodable, truncated
from runmanager.tracking.introspect.isolation import UNSEEN_BATCH

__all__ = ["RunNotes"]


class RunNotes:
    """Collects the notes of a run, those of earlier attempts first, and stores them in its record."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._lines = list(folder.record.notes)

    def extend(self, lines: Iterable[str]) -> None:
        """Add notes; they are stored when the record is next written."""
        self._lines.extend(lines)

    def clear(self) -> None:
        """Forget all notes: they are those of an attempt of which nothing is kept."""
        self._lines.clear()

    @property
    def lines(self) -> tuple[str, ...]:
        """Each note once, sanitised and truncated for the record, as some quote an exception.

        Of a batch that could not be looked at, the first reason is enough.
        """
        unseen = [line for line in self._lines if line.startswith(UNSEEN_BATCH)]
        lines = [line for line in self._lines if line in unseen[:1] or line not in unseen]
        return tuple(dict.fromkeys(map(_bounded, lines)))

    def note(self, line: str) -> None:
        """Add a note and store it immediately."""
        self._lines.append(line)
        self._folder.write(notes=self.lines)

    def note_deviation(self, line: str) -> None:
        """Store a deviation from the requested settings immediately; tables show it."""
        self._folder.write(deviations=tuple(dict.fromkeys((*self._folder.record.deviations, _bounded(line)))))


def _bounded(line: str) -> str:
    return truncated(redacted(encodable(line)))
