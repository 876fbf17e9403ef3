"""Scripts in several ranks: torchrun starts them, and their cell is one run."""

import psutil

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep

from .conftest import Folder

SCRIPT = """
import argparse, os, signal, subprocess, sys, torch, runmanager
import torch.distributed as dist
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--way", default="fine")
args = parser.parse_args()
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    dist.init_process_group("gloo")
network = torch.nn.Linear(2, 1)
with runmanager.start_run(network) as run:
    for epoch in run.epochs(2):
        for batch in epoch.batches(torch.ones(24 // world, 2).split(4)):
            epoch.track(network(batch).mean(), samples=len(batch))
        if args.way == "dies" and rank == 1 and epoch.number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if args.way == "orphaned":
            helper = subprocess.Popen(["sleep", "600"], start_new_session=True)
            Path(f"pids-{rank}").write_text(f"{os.getpid()} {helper.pid}")
            dist.barrier()
            if rank == 1:
                os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()
        print("printed", rank)
"""
# Of a driver that is the third of four independent tasks; its cells are no ranks of one run.
TASK = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "PMI_RANK": "2", "PMI_SIZE": "4", "PMIX_RANK": "2"}


def test_the_ranks_of_a_cell_are_one_run(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    refused = folder.run("sweep", "--processes", "2", "--unchecked", "train.py", "processes=2")
    assert refused.status == 2 and "`--processes` must be left out with a setting of that name" in refused.err
    assert not (folder.path / "outputs").exists()

    options = ("--name", "scaling", "--unchecked", "--scalar", r"printed=printed (\d)")
    done = folder.run("sweep", *options, "--processes", "1,2", "train.py", "way=dies", **TASK)
    assert done.status == 1, done.err
    stored = read_sweep(SweepPaths(folder.path / "outputs" / "scaling")).runs
    one, two = sorted(stored, key=lambda run: run.settings["processes"])
    assert (one.status, [epoch.samples for epoch in one.epochs]) == ("finished", [24, 24]), "it has no rank 1"
    assert (two.status, two.record.reason, two.record.message) == ("killed", "signal", "rank 1 was killed by SIGKILL")
    assert two.record.world_size == 2 and [epoch.samples for epoch in two.epochs] == [24], "what both have trained"
    assert two.record.summary == {"printed": 0.0} and "printed 1" not in two.paths.log.read_text()
    assert [file.read_text() for file in two.paths.root.glob("ranks/*/attempt_0/1/stdout.log")] == ["printed 1\n"]
    header = (folder.path / "outputs" / "scaling" / "results.csv").read_text().splitlines()[0].split(",")
    assert "processes" in header and "world_size" not in header, "the same would stand there twice"

    # One process is the cell that it always was: nothing runs again.
    again = folder.run("sweep", *options, "--dry-run", "train.py", "way=dies")
    assert again.status == 0 and "1 cell: 1 keep" in again.out, again.out


def test_nothing_outlives_a_torchrun_that_is_killed(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    done = folder.run("sweep", "--name", "killed", "--unchecked", "--processes", "2", "train.py", "way=orphaned")
    assert done.status == 1, done.err
    (run,) = read_sweep(SweepPaths(folder.path / "outputs" / "killed")).runs
    assert (run.status, run.record.reason) == ("killed", "signal")
    assert run.record.message == "torchrun was killed by SIGKILL, and its ranks with it"
    pids = [int(pid) for file in folder.path.glob("pids-*") for pid in file.read_text().split()]
    assert len(pids) == 4 and not any(map(psutil.pid_exists, pids)), "both ranks, and what each has started"
