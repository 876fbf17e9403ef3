"""Sweeps of scripts on a real Slurm: every death is told as on this machine, and ranks are one run."""

import json
import re
from typing import Any

import pytest

from ..app.programs.script.death_script import DEATHS, ENDS, SCALARS, WAYS
from ..app.programs.script.test_torchrun import SCRIPT as RANKED

MAIN = "import sys\nfrom runmanager.cli.main import run_command\nsys.exit(run_command(sys.argv[1:]))"
SLURM = ("--launcher", "slurm", "--slurm", "poll_seconds=0.3", "--slurm", "time=10")


@pytest.mark.release
def test_every_death_of_a_script_is_told_truly(bench: Any) -> None:
    (bench.folder / "train.py").write_text(DEATHS)
    words = (
        "sweep",
        "--name",
        "script",
        "--order",
        "grid",
        *SLURM,
        *SCALARS,
        "train.py",
        f"way={','.join(WAYS)}",
        "--",
        "fit",
    )
    done = bench.end_of(bench.start_python("-c", MAIN, *words))
    assert done.status == 1, done.err
    records = {each.config["way"]: each for each in bench.sweep("script").records}
    assert {way: (str(each.status), each.reason, each.message) for way, each in records.items()} == ENDS
    assert records["fine"].summary == {"loss": 0.125, "val/acc": 0.8}


@pytest.mark.release
def test_ranks_of_a_cell_run_in_one_job_with_cores_for_each(bench: Any) -> None:
    (bench.folder / "train.py").write_text(RANKED)
    words = ("sweep", "--name", "ranks", "--unchecked", *SLURM, "--processes", "2,1", "train.py", "way=dies")
    done = bench.end_of(bench.start_python("-c", MAIN, *words))
    assert done.status == 1, done.err
    sweep = bench.sweep("ranks")
    records = {each.config["processes"]: each for each in sweep.records}
    assert {number: (str(each.status), each.message) for number, each in records.items()} == {
        1: ("finished", ""),
        2: ("killed", "rank 1 was killed by SIGKILL"),
    }
    assert records[2].world_size == 2 and [sweep.epochs(records[number]) for number in (1, 2)] == [[1, 2], [1]]
    scripts = [script.read_text() for script in (sweep.paths.root / "slurm").glob("*_submission.sh")]
    asked = set(re.findall(r"^#SBATCH --cpus-per-task=(\d+)$", "\n".join(scripts), re.MULTILINE))
    assert asked == {"1", "2"}, "all jobs of an array ask for the same"


SURROUNDINGS = """
import json, os, subprocess
from pathlib import Path

shown = subprocess.run(["scontrol", "show", "job", os.environ["SLURM_JOB_ID"]], capture_output=True, text=True).stdout
Path("seen.json").write_text(json.dumps([dict(os.environ), dict(each.split("=", 1) for each in shown.split())]))
"""
SHELL = {
    **{"SLURM_CPU_BIND": "map_cpu:1", "SLURM_CPUS_PER_TASK": "2", "SRUN_CPUS_PER_TASK": "2", "PMIX_RANK": "1"},
    **{"SBATCH_TIMELIMIT": "5", "SBATCH_ARRAY_INX": "0-2", "SBATCH_PARTITION": "urgent", "SQUEUE_USERS": "nobody"},
}


def test_a_job_has_the_surroundings_that_were_asked_for_and_no_others(bench: Any) -> None:
    (bench.folder / "train.py").write_text(SURROUNDINGS)
    words = ("sweep", "--name", "shell", "--unchecked", *SLURM, "--slurm", "time=60", "train.py")
    done = bench.end_of(bench.start_python("-c", MAIN, *words, **SHELL))
    assert done.status == 0, done.out + done.err
    variables, job = json.loads((bench.folder / "seen.json").read_text())
    assert (job["TimeLimit"], job["Partition"], job.get("ArrayJobId")) == ("01:00:00", "urgent", None)
    assert {name: variables[name] for name in SHELL if name in variables} == {
        "SLURM_CPUS_PER_TASK": "1",  # what Slurm gave this job
        "SQUEUE_USERS": "nobody",
    }
    assert "SLURM_NTASKS" not in variables, "it is none of several tasks"


SEARCHED = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
print("loss:", (parser.parse_args().lr - 0.3) ** 2)
"""


@pytest.mark.release
def test_a_search_submits_as_many_cells_as_may_run_and_then_each_by_itself(bench: Any) -> None:
    (bench.folder / "train.py").write_text(SEARCHED)
    search = ("--search", "tpe", "--trials", "4", "--slurm", "array_parallelism=2")
    words = (
        "sweep",
        "--name",
        "found",
        *SLURM,
        *search,
        "--scalar",
        r"loss=loss: (\S+)",
        "train.py",
        "lr=uniform(0,1)",
    )
    done = bench.end_of(bench.start_python("-c", MAIN, *words))
    assert done.status == 0, done.err
    sweep = bench.sweep("found")
    assert len({each.config["lr"] for each in sweep.records}) == 4
    scripts = [script.read_text() for script in (sweep.paths.root / "slurm").glob("*_submission.sh")]
    arrays = [re.findall(r"^#SBATCH --array=0-(\d+)", script, re.MULTILINE) for script in scripts]
    assert len(arrays) >= 3 and all(int(last) < 2 for found in arrays for last in found)
    detached = bench.end_of(bench.start_python("-c", MAIN, *words, "--slurm", "wait=false"))
    assert detached.status == 2 and "`--search` must be left out where no driver waits" in detached.err
