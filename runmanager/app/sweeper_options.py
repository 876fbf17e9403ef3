"""What Hydra is told of the sweeper, `hydra.sweeper.*`. Light: each run's process reads it with its configuration."""

from dataclasses import dataclass, field

from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS

__all__ = ["GridSweeperOptions"]


@dataclass
class GridSweeperOptions:
    """`params`: the axes of a preset. `sides`: what stands against each other in a duel, each a line of overrides.

    `heartbeat_timeout`: seconds without a heartbeat after which a run on another host is taken for gone. The others are
    this application's flags, and `multirun` whether -m was given.
    """

    _target_: str = "hydra_plugins.runmanager.GridSweeper"
    params: dict[str, str] = field(default_factory=dict)
    sides: list[str] | None = None
    multirun: bool = True
    dry_run: bool = False
    quiet: bool = False
    yes: bool = False
    heartbeat_timeout: float = SILENT_AFTER_SECONDS
