"""A Hydra application that trains in two processes, which Lightning starts from each cell."""

from pathlib import Path
from typing import Any

import hydra
import lightning.pytorch as lightning
from hydra.core.hydra_config import HydraConfig
from lightning_ranks import Module

from runmanager.integrations.lightning import RunManagerLogger


@hydra.main(version_base="1.3", config_path=None)
def main(cfg: Any) -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=cfg.epochs,
        logger=RunManagerLogger(),
        enable_checkpointing=False,
        enable_progress_bar=False,
        use_distributed_sampler=False,  # which would shuffle
    )
    trainer.fit(Module())
    Path(HydraConfig.get().runtime.output_dir, f"rank{trainer.global_rank}").touch()
    trainer.strategy.barrier()  # the end of the cell's own process is the end of all


if __name__ == "__main__":
    main()
