"""Output of Slurm's commands, and the outcome of a run from the end of its job."""

from pathlib import Path

import pytest

from runmanager.launching.slurm.job_follower import outcome_of_job
from runmanager.launching.slurm.options import SlurmOptions
from runmanager.launching.slurm.queue import JobEnd, SlurmQueue, read_end, read_states


def test_the_states_of_jobs_are_parsed() -> None:
    assert read_states("12_0 RUNNING\n12_1 PENDING\n13 COMPLETING\n\n") == {
        "12_0": "RUNNING",
        "12_1": "PENDING",
        "13": "COMPLETING",
    }


def test_no_variable_of_the_shell_hides_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text('#!/bin/sh\necho "12 RUNNING"\nenv > "$0.env"\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in ("SQUEUE_STATES", "SQUEUE_USERS", "SQUEUE_PARTITION", "SQUEUE_ALL", "SCANCEL_STATE"):
        monkeypatch.setenv(name, "given")
    assert SlurmQueue().states(["12"]) == {"12": "RUNNING"}
    given = [line for line in (tmp_path / "squeue.env").read_text().splitlines() if line.endswith("=given")]
    assert given == ["SQUEUE_ALL=given"], "which shows more, not less"


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("JobId=5 JobState=TIMEOUT Reason=TimeLimit ExitCode=0:15", JobEnd("TIMEOUT", 0, 15)),
        ("JobId=5 ArrayJobId=4 JobState=FAILED ExitCode=137:0", JobEnd("FAILED", 137, 9)),
        ("JobId=5 JobState=COMPLETED ExitCode=0:0", JobEnd("COMPLETED", 0, 0)),
        ("", JobEnd()),
    ],
)
def test_the_end_of_a_job_is_parsed(text: str, end: JobEnd) -> None:
    assert read_end(text) == end


@pytest.mark.parametrize(
    ("end", "state", "message"),
    [
        (JobEnd("TIMEOUT", 0, 15), ("killed", "timeout"), "Slurm's time limit of 7 minutes"),
        (JobEnd("OUT_OF_MEMORY", 0, 125), ("failed", "out_of_memory"), "out of memory with memory_gb=2"),
        (JobEnd("CANCELLED"), ("killed", "interrupted"), "cancelled in Slurm"),
        (JobEnd("FAILED", 137, 9), ("killed", "signal"), "SIGKILL"),
        (JobEnd("FAILED", 2), ("failed", "exit"), "exit code 2; see slurm/5_0_log.out"),
        (JobEnd("NODE_FAIL"), ("crashed", "vanished"), "NODE_FAIL"),
        (JobEnd(), ("crashed", "vanished"), "without a report"),
    ],
)
def test_the_end_of_a_job_gives_the_outcome_of_its_run(end: JobEnd, state: tuple[str, str], message: str) -> None:
    options = SlurmOptions(time=7, memory_gb=2.0)
    outcome = outcome_of_job(end, options=options, log=Path("slurm/5_0_log.out"))
    assert (outcome.status, outcome.reason) == state
    assert message in outcome.message
