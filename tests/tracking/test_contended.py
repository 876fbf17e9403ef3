"""A sweep that runs while other processes use the CPU is marked as contended, also in its comparison."""

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
from runmanager.tracking.monitoring.resource_sampler import CpuTimes

# Ends by itself if the test does not end it.
BURNER = "import time\nuntil = time.monotonic() + 120\nwhile time.monotonic() < until: pass"
# Children of this process are its own load, so the burners are started by a process that has ended.
START = """
import subprocess, sys
for _ in range(int(sys.argv[2])):
    burner = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(burner.pid)
"""
CELLS = {"lr": [0.1, 0.2]}
BATCHES = [(torch.ones(4, 2), torch.zeros(4, dtype=torch.int64))] * 2


def run_sweep(folder: Path, *, seconds: float) -> None:
    """Run the grid; each run takes `seconds`, asleep like a run that waits for a GPU."""
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
    """Foreign processes that keep half of the cores busy."""
    count = ((psutil.cpu_count() or 1) + 1) // 2
    command = [sys.executable, "-c", START, BURNER, str(count)]
    pids = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    processes = [psutil.Process(int(pid)) for pid in pids]
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def reasons(folder: Path) -> list[str]:
    return list(Sweep(folder).compare(axis="lr")["reason"])


def test_a_sweep_alone_is_not_contended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The machine that runs the tests is never idle, so its readings are replaced by those of an idle one.
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
    reason="needs a machine whose cores can be kept busy: this container may use only some of them",
)
def test_the_same_sweep_with_foreign_load_is_contended(tmp_path: Path) -> None:
    with burners():
        run_sweep(tmp_path / "loaded", seconds=0.3)
    assert list(Sweep(tmp_path / "loaded").runs["contended"]) == [True, True]
    (reason,) = reasons(tmp_path / "loaded")
    assert reason.startswith("contended: ") and "met outside load on the host" in reason
