"""The seam between the driver of a sweep and what the sweep runs.

Planning, launching, recording, resuming, showing and comparing know a program by this protocol alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

import msgspec

from runmanager.launching.launcher import CellLauncher
from runmanager.launching.plan import RERUN_CHANGED, Cell, PlannedRun, Resume, derived_settings
from runmanager.launching.work import Work
from runmanager.records.files.paths import RunPaths, SweepPaths, storage_faults
from runmanager.records.run.run_record import RunRecord
from runmanager.training.options.groups import PairedOptions
from runmanager.validation import fault


@dataclass(frozen=True)
class Storage:
    """Where a sweep is stored, and what a rerun does with what is stored there.

    `name` is the sweep's folder under `output_root`; None stands for a new dated one. `rerun_with` is how a command
    asks for `rerun_changed`, `restore_with` how for cells that were removed.
    """

    name: str | None = None
    output_root: str = "outputs"
    resume: Resume = Resume.AUTO
    rerun_changed: bool = False
    rerun_with: str = RERUN_CHANGED
    restore_with: str = "--restore"

    def faults(self, key: Callable[[str], str]) -> list[str]:
        """Faults of a user's choice; `key` is how the user names a field: `name` is `--name` in one command."""
        name = self.name
        faults = storage_faults(name, self.output_root, key)
        if name is None and (self.resume is Resume.MUST or self.rerun_changed):
            why = f"`{key('rerun_changed')}`" if self.rerun_changed else f"`{key('resume')}` of must"
            faults.append(fault(key("name"), f"be given with {why}", "none", "only named sweeps can be resumed"))
        if self.rerun_changed and self.resume is Resume.NEVER:
            faults.append(
                fault(key("rerun_changed"), f"be left out with `{key('resume')}` of never", "both", "give one of them")
            )
        return faults


@dataclass(frozen=True)
class CellGrid:
    """The cells of a command in order, composed and checked.

    `axes`: the values of each varying setting. `sides`: the settings in which the sides of a duel differ. `paired`: the
    measurement in which all cells take turns, if they do. `in_epochs`: the signatures of the cells whose turns are
    whole epochs. `notes` are printed before the first run. `default_device`: see `SweepRecord`.
    `libraries` are the versions that the cells will run with, where they are not those of this process. `code_folder`:
    what the names of the cells' code files are relative to, where that is not the current folder. `extension_obstacle`:
    what keeps a cell from continuing a finished run with fewer epochs, empty if nothing does; without it all cells
    start from their first epoch. `defaults`: see `SweepRecord`. `seed_names`: globs of settings that are seeds besides
    those of the usual names, all of which some cell has.
    """

    cells: Sequence[Cell]
    axes: dict[str, list[Any]]
    storage: Storage
    sides: Sequence[str] = ()
    paired: PairedOptions | None = None
    in_epochs: frozenset[str] = frozenset()
    notes: Sequence[str] = ()
    default_device: str | msgspec.UnsetType | None = msgspec.UNSET
    libraries: Mapping[str, str] | None = None
    code_folder: str | None = None
    extension_obstacle: Callable[[Cell, RunRecord], str] | None = None
    defaults: Mapping[str, Any] | None = None
    seed_names: Sequence[str] = ()

    @cached_property
    def derived(self) -> frozenset[str]:
        """The settings that follow from others in all cells (see `SweepRecord`)."""
        return derived_settings(self.cells, self.axes)


class Can(StrEnum):
    """What the cells of a program can do, where the driver does something else without it."""

    FIND_DEVICES = "find devices"  # by torch; else the cell's supervisor looks for its device, which has no torch
    STOP_AFTER_EPOCH = "stop after epoch"  # when they are asked to stop; else most end at once


class Program(Protocol):
    """What a sweep runs: how its cells come from a command's words, and the work of a cell's process.

    The driver calls the methods in this order; `compose` may be called without `count_cells`, and again for cells that
    a search asks for.
    """

    can: frozenset[Can] = frozenset()

    def count_cells(self) -> int:
        """Return the number of cells without composing any. Raises `ConfigurationError`."""
        ...

    def get_ready(self, launcher: CellLauncher, *, num_cells: int) -> None:
        """Start early what takes time, as the imports that cells need."""
        ...

    def compose(self, words: Sequence[str] | None = None) -> CellGrid:
        """Compose, check, sign and name every cell: of the command, or of these words in place of its settings.

        A cell says what is known of it before it runs: its device, its number of epochs, the settings that do not
        count. Raises `ConfigurationError` with every fault of every cell.
        """
        ...

    def can_continue(self, run: RunPaths) -> bool:
        """Whether a killed run continues from what is in its folder. Otherwise its files are moved to attempts/."""
        ...

    def lacks(self, run: PlannedRun, *, is_again: bool = False) -> str:
        """Return what a run that was broken off has not to resume from, as a line; empty where it lacks nothing.

        `is_again` as of `work`.
        """
        return ""

    def check_capacity(
        self, launcher: CellLauncher, batches: Sequence[Sequence[PlannedRun]], *, take_turns: bool = False
    ) -> None:
        """Raise `ConfigurationError` if the host lacks cores or memory for the runs at once, where the need is known.

        `batches`: the runs of each call of the launcher. If they `take_turns`, a whole batch runs at once.
        """
        return None

    def check(
        self, launcher: CellLauncher, to_run: Sequence[PlannedRun], *, needs_all: bool, is_dry_run: bool = False
    ) -> None:
        """Check what composing could not, just before the first run; make ready what all runs need, but for a dry run.

        Raises `ConfigurationError` with every fault. A missing device is one only if the command `needs_all` cells.
        """
        ...

    def work(self, launcher: Any, run: PlannedRun, sweep: SweepPaths, *, key: int, is_again: bool) -> Work:
        """Return the work of the run's process under `launcher`, one of ours.

        `key` identifies the job in the launcher. `is_again`: this command has begun the run before, and now continues
        it as a later command would.
        """
        ...

    def hydra_overrides(self, run: PlannedRun, sweep: SweepPaths) -> list[str]:
        """Return the overrides that make the run's configuration, for another launcher of Hydra.

        Empty for a program without such a configuration, which only our launchers run.
        """
        return []
