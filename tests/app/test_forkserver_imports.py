"""Tests that the forkserver imports every library that a run needs."""

import subprocess
import sys
from pathlib import Path

RUN = """
import sys
import runmanager.app.forkserver_imports
before = set(sys.modules)
import torch
from runmanager.app.run_cell import train_cell
from runmanager.training.options.job import TrainingOptions
from runmanager.training.options.dataset import FakeOptions
from runmanager.training.options.groups import AdamOptions, CnnOptions, ConstantOptions, DataLoaderOptions
from runmanager.records.files.paths import RunPaths
from runmanager.records.storage.reader import read_record
from pathlib import Path

options = TrainingOptions(
    epochs=2, batch_size=16, dataset=FakeOptions(size=32, val_size=16), model=CnnOptions(),
    optimizer=AdamOptions(), scheduler=ConstantOptions(), loader=DataLoaderOptions(),
)
folder = RunPaths(Path("sweep", "runs", "one"))
train_cell(folder, options, {"lr": 0.1})
record = read_record(folder)
assert record.status == "finished", record
print(sorted(name for name in set(sys.modules) - before if name.partition(".")[0] != "runmanager"))
"""


def test_a_run_imports_no_further_library(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
