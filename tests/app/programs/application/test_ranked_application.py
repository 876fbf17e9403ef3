"""A Hydra application in several ranks: torchrun starts them, and their cell is one run."""

import json
from collections.abc import Callable

from .conftest import Application

RANKED = """
import logging

import hydra
import torch
import torch.distributed as dist

import runmanager

log = logging.getLogger(__name__)


@hydra.main(version_base="1.3", config_path=".", config_name="ranked")
def main(cfg):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    network = torch.nn.Linear(2, 1)
    print("printed by", rank, "with", torch.get_num_threads(), "threads")
    log.info("logged by %s", rank)
    with runmanager.start_run(network) as run:
        for epoch in run.epochs(2):
            for batch in epoch.batches(torch.ones(24 // world, 2).split(4)):
                epoch.track(network(batch).mean(), samples=len(batch))
            if cfg.way == "raises" and rank == 1 and epoch.number == 2:
                raise ValueError("an unlucky rank")
    return {"score": cfg.lr, "words": "ignored"} if rank == 0 else None


if __name__ == "__main__":
    main()
"""


def test_the_ranks_of_a_cell_are_one_run(application: Application, write_script: Callable[[str, str], None]) -> None:
    write_script("ranked.py", RANKED)
    write_script("ranked.yaml", "lr: 0.1\nway: fine\n")
    words = ("hydra.sweeper.name=ranks", "way=fine,raises")
    two = "hydra.launcher.processes_per_run=2"
    done = application.run(*words, two, script="ranked.py", OMP_NUM_THREADS="2")
    assert done.status == 1, done.out + done.err
    records = application.by_setting("ranks", "way")
    fine, failed = records["fine"], records["raises"]
    assert (str(fine.status), fine.world_size, fine.summary) == ("finished", 2, {"score": 0.1}), fine.message
    assert fine.origins == {"score": "returned"} and any("words" in line for line in fine.notes)
    assert (str(failed.status), str(failed.reason)) == ("failed", "exception")
    told = failed.message  # by torchrun, or by rank 0, whichever of both it sees first
    assert told.endswith("ValueError: an unlucky rank") and "rank 1" in told

    folder, broken = (application.sweep("ranks").run(record.name) for record in (fine, failed))
    samples = [line["samples"] for line in map(json.loads, folder.epochs.read_text().splitlines())]
    assert samples == [24, 24], "what both have trained"
    log = folder.log.read_text()
    assert "printed by 0 with 1 threads" in log and "printed by 1" not in log
    assert "logged by 0" in (folder.root / "ranked.log").read_text()
    assert "logged by 1" in (folder.root / "ranked_rank1.log").read_text()
    assert "way: fine" in (folder.root / ".hydra" / "config.yaml").read_text()
    assert not list(folder.root.rglob("*.pickle"))
    traceback = broken.error.read_text()
    assert f'File "{application.folder}/ranked.py"' in traceback and "rank_main.py" not in traceback

    # The number of ranks is part of what a cell is; the command of a cell has it.
    assert two in (fine.cell_command or ())
    plan = application.run(*words, two, "hydra.sweeper.dry_run=true", script="ranked.py").out
    assert "1 start" in plan and "1 keep" in plan
    assert "2 start" in application.run(*words, "hydra.sweeper.dry_run=true", script="ranked.py").out
