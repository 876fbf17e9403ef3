"""A training of a Trainer of Transformers with delays in its datasets and its model, for `benchmarks.phase_truth`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from benchmarks.phase_truth import InjectedDelays
from runmanager.integrations.transformers import RunManagerCallback
from runmanager.records.run.run_record import EpochRecord

__all__ = ["train"]

_NUM_BATCHES = 10


class _SlowDataset(Dataset[Any]):
    """Samples whose reading is delayed in `phase`; a batch is one of them."""

    def __init__(self, delays: InjectedDelays, phase: str) -> None:
        self._delays = delays
        self._phase = phase

    def __len__(self) -> int:
        return _NUM_BATCHES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        self._delays.wait(self._phase)
        return {"inputs": torch.ones(8), "labels": torch.tensor(0)}


class _SlowModel(torch.nn.Module):
    def __init__(self, delays: InjectedDelays) -> None:
        super().__init__()
        self._delays = delays
        self.network = torch.nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self._delays.wait("compute" if self.training else "eval")
        scores = self.network(inputs)
        return {"loss": F.cross_entropy(scores, labels), "logits": scores}


class _Accounts(TrainerCallback):
    """Keeps the delays of each epoch, at the end of its evaluation."""

    def __init__(self, delays: InjectedDelays) -> None:
        self.spent: list[dict[str, float]] = []
        self._delays = delays

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.spent.append(self._delays.take())


def train(
    folder: Path, delays: InjectedDelays, *, num_epochs: int, device: str
) -> tuple[Sequence[dict[str, float]], Sequence[EpochRecord]]:
    """Train a tiny model; return the delays and the record of each epoch."""
    callback, accounts = RunManagerCallback(folder), _Accounts(delays)
    arguments = TrainingArguments(
        output_dir=str(folder.with_name("checkpoints")),
        num_train_epochs=num_epochs,
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        eval_strategy="epoch",
        report_to=[],
        save_strategy="no",
        use_cpu=device == "cpu",
    )
    datasets = (_SlowDataset(delays, phase) for phase in ("data", "eval"))
    Trainer(_SlowModel(delays), arguments, None, *datasets, callbacks=[callback, accounts]).train()
    assert callback.run is not None
    history = list(callback.run.history)
    callback.run.end()
    return accounts.spent, history
