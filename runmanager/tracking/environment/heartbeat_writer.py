"""A run's heartbeat: a thread that shows every few seconds that the process lives and how far the run has come."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from runmanager.records.run.heartbeat import BEAT_SECONDS, Beat, write_beat

__all__ = ["Heartbeat"]


class Heartbeat:
    """Counts what a run does in `progress`, and shows it in a file while it beats.

    `progress` is a plain integer that the run adds to: a step costs no more. The thread writes a few bytes, calls
    `each_beat`, which must not raise, and ends with the run, with its folder, or with the process.
    """

    def __init__(
        self, path: Path | None = None, *, seconds: float = BEAT_SECONDS, each_beat: Callable[[], object] | None = None
    ) -> None:
        self.progress = 0
        self._path = path
        self._seconds = seconds
        self._each_beat = each_beat
        self._counter = 0
        self._process = os.getpid()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> "Heartbeat":
        """Beat once, now, and then from a thread."""
        if self._beat():
            self._thread = threading.Thread(target=self._keep_beating, name="runmanager-heartbeat", daemon=True)
            self._thread.start()
        return self

    def stop(self, *, keeps_file: bool = False) -> None:
        """Beat no more, and take the file away: the run's record tells its end.

        `keeps_file` where it is another process's by now. A fork has no part in it.
        """
        if os.getpid() != self._process:
            return
        self._stopped.set()
        if self._thread is not None and self._path is not None:
            if self._thread is not threading.current_thread():  # where the garbage of a dropped run was found
                self._thread.join()
            self._thread = None
            if keeps_file:
                return
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _keep_beating(self) -> None:
        while not self._stopped.wait(self._seconds) and self._beat():
            if self._each_beat is not None:
                self._each_beat()

    def _beat(self) -> bool:
        self._counter += 1
        try:
            if self._path is not None:
                write_beat(self._path, Beat(self._counter, self.progress, int(time.time())))
        except FileNotFoundError:
            return False  # the folder is gone, and with it whoever could read
        except OSError:
            pass  # a full or failing disk: the next beat may get through, and the run says so itself
        return self._path is not None
