"""The sweeper's options, `hydra.sweeper.*`. Few imports: each run's process loads this module."""

from dataclasses import dataclass, field

from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS

__all__ = ["GridSweeperOptions"]


@dataclass
class GridSweeperOptions:
    """Options of the grid sweeper.

    `params`: the axes of a preset. `sides`: the sides of a duel, each a line of overrides. `heartbeat_timeout`: seconds
    without a heartbeat after which a run on another host counts as gone. `multirun`: whether -m was given. The others
    are this application's flags.
    """

    _target_: str = "hydra_plugins.runmanager.GridSweeper"
    params: dict[str, str] = field(default_factory=dict)
    """Axes of a preset: a mapping of settings to lists of values."""
    sides: list[str] | None = None
    multirun: bool = True
    dry_run: bool = False
    quiet: bool = False
    yes: bool = False
    heartbeat_timeout: float = SILENT_AFTER_SECONDS
    """Seconds without a heartbeat after which a run on another host counts as gone."""
