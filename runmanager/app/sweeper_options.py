"""The sweeper's options, `hydra.sweeper.*`. Few imports: each run's process loads this module."""

from dataclasses import dataclass, field
from typing import Any

from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS

__all__ = ["CONTINUES", "GridSweeperOptions"]

CONTINUES = "hydra.sweeper.continues"
"""The option with which the sweeper names the run that a cell continues."""


@dataclass
class GridSweeperOptions:
    """Options of the grid sweeper.

    `params`: the axes of a preset. `sides`: the sides of a duel, each a line of overrides. `heartbeat_timeout`: seconds
    without a heartbeat after which a run on another host counts as gone. `multirun`: whether -m was given. `zip`: the
    names of axes that advance together, or several lists of them. `continues`: set by the sweeper itself for a cell
    that continues a finished run. The others are this application's flags.
    """

    _target_: str = "hydra_plugins.runmanager.GridSweeper"
    params: dict[str, str] = field(default_factory=dict)
    """Axes of a preset: a mapping of settings to lists of values."""
    sides: list[str] | None = None
    multirun: bool = True
    dry_run: bool = False
    quiet: bool = False
    yes: bool = False
    restore: bool = False
    heartbeat_timeout: float = SILENT_AFTER_SECONDS
    """Seconds without a heartbeat after which a run on another host counts as gone."""
    continues: str | None = None
    """Set by the sweeper itself, for a cell that continues a finished run with fewer epochs."""
    zip: Any = None
    """Names of axes that advance together, as [lr,batch_size], or several such lists."""
    points: str | None = None
    """A YAML, JSON or CSV file of points, each with a value of some settings; other axes multiply them."""
    exclude: str | None = None
    """A condition, as in `table --where`; cells that meet it are left out."""
    notify: str | None = None
    """Where apprise sends a message when the sweep ends: a URL."""
    save: str | None = None
    """Name of a preset in conf/experiment of the current folder that keeps this grid."""
    tune: Any = None
    """Set by `runmanager tune`: what the race of settings is asked for."""
