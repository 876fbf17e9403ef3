"""Submissions: what Slurm is asked for, in which environment, and those that it rejects."""

import importlib.util
import os
from pathlib import Path

import pytest

from runmanager.errors import RunManagerError, UsageError
from runmanager.launching.job_registry import jobs_folder
from runmanager.launching.local.jobs import Limits
from runmanager.launching.slurm.job import SlurmRequest
from runmanager.launching.slurm.launcher import SlurmLauncher, submit
from runmanager.launching.slurm.options import SlurmOptions
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


def _request(sweep: SweepPaths) -> SlurmRequest:
    return SlurmRequest(
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


@pytest.mark.parametrize("num_cells", [1, 3])
def test_a_rejected_submission_leaves_no_files(num_cells: int, tmp_path: Path, no_room: None) -> None:
    pytest.importorskip("submitit")
    sweep = SweepPaths(tmp_path / "sweep")
    jobs_folder(sweep).mkdir(parents=True)
    kept = jobs_folder(sweep) / "12_0_result.pkl"
    kept.touch()
    with pytest.raises(RunManagerError, match="Slurm must accept the jobs, got: sbatch: error: no room"):
        submit([_request(sweep)] * num_cells, SlurmOptions(), after=None)
    assert list(jobs_folder(sweep).iterdir()) == [kept]


SHELL = {
    **{"SLURM_CONF": "/etc/slurm.conf", "SLURM_CLUSTERS": "far", "SLURM_CPU_BIND": "map_cpu:1"},
    **{"SLURM_CPUS_PER_TASK": "7", "SLURM_UMASK": "0077", "SRUN_CPUS_PER_TASK": "7", "SUBMITIT_EXECUTOR": "debug"},
    **{"PMI_RANK": "1", "PMI2_RANK": "1", "PMIX_RANK": "1", "OMP_PROC_BIND": "close"},
    # For sbatch: those without an option of ours stay.
    **{"SBATCH_PARTITION": "theirs", "SBATCH_RESERVATION": "theirs", "SBATCH_TIMELIMIT": "5", "SBATCH_WAIT": "1"},
    **{"SBATCH_ARRAY_INX": "0-9", "SBATCH_JOB_NAME": "theirs", "SBATCH_OUTPUT": "theirs", "SBATCH_QOS": "theirs"},
    **{"SBATCH_MEM_PER_CPU": "1G", "SBATCH_GRES": "gpu:8", "SBATCH_NO_REQUEUE": "1", "SBATCH_CPUS_PER_GPU": "2"},
}


def test_a_job_inherits_no_variable_of_slurm_and_our_options_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    commands = tmp_path / "bin"
    commands.mkdir()
    # Like Slurm, sbatch runs the script in its own environment; srun is what starts the run.
    for name, act in {"sbatch": 'bash "$1"; echo Submitted batch job 7', "srun": ":"}.items():
        (commands / name).write_text(f"#!/bin/sh\nenv > {tmp_path}/{name}.env\n{act}\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(commands), prepend=":")
    for name, value in SHELL.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)

    def of_shell(command: str) -> set[str]:
        lines = (tmp_path / f"{command}.env").read_text().splitlines()
        given = SHELL | {"CUDA_VISIBLE_DEVICES": "3"}
        return {name for name, _, value in (line.partition("=") for line in lines) if given.get(name) == value}

    more = {"requeue": True}
    options = SlurmOptions(qos="ours", memory_gb=2, gpus_per_node=1, additional_parameters=more)
    assert submit([_request(SweepPaths(tmp_path / "sweep"))], options, after=None) == ["7"]
    job = {"SLURM_CONF", "OMP_PROC_BIND"}
    assert of_shell("srun") == job
    assert of_shell("sbatch") == {*job, "SLURM_CLUSTERS", "SBATCH_PARTITION", "SBATCH_RESERVATION"}
    assert dict(os.environ) == before

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    submit([_request(SweepPaths(tmp_path / "again"))], SlurmOptions(), after=None)
    assert of_shell("srun") == {*job, "CUDA_VISIBLE_DEVICES"}, "the user has set it"
    monkeypatch.setenv("SLURM_JOB_GPUS", "3")
    submit([_request(SweepPaths(tmp_path / "inside"))], SlurmOptions(), after=None)
    assert of_shell("srun") == job, "Slurm has set it for the driver's own job"


def test_a_launcher_without_submitit_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"find the package submitit, got none; pip install .torch-runmanager\[sl"):
        SlurmLauncher()
