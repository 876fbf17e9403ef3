"""A sweep beside a burner of CPU time is marked contended, and its comparison says so."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch

from runmanager import RunManager, Sweep, expand_grid
from runmanager.tracking.environment.resource_sampler import CpuTimes

# Ends by itself, should nobody be left to end it.
BURNER = "import time\nuntil = time.monotonic() + 120\nwhile time.monotonic() < until: pass"
# What this process starts is its own load; others are started by one that is gone.
START = """
import subprocess, sys
for _ in range(int(sys.argv[2])):
    burner = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(burner.pid)
"""
CELLS = {"lr": [0.1, 0.2]}
BATCHES = [(torch.ones(4, 2), torch.zeros(4, dtype=torch.int64))] * 2


def run_sweep(folder: Path, *, seconds: float) -> None:
    """The grid, each run so long: it sleeps, as one that waits for a GPU does."""
    network = torch.nn.Linear(2, 2)
    manager = RunManager(folder, sinks=[])
    for params in expand_grid(**CELLS):
        with manager.run(params, network, BATCHES) as run:
            for epoch in run.epochs(2):
                for inputs, labels in epoch.batches(BATCHES):
                    epoch.track(torch.tensor(1.0), network(inputs), labels)
                time.sleep(seconds / 2)


QUOTA = Path("/sys/fs/cgroup/cpu.max")


@contextmanager
def burners() -> Iterator[None]:
    """Somebody else's processes, which keep half of the cores busy."""
    count = ((psutil.cpu_count() or 1) + 1) // 2
    words = [sys.executable, "-c", START, BURNER, str(count)]
    pids = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    processes = [psutil.Process(int(pid)) for pid in pids]
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def reasons(folder: Path) -> list[str]:
    return list(Sweep(folder).compare(axis="lr")["reason"])


def test_a_sweep_alone_is_not_contended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The machine of the tests is never quiet, so its readings are those of one on which nothing else runs.
    def quiet(*, of: int | None = None) -> CpuTimes:
        now = time.monotonic()
        return CpuTimes(at=now, busy=now, steal=0.0, own=now)

    monkeypatch.setattr(CpuTimes, "now", quiet)
    run_sweep(tmp_path / "alone", seconds=0.0)
    assert list(Sweep(tmp_path / "alone").runs["contended"]) == [False, False]
    (reason,) = reasons(tmp_path / "alone")
    assert "contended" not in reason


@pytest.mark.skipif(
    QUOTA.exists() and not QUOTA.read_text().startswith("max"),
    reason="wants a machine whose cores can be kept busy: this container may use a part of them only",
)
def test_the_same_sweep_beside_a_burner_is_and_says_so(tmp_path: Path) -> None:
    with burners():
        run_sweep(tmp_path / "beside", seconds=0.3)
    assert list(Sweep(tmp_path / "beside").runs["contended"]) == [True, True]
    (reason,) = reasons(tmp_path / "beside")
    assert reason.startswith("contended: ") and "met outside load on the host" in reason
