"""A Hydra application whose task returns immediately. It does not import this package.

python -m benchmarks.small_application -m lr=0.1,0.2 hydra/sweeper=runmanager
"""

from dataclasses import dataclass
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore


@dataclass
class Settings:
    """Settings of the application."""

    lr: float = 0.1
    batch_size: int = 100
    seed: int = 0


ConfigStore.instance().store(name="small", node=Settings)


@hydra.main(version_base="1.3", config_path=None, config_name="small")
def train(cfg: Any) -> float:
    """Return immediately."""
    return float(cfg.lr)


if __name__ == "__main__":
    train()
