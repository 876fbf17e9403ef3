"""Runs in separate processes on one GPU: each has its own memory, and runs that overlap are marked as contended."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runmanager.tracking.monitoring.device_meter import open_meter

from .gpu_device import DEVICE, needs_cuda, needs_device

pytestmark = needs_device

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 180
CELLS = (
    *("dataset=digits", "dataset.val_size=500", "model=cnn", "epochs=3", f"device={DEVICE}"),
    *("tensorboard.enabled=false", "checkpoint.every=0", "name=cells", "output_root=."),
)


def rows(folder: Path, *overrides: str) -> list[dict[str, str]]:
    """Run a sweep by a command in `folder`, and return the rows of its results.csv."""
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, inherited)])}
    done = subprocess.run(
        [sys.executable, "-m", "runmanager", "-m", *CELLS, *overrides, "--quiet"],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    with (folder / "cells" / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_two_runs_on_one_gpu_are_contended(tmp_path: Path) -> None:
    launched = ("hydra.launcher.workers=2", "hydra.launcher.runs_per_gpu=2")
    found = rows(tmp_path, "seed=0,1", "dataset.size=4000", *launched)
    assert [row["status"] for row in found] == ["finished"] * 2
    assert [row["contended"] for row in found] == ["True"] * 2


@needs_cuda
def test_runs_in_separate_processes_have_separate_memory(tmp_path: Path) -> None:
    found = rows(tmp_path, "loader=resident", "batch_size=10000,100", "dataset.size=20000")
    peaks = {row["batch_size"]: int(row["peak_memory_bytes"]) for row in found}
    assert peaks["100"] < peaks["10000"] / 2
    assert {row["device_name"] for row in found} == {torch.cuda.get_device_name(DEVICE)}


@needs_cuda
def test_the_gpu_has_meters() -> None:
    pytest.importorskip("pynvml")
    meter = open_meter(DEVICE)
    assert meter is not None
    look = meter.read({os.getpid()})
    assert look.utilization is not None and 0 <= look.utilization <= 1
    assert look.clock_hertz and look.clock_hertz > 1e8
    before, after = meter.energy.joules(), meter.energy.joules()
    assert before is None or (after is not None and 0 < before <= after)


@needs_cuda
def test_a_sweep_of_both_devices_is_compared(tmp_path: Path) -> None:
    # The last override of a setting counts; fewer than five measured epochs would not be compared.
    found = rows(tmp_path, "device=cuda,cpu", "epochs=7", "dataset.size=2000", "batch_size=500")
    assert {row["device"]: row["status"] for row in found} == {"cuda": "finished", "cpu": "finished"}
    with (tmp_path / "cells" / "comparison.csv").open(newline="") as file:
        (pair,) = csv.DictReader(file)
    assert (pair["baseline"], pair["candidate"]) == ("cpu", "cuda") and float(pair["speedup"]) > 0
