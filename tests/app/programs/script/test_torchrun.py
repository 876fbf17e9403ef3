"""Scripts in several ranks: torchrun starts them, and their cell is one run."""

import json

from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.storage.reader import read_sweep

from .conftest import Folder

SCRIPT = """
import argparse, os, signal, sys, torch, runmanager
import torch.distributed as dist

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
        print("printed", rank)
"""


def test_the_ranks_of_a_cell_are_one_run(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    refused = folder.run("sweep", "--processes", "0,2", "train.py")
    assert refused.status == 2 and "`--processes` must be numbers of at least 1" in refused.err
    refused = folder.run("sweep", "--processes", "2", "--unchecked", "train.py", "processes=2")
    assert refused.status == 2 and "`--processes` must be left out with a setting of that name" in refused.err
    assert not (folder.path / "outputs").exists()

    scalar = ("--scalar", r"printed=printed (\d)")
    done = folder.run("sweep", "--name", "scaling", *scalar, "--processes", "1,2", "train.py", "way=fine,dies")
    assert done.status == 1, done.err
    runs = {
        (run.settings["processes"], run.settings["way"]): run
        for run in read_sweep(SweepPaths(folder.path / "outputs" / "scaling")).runs
    }
    assert {key: run.status for key, run in runs.items()} == {
        (1, "fine"): "finished",
        (1, "dies"): "finished",  # it has no rank 1
        (2, "fine"): "finished",
        (2, "dies"): "killed",
    }
    dead = runs[2, "dies"].record
    assert (dead.reason, dead.message) == ("signal", "rank 1 was killed by SIGKILL")
    fine = runs[2, "fine"]
    assert fine.record.world_size == 2 and [epoch.samples for epoch in fine.epochs] == [24, 24]
    assert fine.record.summary == {"printed": 0.0} and "printed 1" not in fine.paths.log.read_text()
    assert [file.read_text().count("printed 1") for file in _outputs_of(fine.paths, rank=1)] == [2]
    header = (folder.path / "outputs" / "scaling" / "results.csv").read_text().splitlines()[0].split(",")
    assert "processes" in header and "world_size" not in header, "the same would stand there twice"

    # One process is the cell that it always was: nothing runs again.
    again = folder.run("sweep", "--name", "scaling", *scalar, "--dry-run", "train.py", "way=fine")
    assert again.status == 0 and "kept" in again.out, again.out
    plan = json.loads((folder.path / "outputs" / "scaling" / "sweep.json").read_text())
    assert {cell["signature"] for cell in plan["planned"]} == {run.signature for run in runs.values()}


def _outputs_of(run: RunPaths, *, rank: int) -> list:
    return list(run.root.glob(f"ranks/*/attempt_0/{rank}/stdout.log"))
