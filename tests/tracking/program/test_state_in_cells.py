"""`start_run(state=…)`: killed loops by steps and killed cells continue where their last record ended."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from runmanager.records.files.paths import RunPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_epochs, read_run
from runmanager.records.storage.run_folder import RunFolder

from ..conftest import stored_runs
from .programs import run_program

BY_STEPS = """
import os, signal, sys, torch, runmanager, warnings
from torch import nn
torch.manual_seed(0)
model, auxiliary = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)), nn.Linear(2, 2)
optimizer = torch.optim.Adam([*model.parameters(), *auxiliary.parameters()], lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
data = torch.randn(40, 5, 4, generator=torch.Generator().manual_seed(1))
state = {"auxiliary": auxiliary, "scheduler": scheduler}
way, dies_at = sys.argv[1], int(sys.argv[2])
if way == "passes":
    warnings.simplefilter("ignore")
    from torchdata.stateful_dataloader import StatefulDataLoader
    generator = torch.Generator().manual_seed(2)
    state["loader"] = loader = StatefulDataLoader(data[:14].flatten(0, 1), 5, shuffle=True, generator=generator)
params = {"way": way}

def batches():
    while way == "passes":  # of 14 batches each
        yield from run.batches(loader)
    yield from data[run.num_steps :] if way == "by_hand" else run.batches(data[run.num_steps :])

run = runmanager.start_run(model, params=params, optimizer=optimizer, state=state, root="sweep", record_every=4)
if run.is_resumed and way != "by_hand":
    torch.rand(7)  # what a program draws before its loop does not count
with run:
    run.log(begun_at=run.num_steps, reduce="sum")
    for number, batch in zip(range(run.num_steps + 1, 41), batches()):
        loss = auxiliary(model(batch)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if number == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        run.track(loss, samples=5)
        run.log(step_loss=loss, reduce="max")
        if number % 4 == 0:
            with run.evaluating():
                run.log(val_norm=model[0].weight.detach().norm())
torch.save([model.state_dict(), auxiliary.state_dict(), scheduler.state_dict()], sys.argv[3])
"""


def what_was_recorded(folder: Path) -> list[Any]:
    return [(each.epoch, each.loss, each.samples, each.metrics or None) for each in read_epochs(RunPaths(folder))]


@pytest.mark.parametrize("way", ["batches", "by_hand", "passes"])
def test_a_killed_loop_by_steps_continues_bit_equal(tmp_path: Path, way: str) -> None:
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    for folder in (whole, parted):
        folder.mkdir()
    run_program(whole, BY_STEPS, way, "0", str(tmp_path / "whole.pt"))
    for dies_at in (6, 9, 27):
        assert run_program(parted, BY_STEPS, way, str(dies_at), "", status=-signal.SIGKILL)
    run_program(parted, BY_STEPS, way, "0", str(tmp_path / "parted.pt"))

    (a,), (b,) = stored_runs(whole / "sweep"), stored_runs(parted / "sweep")
    assert b.record.attempt == 4
    recorded = [what_was_recorded(each.paths.root) for each in (a, b)]
    assert [(each.record.summary or {})["begun_at"] for each in (a, b)] == [0, 4 + 8 + 24]
    events = EventAccumulator(str(b.paths.root)).Reload()
    assert [each.step for each in events.Scalars("step/begun_at")] == [1, 2, 3, 4]
    assert way == "by_hand" or [each.step for each in events.Scalars("step/step_loss")] == list(range(1, 41))
    if way == "by_hand":  # what is logged after a record's last step belongs to the next one, and may die with it
        recorded = [[epoch[:3] for epoch in epochs] for epochs in recorded]
    assert recorded[0] == recorded[1]
    weights = [torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("whole", "parted")]
    assert json.dumps(weights[0], default=torch.Tensor.tolist) == json.dumps(weights[1], default=torch.Tensor.tolist)


def test_a_killed_cell_continues_from_its_checkpoint_and_a_damaged_one_begins_again(
    tmp_path: Path, cell: RunFolder
) -> None:
    variables = {"RUNMANAGER_RUN": str(cell.paths.root)}
    run_program(tmp_path, BY_STEPS, "batches", "10", "", status=-signal.SIGKILL, **variables)
    assert [each.epoch for each in read_epochs(cell.paths)] == [4, 8]
    first = cell.paths.epochs.read_bytes()

    begin_attempt(cell, 2)
    run_program(tmp_path, BY_STEPS, "batches", "15", "", status=-signal.SIGKILL, **variables)
    assert cell.paths.epochs.read_bytes().startswith(first)
    assert [each.epoch for each in read_epochs(cell.paths)] == [4, 8, 12]

    cell.paths.checkpoint.write_bytes(b"torn")
    begin_attempt(cell, 3)
    done = run_program(tmp_path, BY_STEPS, "batches", "0", os.devnull, **variables)
    assert "begun again from the start: the checkpoint is damaged" in done.stdout + done.stderr
    assert [each.epoch for each in read_epochs(cell.paths)] == list(range(4, 41, 4))
    kept = cell.paths.attempts / "2"
    assert (kept / "checkpoint.pt").read_bytes() == b"torn" and (kept / "epochs.jsonl").exists()
    record = read_run(cell.paths).record
    assert record.summary == {"begun_at": 0.0}, "an attempt that begins again has no values of those before"
    assert record.interval == "steps" and any("begun again" in note for note in record.notes)


def begin_attempt(cell: RunFolder, number: int) -> None:
    """What a supervisor writes before its program runs again."""
    cell.write(status=Status.CRASHED, attempt=number)
    cell.write(status=Status.RUNNING)
