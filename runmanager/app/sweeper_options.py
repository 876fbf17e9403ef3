"""The sweeper's options, `hydra.sweeper.*`. Few imports: each run's process loads this module."""

from dataclasses import dataclass, field
from typing import Any

from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS

__all__ = ["CONTINUES", "RUN_NAME", "GridSweeperOptions"]

CONTINUES = "hydra.sweeper.continues"
"""The option with which the sweeper names the folder of the run that a cell continues."""

RUN_NAME = "hydra.sweeper.run_name"
"""The option with which the sweeper names a cell's run."""


@dataclass
class GridSweeperOptions:
    """Options of the grid sweeper.

    `params`: the axes of a preset. `sides`: the sides of a duel, each a line of overrides. `heartbeat_timeout`: seconds
    without a heartbeat after which a run on another host counts as gone. `multirun`: whether -m was given. `zip`: the
    names of axes that advance together, or several lists of them. `continues`: set by the sweeper itself for a cell
    that continues a finished run; so is `run_name`. The others are this application's flags.
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
    run_name: str | None = None
    """Set by the sweeper itself: the name of a cell's run."""
    zip: Any = None
    """Names of axes that advance together, as [lr,batch_size], or several such lists."""
    points: str | None = None
    """A YAML, JSON or CSV file of points, each with a value of some settings; other axes multiply them."""
    exclude: str | None = None
    """A condition, as in `table --where`; cells that meet it are left out."""
    notify: str | None = None
    """Where apprise sends a message when the sweep ends: a URL."""
    secrets: list[str] = field(default_factory=list)
    """Further settings whose text is masked in all that is written or printed, besides api_key, password and others."""
    save: str | None = None
    """Name of a preset in conf/experiment of the current folder that keeps this grid."""
    tune: Any = None
    """Set by `runmanager tune`: what the race of settings is asked for."""
