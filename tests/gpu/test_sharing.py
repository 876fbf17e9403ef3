"""Runs in separate processes on one GPU: each has its own memory, and runs that overlap are marked as contended."""

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep
from runmanager.tracking.monitoring.device_meter import open_meter

from .gpu_device import DEVICE, needs_cuda, needs_device

pytestmark = needs_device

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 180
CELLS = (
    *("dataset=digits", "dataset.val_size=500", "model=cnn", "epochs=3", f"device={DEVICE}"),
    *("tensorboard.enabled=false", "checkpoint.every=0", "name=cells", "output_root=."),
)


def variables() -> dict[str, str]:
    """Return the environment of a process that imports this checkout; PYTHONPATH may hold unpacked wheels."""
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, inherited)])}


def rows(folder: Path, *overrides: str) -> list[dict[str, str]]:
    """Run a sweep by a command in `folder`, and return the rows of its results.csv."""
    done = subprocess.run(
        [sys.executable, "-m", "runmanager", "-m", *CELLS, *overrides, "--quiet"],
        cwd=folder,
        env=variables(),
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


def output(folder: Path, code: str) -> str:
    """Run a program in `folder`, and return what it printed."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=folder, env=variables(), capture_output=True, text=True, timeout=DEADLINE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LATE = """
import time, torch, runmanager
with runmanager.start_run(params={}, root="late") as run:
    for epoch in run.epochs(4):
        began, matrix = time.perf_counter(), torch.rand(4096, 4096, device="cuda")
        for _ in range(100):
            matrix = torch.mm(matrix, matrix).clamp(0, 1)
        epoch.track(1.0, samples=1)
        run.end_epoch(epoch)
        print("took", time.perf_counter() - began)
"""


@needs_cuda
def test_a_device_that_appears_later_is_timed_by_its_own_clock(tmp_path: Path) -> None:
    taken = [float(line.split()[1]) for line in output(tmp_path, LATE).splitlines() if line.startswith("took")]
    (run,) = read_sweep(SweepPaths(tmp_path / "late")).runs
    seconds = [epoch.epoch_seconds for epoch in run.epochs]
    assert seconds[0] is None and run.record.environment.device_name == torch.cuda.get_device_name(DEVICE)
    assert seconds[2:] == [pytest.approx(each, rel=0.2, abs=0.005) for each in taken[2:]]


ASIDE = """
import time, torch, runmanager
matrix = torch.rand(4096, 4096, device="cuda")
with runmanager.start_run(params={}, root="aside") as run:
    for _ in range(3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        epoch = run.begin_epoch(is_all_training=True)
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(200):
                torch.mm(matrix, matrix)
        epoch.track(1.0, samples=1)
        run.end_epoch(epoch)
        print("took", time.perf_counter() - began)
"""


@needs_cuda
def test_work_in_a_stream_of_the_programs_own_is_timed_to_its_end(tmp_path: Path) -> None:
    taken = [float(line.split()[1]) for line in output(tmp_path, ASIDE).splitlines() if line.startswith("took")]
    (run,) = read_sweep(SweepPaths(tmp_path / "aside")).runs
    seconds = [epoch.epoch_seconds for epoch in run.epochs]
    assert seconds[1:] == [pytest.approx(each, rel=0.2, abs=0.005) for each in taken[1:]]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_run_on_the_second_gpu_takes_no_memory_of_the_first(tmp_path: Path) -> None:
    nvml = pytest.importorskip("pynvml")
    nvml.nvmlInit()
    first = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    before = largest = nvml.nvmlDeviceGetMemoryInfo(first).used
    words = [*CELLS[:3], "epochs=30", "device=cuda:1"]
    code = f"from benchmarks.our_training import *; from pathlib import Path; train(compose_cell({words}), Path('.'))"
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=variables()) as process:
        while process.poll() is None:
            largest = max(largest, nvml.nvmlDeviceGetMemoryInfo(first).used)
            time.sleep(0.1)
    assert process.returncode == 0 and largest < before + 100 * 2**20


FULL = """
import torch
from runmanager.tracking.lifecycle.outcome import outcome_of
left, right = torch.rand(2, 64, 64, device="cuda").unbind()
images = torch.rand(64, 64, 64, 64, device="cuda")
free, _ = torch.cuda.mem_get_info()
kept = []
while free > 2**20:  # beside PyTorch's allocator, which would give it back
    try:
        kept.append(torch.empty(free - 2**19, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
    free //= 2
for work in (lambda: torch.mm(left, right), lambda: torch.conv2d(images, torch.rand(64, 64, 3, 3).cuda())):
    try:
        work()
        print("none: it had room")
    except RuntimeError as error:
        print(outcome_of(error).reason, error)
"""


@needs_cuda
def test_libraries_without_memory_are_out_of_memory(tmp_path: Path) -> None:
    for line in output(tmp_path, FULL).splitlines():
        assert not line.startswith("exception"), line
