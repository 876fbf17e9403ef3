"""A training in two processes on the CPU; each leaves a file when its training is over."""

import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from runmanager.integrations.lightning import RunManagerLogger

INPUTS = torch.arange(16.0).view(8, 2) / 16
BATCH = 4  # of both ranks
NUM_EPOCHS = 2


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Linear(2, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = self.net(batch[0]).square().mean()
        self.log("spread", batch[0].mean(), on_step=False, on_epoch=True)  # each rank's own
        return loss

    def train_dataloader(self) -> DataLoader[Any]:
        data = TensorDataset(INPUTS)
        own = DistributedSampler(data, 2, self.global_rank, shuffle=False)
        return DataLoader(data, BATCH // 2, sampler=own)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=NUM_EPOCHS,
        logger=RunManagerLogger(folder / "sweep"),
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=folder,
        use_distributed_sampler=False,  # which would shuffle
    )
    trainer.fit(Module())
    (folder / f"rank{trainer.global_rank}").touch()
