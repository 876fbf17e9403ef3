"""Shared by all tests: one thread, no display, time limits for processes, and real MNIST if available."""

import os

# Before torch or matplotlib are imported: threads of parallel tests would compete, and no display exists.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from runmanager.records.settings import secrets

from .processes import TIMEOUT_SECONDS, discard, kill_all

# The same examples each time, and no time limit per example on a busy machine.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

# A shell that starts the tests in the background makes them ignore Ctrl-C, and nohup makes them ignore SIGHUP; all
# programs that they start would inherit this. Handlers are not inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


# Long tests begin first, so that parallel processes end at about the same time.
LONG = ("tests/slurm/", "tests/app/test_tutorials.py", "tests/reliability/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of slow files first."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Reset the number of torch threads after each test."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_secrets_of_earlier_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the secrets that earlier tests gave: the process removes their texts from all later output."""
    monkeypatch.setenv(secrets.SECRETS_VARIABLE, "")
    monkeypatch.setattr(secrets, "_values", set())


@pytest.fixture
def mortal() -> Iterator[Callable[[subprocess.Popen[Any]], subprocess.Popen[Any]]]:
    """Kill a process and its descendants after a timeout, so that reads of its output end, or after the test."""
    timers: list[threading.Timer] = []
    processes: list[subprocess.Popen[Any]] = []

    def watched(process: subprocess.Popen[Any]) -> subprocess.Popen[Any]:
        processes.append(process)
        timers.append(threading.Timer(TIMEOUT_SECONDS, kill_all, [process]))
        timers[-1].daemon = True
        timers[-1].start()
        return process

    yield watched
    for timer in timers:
        timer.cancel()
        timer.join()
    for process in processes:
        discard(process)


@pytest.fixture
def let_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Advance the clock that times runs, without waiting."""
    real_ns, real, passed = time.perf_counter_ns, time.perf_counter, [0.0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: real_ns() + round(passed[0] * 1e9))
    monkeypatch.setattr(time, "perf_counter", lambda: real() + passed[0])

    def wait(seconds: float) -> None:
        passed[0] += seconds

    return wait


@pytest.fixture
def only_last_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no evaluation but the last: others are drawn after epochs of ten seconds, which a busy machine has too."""
    monkeypatch.setattr("runmanager.tracking.tensorboard.evaluation_pictures._MIN_EPOCH_SECONDS", float("inf"))


@pytest.fixture(scope="session")
def mnist_root() -> Path:
    """The folder with MNIST/raw, from RUNMANAGER_DATA; it may be read-only."""
    given = os.environ.get("RUNMANAGER_DATA")
    if not given:
        pytest.skip("needs real MNIST: RUNMANAGER_DATA is not set")
    root = Path(given).resolve()
    missing = [name for name in MNIST_FILES if not (root / "MNIST" / "raw" / name).exists()]
    if missing:
        pytest.skip(f"needs real MNIST: {root} (RUNMANAGER_DATA) lacks MNIST/raw/{missing[0]}")
    return root
