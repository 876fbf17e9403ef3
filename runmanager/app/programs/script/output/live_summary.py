"""What a running script has printed, in its run's record: tables show it while it runs, and a kill leaves it there."""

import time
from collections.abc import Callable

from runmanager.app.programs.cell_metrics import logged_only
from runmanager.app.programs.script.output.printed_metrics import PrintedMetrics
from runmanager.errors import RecordError
from runmanager.records.storage.run_folder import RunFolder

__all__ = ["LiveSummary"]

_PRINTED = "printed"
_WRITE_SECONDS = 1.0


class LiveSummary:
    """Writes the last printed values to run.json, at most once a second.

    A metric that the program has logged keeps that value.
    """

    def __init__(
        self, folder: RunFolder, printed: PrintedMetrics, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._printed = printed
        self._clock = clock
        self._num_written = 0
        self._written_at = -_WRITE_SECONDS

    def update(self) -> None:
        """Write what is new. An error is left to the next time, and at last to the record of the run's end."""
        num_points, now = self._printed.num_points, self._clock()
        if num_points == self._num_written or now - self._written_at < _WRITE_SECONDS:
            return
        self._num_written, self._written_at = num_points, now
        logged = logged_only(self._folder.record).summary or {}
        new = {name: value for name, value in self._printed.metrics().items() if name not in logged}
        try:
            if not self._folder.is_lost():
                self._folder.write(summary=logged | new, origins=dict.fromkeys(new, _PRINTED))
        except (OSError, RecordError):
            return
