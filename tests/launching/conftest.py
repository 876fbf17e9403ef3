"""An engine, jobs for it, and a listener that remembers."""

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from runmanager.launching.local.engine import Job, Listener, LocalEngine, ProcessExit

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def importable_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in another folder finds this checkout's package, installed or not, and the tests' jobs."""
    places = [str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import launching_jobs

    return launching_jobs


class Recorder(Listener):
    """Remembers what it was told, in order."""

    def __init__(self) -> None:
        self.pids: dict[int, int] = {}
        self.endings: dict[int, ProcessExit] = {}
        self.events: list[tuple[str, int]] = []
        self.num_ticks = 0

    def started(self, job: Job, pid: int) -> None:
        self.pids[job.key] = pid
        self.events.append(("started", job.key))

    def ended(self, ending: ProcessExit) -> None:
        self.endings[ending.job.key] = ending
        self.events.append(("ended", ending.job.key))

    def tick(self) -> None:
        self.num_ticks += 1


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def run_jobs(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> Callable[..., Recorder]:
    """Run functions, each with its arguments, as jobs 0, 1, …; a test ends if they do not."""
    monkeypatch.setenv("RUNMANAGER_PRELOAD", "")  # the engine sets it for its own; put back afterwards

    def run(*calls: tuple[Any, ...], workers: int = 1) -> Recorder:
        given = [Job(key, function, tuple(arguments)) for key, (function, *arguments) in enumerate(calls)]
        LocalEngine(workers=workers).run(given, recorder)
        return recorder

    return run


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., None]:
    """Wait until a condition holds; a deadline that fails the test, not a measurement.

    It is shorter than what the tests' jobs live if nobody ends them.
    """

    def wait(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        pause = threading.Event()
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            pause.wait(0.01)

    return wait


@pytest.fixture
def is_gone() -> Callable[[int], bool]:
    def gone(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except psutil.NoSuchProcess:
            return True

    return gone


@pytest.fixture
def start_driver(tmp_path: Path, mortal: Callable[..., Any]) -> Callable[..., subprocess.Popen[str]]:
    """Start a script as a driver of its own in tmp_path; its output is collected, and it does not outlive the test."""
    numbers = itertools.count()

    def start(script: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        path = tmp_path / f"driver_{next(numbers)}.py"
        path.write_text(script)
        process: subprocess.Popen[str] = mortal(
            subprocess.Popen(
                [sys.executable, str(path), *arguments],
                cwd=tmp_path,
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                process_group=0,  # one signal may be sent to it and all that it has started
            )
        )
        return process

    return start
