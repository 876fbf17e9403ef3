"""A program of two ranks on gloo, as real processes: one record with the measurements of both."""

import itertools
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.results.result_files import write_tables

from ...forked_python import start_forked

TRAIN = """
import os, signal, sys, torch, runmanager
import torch.distributed as dist
from torch import nn

folder, by, doing = sys.argv[1:]
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/{folder}.store", rank=rank, world_size=world)
torch.manual_seed(0)
inputs = torch.randn(60, 4)
labels = (inputs.sum(1) > 0).long()
net = nn.Linear(4, 2)
if world > 1 and doing != "dies":  # else each trains for itself
    net = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
own = slice(None, None, world) if rank == 0 else slice(1, None, world)
batches = [(inputs[at : at + 12][own], labels[at : at + 12][own]) for at in range(0, 60, 12)]

def step(inputs, labels):
    optimizer.zero_grad()
    out = net(inputs)
    loss = nn.functional.cross_entropy(out, labels)
    loss.backward()
    optimizer.step()
    return loss, out, labels

options = runmanager.RunOptions(rank_timeout=60)
with runmanager.start_run(net, params={"lr": 0.1}, optimizer=optimizer, root=folder, options=options) as run:
    (run.dir / f"{rank}.txt").touch()
    if by == "steps":
        for at in range(4):
            for batch in run.batches(batches):
                run.track(*step(*batch), tokens=len(batch[1]))
    for epoch in run.epochs(4) if by == "epochs" else ():
        for batch in epoch.batches(batches):
            loss, out, target = step(*batch)
            epoch.track(loss, out, target, tokens=len(target), metrics={"mean": loss})
        if doing == "dies" and rank == 1 and epoch.number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if doing == "stops" and rank == world - 1 and epoch.number == 2:
            run.stop_early("rank 1 has seen enough")
            assert world == 1 or not run.should_stop, "the others would continue"
sys.stdout.write(f"{len(run.history)} records in rank {rank}\\n")
"""


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., list[subprocess.CompletedProcess[str]]]:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)

    def run(world: int, *words: str) -> list[subprocess.CompletedProcess[str]]:
        (tmp_path / f"{words[0]}.store").unlink(missing_ok=True)
        ranks = []
        for rank in range(world):
            variables = {} if world == 1 else {"RANK": str(rank), "WORLD_SIZE": str(world)}
            environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
            ranks.append(start_forked([str(script), *words], folder=tmp_path, environment=environment))
        return [process.end() for process in ranks]

    return run


def stored(folder: Path) -> StoredRun:
    (run,) = read_sweep(SweepPaths(folder)).runs
    return run


def facts(epoch: EpochRecord) -> tuple[Any, ...]:
    return epoch.epoch, epoch.samples, epoch.units, epoch.accuracy


def test_two_ranks_record_what_one_records_of_the_whole_batch(tmp_path: Path, train: Any) -> None:
    (alone,) = train(1, "one", "epochs", "stops")
    first, second = train(2, "two", "epochs", "stops")
    assert (alone.returncode, first.returncode, second.returncode) == (0, 0, 0), first.stderr + second.stderr
    one, two = stored(tmp_path / "one"), stored(tmp_path / "two")
    assert [facts(epoch) for epoch in one.epochs] == [facts(epoch) for epoch in two.epochs]
    assert [epoch.samples for epoch in two.epochs] == [60, 60]
    for whole, shared in zip(one.epochs, two.epochs, strict=True):
        assert shared.loss == pytest.approx(whole.loss, rel=1e-5)
        assert shared.metrics == {"mean": pytest.approx(whole.loss, rel=1e-5)}
        assert shared.samples_per_second == 60 / (shared.epoch_seconds or 0)
    assert (two.record.reason, two.record.message) == ("early_stopped", "rank 1 has seen enough")
    assert first.stdout.endswith("2 records in rank 0\n")
    said = [line for line in second.stdout.splitlines() if not line.startswith("[Gloo]")]  # of PyTorch itself
    assert said == ["2 records in rank 1"]
    assert two.record.deviations == () and {path.name for path in two.paths.files.iterdir()} == {"0.txt", "1.txt"}

    # The number of ranks is a setting of the tables; the files of one process know nothing of it.
    assert two.record.world_size == 2 and b"world_size" not in one.paths.record.read_bytes()
    write_tables(SweepPaths(tmp_path / "two"))
    header, row = [line.split(",") for line in (tmp_path / "two" / "results.csv").read_text().splitlines()]
    assert row[header.index("world_size")] == "2" and header.index("world_size") < header.index("epochs")
    assert "world_size" not in (tmp_path / "one" / "results.csv").read_text()

    # A run that is kept is kept in all ranks: none trains alone.
    first, second = train(2, "two", "epochs", "stops")
    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    assert "finished already, kept" in first.stdout and second.stdout.endswith("in rank 1\n")
    assert stored(tmp_path / "two").epochs == two.epochs


def test_ranks_agree_on_the_steps_of_a_record(tmp_path: Path, train: Any) -> None:
    first, second = train(2, "two", "steps", "")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    run = stored(tmp_path / "two")
    assert run.record.interval == "steps" and run.epochs[-1].epoch == 20
    assert sum(epoch.samples for epoch in run.epochs) == 4 * 60
    assert all(epoch.samples == 12 * steps for epoch, steps in zip(run.epochs, steps_of(run), strict=True))


def steps_of(run: StoredRun) -> list[int]:
    ends = [0, *(epoch.epoch for epoch in run.epochs)]
    return [end - begin for begin, end in itertools.pairwise(ends)]


def test_a_killed_rank_is_told_by_rank_0(tmp_path: Path, train: Any) -> None:
    first, second = train(2, "two", "epochs", "dies")
    assert second.returncode == -signal.SIGKILL and first.returncode == 1
    run = stored(tmp_path / "two")
    assert [epoch.samples for epoch in run.epochs] == [60], "what both have measured"
    assert (run.record.status, run.record.reason) == ("crashed", "vanished")
    assert run.record.message.startswith("rank 1 (process ") and "ended before it ended epoch 2" in run.record.message
