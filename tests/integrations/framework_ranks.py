"""Trainings in the ranks that torchrun starts: a Trainer, and a loop with Accelerate, whose trackers rank 0 has."""

import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import runmanager


class Samples(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"inputs": torch.full((2,), index / 12)}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Linear(2, 1)

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.net(inputs).square().mean()}


def train_by_trainer(folder: Path) -> None:
    from transformers import Trainer, TrainingArguments

    from runmanager.integrations.transformers import RunManagerCallback

    arguments = TrainingArguments(
        output_dir=str(folder / "checkpoints"),
        per_device_train_batch_size=2,
        num_train_epochs=2,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
    )
    callback = RunManagerCallback(folder / "trainer")
    Trainer(Model(), arguments, train_dataset=Samples(), callbacks=[callback]).train()
    assert callback.run is not None
    callback.run.end()


def train_by_hand(folder: Path) -> None:
    from accelerate import Accelerator

    from runmanager.integrations.accelerate import RunManagerTracker

    accelerator = Accelerator(cpu=True, log_with=RunManagerTracker())
    network, loader = accelerator.prepare(Model(), DataLoader(Samples(), 2))
    with runmanager.start_run(network, params={"lr": 0.1}, root=folder / "accelerate") as run:
        accelerator.init_trackers("any")
        for batch in run.batches(loader):
            run.track(network(**batch)["loss"], samples=len(batch["inputs"]))
        accelerator.log({"test_f1": 0.5})


if __name__ == "__main__":
    for train in (train_by_trainer, train_by_hand):
        train(Path(sys.argv[1]))
