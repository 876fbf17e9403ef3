"""The bridge to Accelerate: real trainings with a real `Accelerator`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from runmanager.integrations.accelerate import RunManagerTracker
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep
from runmanager.tracking.program.current_run import end_current_run


@pytest.fixture(autouse=True)
def no_open_run() -> Iterator[None]:
    yield
    end_current_run()


def test_tracker_records_metrics_hyperparameters_and_the_phases_of_batches(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True, log_with=RunManagerTracker(tmp_path / "sweep"))
    accelerator.init_trackers("any", config={"lr": 0.5, "cache": tmp_path})
    network = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.ones_(network.weight)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    loader = DataLoader(torch.ones(10, 2), 4)
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    run = accelerator.get_tracker("runmanager", unwrap=True)
    for inputs in run.batches(loader):
        loss = network(inputs).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        run.track(loss, samples=len(inputs))
        accelerator.log({"train_loss": loss.item(), "state": "training"}, step=1)
    accelerator.log({"eval_loss": 0.5, "eval_accuracy": 0.9, "valid/f1": torch.tensor(0.25)})
    accelerator.end_training()

    (stored,) = read_sweep(SweepPaths(tmp_path / "sweep")).runs
    assert (stored.record.status, stored.record.interval) == ("finished", "steps")
    assert stored.record.config["lr"] == 0.5
    (interval,) = stored.epochs
    # Each step lowers both weights by 0.5, so the means are 2, 1 and 0 over 4, 4 and 2 samples.
    assert (interval.samples, interval.loss) == (10, pytest.approx((4 * 2 + 4 * 1) / 10))
    assert (interval.val_loss, interval.val_accuracy) == (0.5, 0.9)
    assert interval.metrics == {"train_loss": 0.0, "valid/f1": 0.25}
    assert interval.data_seconds > 0 and interval.compute_seconds > 0


def test_values_without_steps_are_the_summary(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True, log_with=RunManagerTracker(tmp_path / "sweep"))
    accelerator.init_trackers("any", config={})
    accelerator.log({"test_accuracy": 0.75})
    accelerator.end_training()
    accelerator.log({"late": 1.0})
    (stored,) = read_sweep(SweepPaths(tmp_path / "sweep")).runs
    assert (stored.record.status, stored.record.summary) == ("finished", {"test_accuracy": 0.75})
