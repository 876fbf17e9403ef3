"""The details of every run for a report's data: its settings, what it said, the end of its log, its command."""

from collections.abc import Sequence
from typing import Any

from runmanager.records.storage.reader import StoredRun
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.report.run_details import tail
from runmanager.text import printable, printable_line, printable_value, shell_command

__all__ = ["detail_data"]

_MAX_CHARACTERS = 250_000  # of the ends of all logs
_MAX_LOG, _MIN_LOG = 3000, 200  # characters of one
_LOG_LINES = 20


class _Texts:
    """Texts that several runs share, each stored once."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def place(self, text: str) -> int:
        return self.places.setdefault(printable(text), len(self.places))


def detail_data(runs: Sequence[StoredRun | None], plan: SweepRecord | None) -> dict[str, Any]:
    """Return the settings that all runs share, the `texts` that runs refer to, and the details of each run.

    A run that has not started has None. The more runs, the less of each log is kept.
    """
    stored = [run for run in runs if run is not None]
    shared = _shared_settings(stored)
    texts = _Texts()
    limit = max(_MIN_LOG, min(_MAX_LOG, _MAX_CHARACTERS // max(1, len(stored))))
    details = [None if run is None else _details(run, shared, texts, limit) for run in runs]
    return {
        "settings": {printable_line(name): text for name, text in shared.items()},
        "texts": list(texts.places),
        "runs": details,
    }


def _shared_settings(runs: Sequence[StoredRun]) -> dict[str, str]:
    """The settings that are equal in all runs."""
    if not runs:
        return {}
    first, *others = (run.record.choices_and_settings for run in runs)
    shared = {name for name, value in first.items() if all(name in each and each[name] == value for each in others)}
    return {name: printable_value(value) for name, value in first.items() if name in shared}


def _details(run: StoredRun, shared: dict[str, str], texts: _Texts, limit: int) -> dict[str, Any]:
    record = run.record
    own = {name: value for name, value in record.choices_and_settings.items() if name not in shared}
    command = record.cell_command or record.environment.command
    return {
        "folder": printable(run.folder),
        "message": printable(record.message),
        "settings": {printable_line(name): printable_value(value) for name, value in own.items()},
        "said": [texts.place(text) for text in (*record.deviations, *record.notes)],
        "command": texts.place(shell_command(command)) if command else None,
        "log": _end(run.paths.log, limit),
        "error": _end(run.paths.error, limit),
    }


def _end(path: Any, limit: int) -> str:
    """The last whole lines of a file, at most `limit` characters; empty if it does not exist."""
    lines = tail(path, max_bytes=4 * limit)[-_LOG_LINES:]
    text = printable("\n".join(lines))
    return text if len(text) <= limit else "…" + text[-limit:]
