"""A training of Lightning with delays in its dataset, its module and a callback, for `benchmarks.phase_truth`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from benchmarks.phase_truth import InjectedDelays
from runmanager.integrations.lightning import RunManagerLogger
from runmanager.records.run.run_record import EpochRecord

__all__ = ["train"]

_NUM_BATCHES = 10


class _SlowDataset(Dataset[Any]):
    """Batches whose reading is delayed in `phase`."""

    def __init__(self, delays: InjectedDelays, phase: str) -> None:
        self._delays = delays
        self._phase = phase

    def __len__(self) -> int:
        return _NUM_BATCHES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self._delays.wait(self._phase)
        return torch.ones(4, 8), torch.zeros(4, dtype=torch.int64)


class _SlowModule(lightning.LightningModule):
    def __init__(self, delays: InjectedDelays) -> None:
        super().__init__()
        self._delays = delays
        self.network = torch.nn.Linear(8, 3)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        if self.trainer.training:
            self._delays.wait("transfer")
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self._delays.wait("compute")
        return F.cross_entropy(self.network(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._delays.wait("eval")
        self.log("val_loss", F.cross_entropy(self.network(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class _SlowCheckpoint(lightning.Callback):
    """Delays the end of each epoch, and then keeps the delays of that epoch."""

    def __init__(self, delays: InjectedDelays) -> None:
        self.spent: list[dict[str, float]] = []
        self._delays = delays

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        for _ in range(_NUM_BATCHES):  # long, as what the run itself does then is tracking too
            self._delays.wait("tracking")
        self.spent.append(self._delays.take())


def train(
    folder: Path, delays: InjectedDelays, *, num_epochs: int, device: str
) -> tuple[Sequence[dict[str, float]], Sequence[EpochRecord]]:
    """Train a tiny model; return the delays and the record of each epoch."""
    logger, checkpoint = RunManagerLogger(folder), _SlowCheckpoint(delays)
    trainer = lightning.Trainer(
        accelerator="gpu" if device.startswith("cuda") else device,
        devices=1,
        logger=logger,
        callbacks=[checkpoint],
        max_epochs=num_epochs,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        default_root_dir=folder,
        log_every_n_steps=1,
    )
    training, validation = (DataLoader(_SlowDataset(delays, phase), batch_size=None) for phase in ("data", "eval"))
    trainer.fit(_SlowModule(delays), training, validation)
    assert logger.run is not None
    history = list(logger.run.history)
    logger.run.end()
    return checkpoint.spent, history
