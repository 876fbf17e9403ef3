"""Freed memory is reused: a step causes no further page faults."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OWN_LOOP = """
import resource, runmanager, torch
runmanager.keep_freed_memory()
"""
RUN = """
import os, resource, torch
from runmanager.records.files.paths import RunPaths
from pathlib import Path
from runmanager.training.options.dataset import FakeOptions
from runmanager.app.run_cell import train_cell
from runmanager.training.options.job import TrainingOptions
from runmanager.training.options.groups import AdamOptions, ConstantOptions, DataLoaderOptions, LogisticOptions

options = TrainingOptions(
    epochs=1, batch_size=16, dataset=FakeOptions(size=32, val_size=16), model=LogisticOptions(),
    optimizer=AdamOptions(), scheduler=ConstantOptions(), loader=DataLoaderOptions(),
)
folder = RunPaths(Path("sweep", "runs", "one"))
train_cell(folder, options, {"lr": 0.1})
"""
STEPS = """
import ctypes
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: huge pages would reduce the number of faults

def step():
    return [torch.ones(2_500_000) for _ in range(8)]  # 80 MB, allocated together and freed together

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def faults_of_a_step():
    before = faults()
    step()
    return faults() - before

for _ in range(3):
    step()
print(min(faults_of_a_step() for _ in range(10)))  # the kernel may reclaim pages during the test
"""
PAGES_OF_A_STEP = 8 * 2_500_000 * 4 // 4096


def _faults_per_step(program: str, folder: Path, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", program + STEPS],
        cwd=folder,
        env={**_quiet_environment(), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def _quiet_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_", "LD_PRE"))}


@pytest.mark.skipif(sys.platform != "linux", reason="wants glibc")
@pytest.mark.parametrize("program", [RUN, OWN_LOOP], ids=["a run", "a loop of one's own"])
def test_a_step_reuses_the_memory_of_the_previous_one(program: str, tmp_path: Path) -> None:
    assert _faults_per_step(program, tmp_path) < PAGES_OF_A_STEP / 100


@pytest.mark.skipif(sys.platform != "linux", reason="wants glibc")
def test_environment_variables_for_allocation_have_precedence(tmp_path: Path) -> None:
    assert _faults_per_step(RUN, tmp_path, MALLOC_TRIM_THRESHOLD_="100000") > PAGES_OF_A_STEP / 2
