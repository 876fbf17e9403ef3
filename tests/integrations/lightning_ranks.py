"""A training in two processes on the CPU; each leaves a file when its training is over."""

import sys
from pathlib import Path

import lightning.pytorch as lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from runmanager.integrations.lightning import RunManagerLogger


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(2, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = self.net(batch[0]).mean()
        self.log("train_loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        logger=RunManagerLogger(folder / "sweep"),
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=folder,
    )
    trainer.fit(Module(), DataLoader(TensorDataset(torch.ones(8, 2)), 2))
    (folder / f"rank{trainer.global_rank}").touch()
