"""What all tests share: quiet threads, no display, and real MNIST where it is there."""

import os

# Before torch or matplotlib are imported: several threads a test fight for the cores, and there is no screen.
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

from .ending import PATIENCE_SECONDS, discard, kill_all

# The same examples each time, and no judging of how long a busy machine took over one.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

# A shell that starts the tests in the background has them ignore Ctrl-C, and nohup the end of the terminal; so would
# every program that they start. A handler is not inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


# Few tests and long ones: begun first, so that at the end no process waits for another's last of these.
LONG = ("tests/slurm/", "tests/app/test_tutorials.py", "tests/reliability/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests by how long their files take; where there is one process, it changes nothing but the order."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Whatever a test sets, the next one begins with one thread again."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture
def mortal() -> Iterator[Callable[[subprocess.Popen[Any]], subprocess.Popen[Any]]]:
    """Kills a process that comes to no end: then no read of what it says waits for ever, and the test fails.

    What it has started goes with it, and nothing of it outlives the test.
    """
    timers: list[threading.Timer] = []
    processes: list[subprocess.Popen[Any]] = []

    def watched(process: subprocess.Popen[Any]) -> subprocess.Popen[Any]:
        processes.append(process)
        timers.append(threading.Timer(PATIENCE_SECONDS, kill_all, [process]))
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
    """Lets seconds pass on the clock that times runs. None are waited for, so there may be far more than any delay."""
    counted, told, passed = time.perf_counter_ns, time.perf_counter, [0.0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: counted() + round(passed[0] * 1e9))
    monkeypatch.setattr(time, "perf_counter", lambda: told() + passed[0])

    def wait(seconds: float) -> None:
        passed[0] += seconds

    return wait


@pytest.fixture(scope="session")
def mnist_root() -> Path:
    """The folder that holds MNIST/raw, from RUNMANAGER_DATA; it may be read-only."""
    given = os.environ.get("RUNMANAGER_DATA")
    if not given:
        pytest.skip("real MNIST is wanted: RUNMANAGER_DATA names no folder")
    root = Path(given).resolve()
    missing = [name for name in MNIST_FILES if not (root / "MNIST" / "raw" / name).exists()]
    if missing:
        pytest.skip(f"real MNIST is wanted: {root} (RUNMANAGER_DATA) lacks MNIST/raw/{missing[0]}")
    return root
