"""The groups of cells that take turns under `measure=paired`, and which of their runs are measured again."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from runmanager.errors import ConfigurationError, UsageError
from runmanager.launching.launcher import CellLauncher, Trait
from runmanager.launching.plan import Action, PlannedRun, plan_of
from runmanager.launching.plan import Cell as CellOfGrid
from runmanager.race.sessions import DuelAddress, PairedSessions, RemoteSessions, Sides, duel_address
from runmanager.records.run.run_record import WARMUP_TURNS
from runmanager.records.settings.grid import is_seed, seeds_among
from runmanager.results.compare.cell_pairing import JOINT, default_baseline, find_axis, pair_cells
from runmanager.results.load.cells import Cell, Cells, independent_settings
from runmanager.results.stats.paired_speedup import MIN_ROUNDS
from runmanager.text import pluralize
from runmanager.training.options.groups import PairedOptions
from runmanager.validation import fault


@dataclass(frozen=True)
class Pairing:
    """The groups of a sweep's cells, each as the signatures of its sides, the baseline's first.

    With `duel` this sweep is one side of it: each cell is a group whose other side another process has. Without
    `options` whole runs are the turns.
    """

    options: PairedOptions | None
    groups: Sequence[Sides]
    duel: DuelAddress | None = None

    def batches(self, runs: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
        """Return the runs of each group; a group runs at the same time."""
        found = [_members(group, runs) for group in self.groups]
        return [batch for batch in found if batch]

    def sessions(self, batch: Sequence[PlannedRun]) -> PairedSessions | RemoteSessions:
        """Return the sessions of a batch."""
        if self.duel is not None:
            return RemoteSessions(self.duel, self.options)
        assert self.options is not None
        return PairedSessions(self.options, next(group for group in self.groups if _members(group, batch)))

    def with_partners(
        self, plan: Sequence[PlannedRun], predict_skipped: Callable[[Sequence[PlannedRun]], Sequence[PlannedRun]]
    ) -> list[PlannedRun]:
        """Return the plan in which finished runs are measured again if they would have no partner otherwise.

        That is so if another run of the group is to be run, or if the finished runs were not measured together.
        `predict_skipped` marks planned runs that will be skipped because their device is missing.
        """
        changed: dict[str, PlannedRun] = {}
        for group in self.groups:
            members = _members(group, plan)
            kept = [run for run in members if run.action is Action.KEEP]
            if not kept:
                continue
            if len(kept) < len(members):
                to_come = [run for run in members if run not in kept]
                is_alone = any(run.is_to_run for run in predict_skipped(to_come))
            else:
                sessions = {run.stored.session for run in kept if run.stored is not None}
                is_alone = (len(sessions) > 1 or None in sessions) and not any(run.why_not_measured for run in kept)
            if is_alone:
                changed |= {run.cell.signature: _measured_again(run) for run in kept}
        return [changed.get(run.cell.signature, run) for run in plan]


def _members(group: Sides, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    return [run for run in runs if any(run.cell.signature in side for side in group)]


def _measured_again(run: PlannedRun) -> PlannedRun:
    """Plan to measure a finished run again: from its checkpoint, or from the start without one."""
    if against := run.why_not_measured:
        return replace(run, why=f"{run.why}; takes no turns with what is run now: {against}")
    if run.paths.checkpoint.exists():
        return replace(run, action=Action.MEASURE, why=f"{run.why}; takes turns with what is run now")
    why = f"{run.why}; takes turns with what is run now, and left no checkpoint to start from"
    return replace(run, action=Action.START_AGAIN, why=why)


def infer_compared_axis(axes: Collection[str], sides: Sequence[str], seed_names: Sequence[str] = ()) -> str:
    """Return the axis that a paired sweep compares where `measure.axis` is not given.

    For a duel it is every setting of its `sides`. `seed_names`: see `CellGrid`. Raises `ConfigurationError` if it
    cannot be inferred.
    """
    if sides:
        return JOINT.join(sides)
    names = [key for key in axes if not is_seed(key, seed_names)]
    if "device" in names:
        return "device"
    if len(names) == 1:
        return names[0]
    way_out = "`device=cpu,cuda` compares these two"
    if not names:
        raise ConfigurationError([f"A sweep with `measure=paired` must have an axis, got none; {way_out}."])
    rule = "name which of the axes is compared with `measure=paired`"
    raise ConfigurationError([fault("measure.axis", rule, "null", f"it may be {' or '.join(names)}")])


def make_pairing(
    options: PairedOptions | None,
    cells: Sequence[CellOfGrid],
    launcher: CellLauncher,
    *,
    derived: Callable[[], Collection[str]],
    seed_names: Sequence[str],
) -> Pairing | None:
    """Group the cells of a sweep; None without `measure=paired`. Raises `ConfigurationError` if that is impossible.

    `derived` returns the settings that follow from others. `seed_names`: see `CellGrid`.
    """
    duel = duel_address()
    if options is None and duel is None:
        return None
    if Trait.HERE not in launcher.traits:
        way_out = "the runs take turns on one machine: use `hydra/launcher=local`"
        raise ConfigurationError([fault("measure", "be single with this launcher", "paired", way_out)])
    if launcher.options.workers != 1:
        way_out = "all runs of a comparison exist at once, and one works at a time"
        raise ConfigurationError(
            [fault("hydra.launcher.workers", "be 1 with `measure=paired`", launcher.options.workers, way_out)]
        )
    if duel is not None:
        for name in ("timeout", "stall_timeout"):  # a side does not see how long its runs wait
            if (value := getattr(launcher.options, name)) is not None:
                way_out = "leave it out, as each side waits for the other"
                raise ConfigurationError([fault(f"hydra.launcher.{name}", "be null in a duel", value, way_out)])
        return Pairing(options, [(frozenset({cell.signature}),) for cell in cells], duel)
    assert options is not None
    groups = _groups(cells, str(options.axis), derived(), seed_names)
    if not groups:
        way_out = "give it two values at least"
        raise ConfigurationError([fault(str(options.axis), "vary with `measure=paired`", "one value", way_out)])
    return Pairing(options, groups)


def pairing_notices(
    pairing: Pairing | None, cells: Sequence[CellOfGrid], *, in_epochs: Collection[str], is_duel: bool
) -> list[str]:
    """Return notices to print before the start: how long a duel takes, and how many epochs whole-epoch turns need.

    `in_epochs`: see `CellGrid`.
    """
    if pairing is None or pairing.options is None:
        return []
    notices, seconds = [], pairing.options.max_seconds
    if is_duel:
        epochs = pluralize(max(cell.epochs for cell in cells), "epoch")
        notices.append(
            f"Each side first trains {epochs}, which takes as long as it takes; then they take turns for "
            f"`measure.max_seconds`={seconds:g} at most."
        )
    max_members = max(len(frozenset().union(*group).intersection(in_epochs)) for group in pairing.groups)
    if num_epochs := max_members * (1 if pairing.duel is None else 2) * (MIN_ROUNDS + WARMUP_TURNS):
        notices.append(
            f"With `num_workers` above 0 a turn is a whole epoch. Each pair of processes needs {MIN_ROUNDS} rounds "
            f"after {WARMUP_TURNS} of warm-up, so {num_epochs} such epochs; `measure.max_seconds`={seconds:g} is "
            f"enough if one takes up to {seconds / num_epochs:.2g} s, and allows several pairs if it takes less. "
            "Otherwise raise it, or use num_workers=0, whose turns are short."
        )
    return notices


def _groups(grid: Sequence[CellOfGrid], name: str, derived: Collection[str], seed_names: Sequence[str]) -> list[Sides]:
    """The groups of cells that the comparison will have, the baseline's side first."""
    planned = [plan_of(cell) for cell in grid]
    cells = Cells(
        [Cell(each.name, each.signature, each.settings, None) for each in planned],
        {},
        independent_settings([each.settings for each in planned], derived),
        seeds=seeds_among({name for each in planned for name in each.settings}, seed_names),
    )
    try:
        axis = find_axis(cells, name, "measure.axis")
    except UsageError as error:
        raise ConfigurationError([str(error)]) from None
    groups: dict[str, list[frozenset[str]]] = {}
    for pair in pair_cells(cells, axis, default_baseline(axis)):
        sides = groups.setdefault(repr(pair.settings), [_signatures(pair.baseline_cells)])
        sides.append(_signatures(pair.candidate_cells))
    return [tuple(sides) for sides in groups.values()]


def _signatures(cells: Sequence[Cell]) -> frozenset[str]:
    return frozenset(cell.signature for cell in cells)
