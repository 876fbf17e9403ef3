"""Runs and managers that still exist when the process ends, or that are dropped before."""

import gc
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from runmanager import RunManager
from runmanager.errors import NoRoomError
from runmanager.records.storage.reader import StoredRun

TRAINS = """
import multiprocessing, os, torch
from torch import nn
from runmanager import RunManager

held = []

def train():
    held.append(RunManager("sweep", console=False))
    network, loader = nn.Linear(4, 2), [(torch.rand(4, 4), torch.zeros(4, dtype=torch.long))]
    held[0].begin_run({"lr": 1}, network, loader)
    for _ in range(2):
        held[0].begin_epoch()
        held[0].track_loss(torch.tensor(1.0), loader[0])
        held[0].end_epoch()
"""
LEFT_RUNNING = "train(); held[0].begin_epoch(); raise ValueError"
IN_A_CHILD = """
def body():
    train()
    held[0].end_run()

child = multiprocessing.get_context("fork").Process(target=body)
child.start()
child.join()
"""
WITH_A_FORK = """
train()
if os.fork():
    os.wait()
    held[0].end_run()
"""
IN_THE_MIDDLE_OF_AN_IMPORT = """
import sys, types

train()
held[0].end_run()
others = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "matplotlib"}
sys.modules["matplotlib"] = types.ModuleType("matplotlib")  # so far
held.clear()
del sys.modules["matplotlib"]
sys.modules.update(others)
"""


@pytest.mark.parametrize(
    ("script", "status", "message"),
    [
        (LEFT_RUNNING, "killed", "begun and never ended"),
        (IN_A_CHILD, "finished", ""),
        (WITH_A_FORK, "finished", ""),
        (IN_THE_MIDDLE_OF_AN_IMPORT, "finished", ""),
    ],
    ids=["raised", "in a child", "with a fork", "in the middle of an import"],
)
def test_runs_and_tables_are_written_when_the_process_ends(
    tmp_path: Path, only_run: Callable[[], StoredRun], script: str, status: str, message: str
) -> None:
    subprocess.run(
        [sys.executable, "-c", TRAINS + script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"},
        timeout=240,
        check=False,
        stderr=subprocess.DEVNULL,
    )
    stored = only_run()
    assert (stored.record.status, stored.record.message, len(stored.epochs)) == (status, message, 2)
    assert stored.record.ended_at is not None and not stored.paths.heartbeat.exists()
    assert stored.name in (tmp_path / "sweep" / "report.html").read_text()
    assert f",{status}," in (tmp_path / "sweep" / "results.csv").read_text()


def test_a_dropped_run_is_recorded_as_killed(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun]
) -> None:
    manager = RunManager(tmp_path / "sweep", sinks=[])
    run = manager.run({}, network, loader)
    assert only_run().record.status == "running"
    del run
    gc.collect()
    record = only_run().record
    assert (record.status, record.reason, record.message) == ("killed", "interrupted", "begun and never ended")


def test_an_end_that_cannot_be_written_is_recorded_as_failed(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun]
) -> None:
    run = RunManager(tmp_path / "sweep", sinks=[]).run({}, network, loader)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(NoRoomError), run:
        for _ in run.epochs(1):
            pass
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    del run
    gc.collect()
    record = only_run().record
    assert (record.status, record.reason) == ("failed", "exception")
    assert "the size that a file may have" in record.message
