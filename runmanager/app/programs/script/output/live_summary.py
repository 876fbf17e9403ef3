"""What a running script has printed, in its run's record: tables show it while it runs, and a kill leaves it there."""

import time
from collections.abc import Callable

import msgspec

from runmanager.app.programs.script.output.printed_metrics import PrintedMetrics
from runmanager.errors import RecordError
from runmanager.records.storage.run_folder import RunFolder

__all__ = ["PRINTED", "LiveSummary"]

PRINTED = "printed"
"""The origin of a metric that a script printed."""

_WRITE_SECONDS = 1.0


class LiveSummary:
    """Writes the last printed values to run.json, at most once a second, until `withdraw`.

    A metric that the record has from elsewhere keeps that value.
    """

    def __init__(
        self, folder: RunFolder, printed: PrintedMetrics, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._printed = printed
        self._clock = clock
        self._num_written = 0
        self._written_at = -_WRITE_SECONDS
        self.withdraw()  # what an earlier attempt printed

    def update(self) -> None:
        """Write what is new. An error is left to the next time, and at last to the record of the run's end."""
        num_points, now = self._printed.num_points, self._clock()
        if num_points == self._num_written or now - self._written_at < _WRITE_SECONDS:
            return
        self._num_written, self._written_at = num_points, now
        self.withdraw()
        record = self._folder.record
        known = record.summary or {}
        new = {name: value for name, value in self._printed.metrics().items() if name not in known}
        try:
            if not self._folder.is_lost():
                origins = (record.origins or {}) | dict.fromkeys(new, PRINTED)
                self._folder.write(summary=known | new, origins=origins)
        except (OSError, RecordError):
            return

    def withdraw(self) -> None:
        """Take the printed values out of the record in memory: its next writer knows better."""
        record = self._folder.record
        origins = record.origins or {}
        others = {name: value for name, value in (record.summary or {}).items() if origins.get(name) != PRINTED}
        rest = {name: origin for name, origin in origins.items() if origin != PRINTED}
        changes = {"summary": others or msgspec.UNSET, "origins": rest or msgspec.UNSET}
        self._folder.record = msgspec.structs.replace(record, **changes)
