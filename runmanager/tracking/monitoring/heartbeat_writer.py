"""Heartbeat of a run: a thread that writes every few seconds that the process is alive, and the run's progress."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from runmanager.records.run.heartbeat import BEAT_SECONDS, Beat, write_beat


class Heartbeat:
    """Writes `progress` to a file at regular intervals, from a thread.

    `progress` is a plain integer that the run increments, so that a step costs almost nothing. Each beat writes a few
    bytes and calls `each_beat`, which must not raise. The thread ends with the run, with its folder or the process.
    With `shows_progress_only` the file is written only when there was progress, as another process writes the
    heartbeat.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        seconds: float = BEAT_SECONDS,
        each_beat: Callable[[], object] | None = None,
        shows_progress_only: bool = False,
    ) -> None:
        self.progress = 0
        self._shows_progress_only = shows_progress_only
        self._last_progress: int | None = None
        self._path = path
        self._seconds = seconds
        self._each_beat = each_beat
        self._counter = 0
        self._process = os.getpid()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> "Heartbeat":
        """Write the first beat now, and start the thread."""
        if self._beat():
            self._thread = threading.Thread(target=self._keep_beating, name="runmanager-heartbeat", daemon=True)
            self._thread.start()
        return self

    def stop(self, *, keeps_file: bool = False) -> None:
        """Stop the thread and delete the file, as the run's record has the end. Does nothing in a fork.

        `keeps_file` if the file belongs to another process by now.
        """
        if os.getpid() != self._process:
            return
        self._stopped.set()
        if self._thread is not None and self._path is not None:
            if self._thread is not threading.current_thread():  # it may have collected a dropped run
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
        if self._shows_progress_only and self.progress == self._last_progress:
            return self._path is not None
        self._counter += 1
        self._last_progress = self.progress
        try:
            if self._path is not None:
                write_beat(self._path, Beat(self._counter, self.progress, int(time.time())))
        except FileNotFoundError:
            return False  # the folder is gone, and its readers with it
        except OSError:
            pass  # a full or failing disk: the next beat may succeed, and the run reports the error itself
        return self._path is not None
