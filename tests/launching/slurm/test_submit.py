"""Submissions that Slurm rejects."""

import importlib.util
from pathlib import Path

import pytest

from runmanager.errors import RunManagerError, UsageError
from runmanager.launching.local.time_limits import Limits
from runmanager.launching.slurm.job import SlurmRequest
from runmanager.launching.slurm.launcher import SlurmLauncher
from runmanager.launching.slurm.options import SlurmOptions
from runmanager.launching.slurm.submit import submit
from runmanager.records.files.paths import SweepPaths


@pytest.fixture
def no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's commands, rejecting every submission; tests/slurm uses a real Slurm."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("sbatch", "srun"):
        (commands / name).write_text("#!/bin/sh\necho sbatch: error: no room >&2\nexit 1\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(commands), prepend=":")


@pytest.mark.parametrize("num_cells", [1, 3])
def test_a_rejected_submission_leaves_no_files(num_cells: int, tmp_path: Path, no_room: None) -> None:
    pytest.importorskip("submitit")
    sweep = SweepPaths(tmp_path / "sweep")
    sweep.slurm.mkdir(parents=True)
    kept = sweep.slurm / "12_0_result.pkl"
    kept.touch()
    request = SlurmRequest(
        work=b"",
        driver_state={},
        environment={},
        sweep=sweep,
        run=None,
        limits=Limits(),
        time_limit_minutes=1,
        is_resumed=False,
        is_detached=False,
    )
    with pytest.raises(RunManagerError, match="Slurm must accept the jobs, got: sbatch: error: no room"):
        submit([request] * num_cells, SlurmOptions(), after=None)
    assert list(sweep.slurm.iterdir()) == [kept]


def test_a_launcher_without_submitit_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"find the package submitit, got none; pip install .torch-runmanager\[sl"):
        SlurmLauncher()
