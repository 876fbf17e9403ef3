"""Frameworks that train in several ranks: one record, with what all of them have measured."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import StoredRun, read_sweep

from ..processes import TIMEOUT_SECONDS
from .lightning_ranks import BATCH, INPUTS, NUM_EPOCHS, Module

pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

Mortal = Callable[[subprocess.Popen[Any]], subprocess.Popen[Any]]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def run_program(mortal: Mortal, *words: str | Path) -> None:
    started = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = mortal(started).communicate(timeout=TIMEOUT_SECONDS)[0]
    assert started.returncode == 0, output[-3000:]


def stored(root: Path) -> StoredRun:
    (run,) = read_sweep(SweepPaths(root)).runs
    assert (run.record.status, run.record.world_size, run.record.deviations) == ("finished", 2, ())
    return run


def losses_of_one_process() -> list[float]:
    """Train with whole batches; return the mean loss over the samples of each epoch."""
    network = Module().net
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    means = []
    for _ in range(NUM_EPOCHS):
        losses = []
        for batch in INPUTS.split(BATCH):
            optimizer.zero_grad()
            loss = network(batch).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        means.append(sum(losses) / len(losses))
    return means


def test_ranks_of_lightning_record_what_one_process_does_with_whole_batches(tmp_path: Path, mortal: Mortal) -> None:
    run_program(mortal, Path(__file__).with_name("lightning_ranks.py"), tmp_path)
    run = stored(tmp_path / "sweep")
    assert [epoch.samples for epoch in run.epochs] == [len(INPUTS)] * NUM_EPOCHS
    assert [epoch.loss for epoch in run.epochs] == pytest.approx(losses_of_one_process(), rel=1e-5)
    assert run.epochs[-1].metrics == {"spread": pytest.approx(float(INPUTS.mean()))}
    assert {path.name for path in tmp_path.glob("rank*")} == {"rank0", "rank1"}, "both have trained to the end"


def test_ranks_that_lightning_starts_from_the_cells_of_an_application(tmp_path: Path, mortal: Mortal) -> None:
    application = Path(__file__).with_name("lightning_application.py")
    sweeper = ("hydra/sweeper=runmanager", "hydra.sweeper.name=first", f"hydra.sweeper.output_root={tmp_path}")
    run_program(mortal, application, "-m", *sweeper, "+epochs=1,2")
    runs = {run.record.config["epochs"]: run for run in read_sweep(SweepPaths(tmp_path / "first")).runs}
    assert [path.name for path in tmp_path.iterdir()] == ["first"] and runs.keys() == {1, 2}
    for epochs, run in runs.items():
        assert (run.record.status, run.record.world_size, run.record.deviations) == ("finished", 2, ()), (
            run.record.message
        )
        assert [epoch.samples for epoch in run.epochs] == [len(INPUTS)] * epochs
        assert [epoch.loss for epoch in run.epochs] == pytest.approx(losses_of_one_process()[:epochs], rel=1e-5)
        folder = run.paths.root
        assert {path.name for path in folder.glob("rank*")} == {"rank0", "rank1"}, "both have trained to the end"
        assert f"epochs={epochs}" in (folder / ".hydra" / "overrides.yaml").read_text()


def test_ranks_of_transformers_and_accelerate(tmp_path: Path, mortal: Mortal) -> None:
    run_program(mortal, *TORCHRUN, Path(__file__).with_name("framework_ranks.py"), tmp_path)
    trainer, by_hand = stored(tmp_path / "trainer"), stored(tmp_path / "accelerate")
    assert [epoch.samples for epoch in trainer.epochs] == [12, 12]
    assert all(epoch.loss is not None and epoch.loss > 0 for epoch in trainer.epochs)
    assert sum(interval.samples for interval in by_hand.epochs) == 12
    assert by_hand.record.summary == {"test_f1": 0.5} or by_hand.epochs[-1].metrics == {"test_f1": 0.5}
