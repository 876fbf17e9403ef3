"""A plain Hydra application whose task returns immediately; it uses only this package's launcher.

python -m benchmarks.small_application -m lr=0.1,0.2 hydra/launcher=local
"""

from dataclasses import dataclass
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore

from runmanager.launching.hydra_launcher import register


@dataclass
class Settings:
    """Settings of the application."""

    lr: float = 0.1
    batch_size: int = 100
    seed: int = 0


register(preload=())
ConfigStore.instance().store(name="small", node=Settings)


@hydra.main(version_base="1.3", config_path=None, config_name="small")
def train(cfg: Any) -> None:
    """Return immediately."""


if __name__ == "__main__":
    train()
