"""Jobs for the engine, a listener that records events, and driver scripts."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from runmanager.launching.local.engine import LocalEngine
from runmanager.launching.local.jobs import Job, Listener, ProcessExit

from ..processes import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def importable_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this checkout's package, and the jobs of the tests, importable for processes in any folder."""
    paths = [str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import launching_jobs

    return launching_jobs


class Recorder(Listener):
    """Records all events in order."""

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
    """Run functions, each with its arguments, as jobs 0, 1, …"""
    monkeypatch.setenv("RUNMANAGER_PRELOAD", "")  # the engine sets it; restored after the test

    def run(*calls: tuple[Any, ...], workers: int = 1) -> Recorder:
        given = [Job(key, function, tuple(arguments)) for key, (function, *arguments) in enumerate(calls)]
        LocalEngine(workers=workers).run(given, recorder)
        return recorder

    return run


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., None]:
    """Wait until a condition holds, and fail the test after a deadline.

    The deadline is shorter than the life of the tests' jobs.
    """

    return partial(wait_until, seconds=60.0)


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
    """Start a script as a driver in tmp_path, with its output in pipes; it does not outlive the test."""
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
                process_group=0,  # so that one signal reaches it and all that it started
            )
        )
        return process

    return start
