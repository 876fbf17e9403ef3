"""The matched pairs of two sweeps: cells of equal settings, one sweep the baseline and the other the candidate."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.settings.signature import CHANGED_DEFAULTS
from runmanager.records.settings.values import hashable
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.cell_pairing import Axis, Pair, pair_cells
from runmanager.results.compare.comparison import compare_matches
from runmanager.results.compare.comparison_table import SWEEP_AXIS, CompareOptions, ComparisonTable, Side, label_of
from runmanager.results.compare.matched_pairs import Match, Matches, of_batch_sizes
from runmanager.results.load.cells import Cell, Cells, gather_cells, independent_settings
from runmanager.results.load.loader import read_results
from runmanager.results.metrics.metric import Metric
from runmanager.results.metrics.metric_lookup import find_metric
from runmanager.text import format_value, pluralize

_MAX_NAMED = 5
_ABSENT = object()


@dataclass(frozen=True)
class TwoSweeps:
    """Two sweeps as read, the baseline first; `names` tell them apart."""

    names: tuple[str, str]
    contents: tuple[SweepContents, SweepContents]
    plans: tuple[SweepRecord | None, SweepRecord | None]

    @property
    def together(self) -> SweepContents:
        """The runs and the damage of both, in the folder of the candidate."""
        baseline, candidate = self.contents
        return SweepContents(
            candidate.paths, [*baseline.runs, *candidate.runs], [*baseline.damaged, *candidate.damaged]
        )

    def compare(self, options: CompareOptions | None = None) -> ComparisonTable:
        """Compare the cells of equal settings: one row a pair, along the axis `sweep`.

        Commit, library versions, host and device may differ between the sweeps. They are what is compared, and each
        row's reason names them. A cell that only one sweep has is a row that is not measured.

        Raises `UsageError` for an axis or a baseline, invalid options, and sweeps without cells.
        """
        options = options or CompareOptions()
        return self.compare_matches(self.match(options), options)

    def compare_matches(self, matches: Matches, options: CompareOptions) -> ComparisonTable:
        """Compare pairs that `match` has found."""
        table = compare_matches(self.together, matches, options)
        return replace(table, notes=(*table.notes, *self._notes()))

    def match(self, options: CompareOptions) -> Matches:
        """Match the cells of equal settings. Raises what `compare` raises."""
        if options.axis is not None or options.baseline is not None:
            name = "--axis" if options.axis is not None else "--baseline"
            raise UsageError(f"`{name}` must be left out where two sweeps are compared; the first one is the baseline.")
        if faults := options.faults():
            raise UsageError("\n".join(faults))
        metric = find_metric(options.metric, self.together.runs, better=options.better, at=options.at)
        cells, axis = self._cells()
        pairs = [match for pair in pair_cells(cells, axis, 0) for match in _matches(pair, axis, cells, metric)]
        return Matches(cells, metric, [axis], pairs)

    def _cells(self) -> tuple[Cells, Axis]:
        """The cells of both sweeps with the settings that both have, and the axis between them."""
        gathered = [
            gather_cells(each.runs, each.damaged, plan) for each, plan in zip(self.contents, self.plans, strict=True)
        ]
        if not any(each.cells for each in gathered):
            raise UsageError(f"The sweeps {' and '.join(self.names)} must have cells to compare, got none.")
        choices = [name for name in gathered[0].choices if name in gathered[1].choices]
        left_out = {*self._of_one_sweep(gathered), *_of_other_defaults(gathered, self.names)}
        left_out |= {name for each in gathered for name in each.choices if name not in choices}
        cells: list[Cell] = []
        for each in gathered:
            for cell in each.cells:
                own = {name: value for name, value in {**each.shared, **cell.own}.items() if name not in left_out}
                cells.append(replace(cell, own=own))
        derived = frozenset.intersection(*(frozenset(plan.derived if plan else ()) for plan in self.plans))
        varying = independent_settings([cell.own for cell in cells], derived, choices=choices)
        axes = {name for each in gathered for name in each.axes}
        devices = {each.default_device for each in gathered}
        value_at = [at for at, each in enumerate(gathered) for _ in each.cells]
        axis = Axis(SWEEP_AXIS, frozenset(), self.names, value_at)
        device = devices.pop() if len(devices) == 1 else None
        seeds = list(dict.fromkeys(name for each in gathered for name in each.seeds))
        return Cells(cells, {}, varying, device, choices=choices, axes=axes, seeds=seeds), axis

    def _of_one_sweep(self, gathered: Sequence[Cells]) -> dict[str, str]:
        """Settings that one sweep does not know and that are the same in the whole other one, as text.

        Another version of a program may have added them.
        """
        settings = [[{**each.shared, **cell.own} for cell in each.cells] for each in gathered]
        found: dict[str, str] = {}
        for at, name in enumerate(self.names):
            others = {key for own in settings[1 - at] for key in own}.difference(gathered[1 - at].choices)
            mine = dict.fromkeys(key for own in settings[at] for key in own if key not in gathered[at].choices)
            for key in (key for key in mine if others and key not in others):
                if len({hashable(own.get(key)) for own in settings[at]}) == 1:
                    found[key] = f"{key}={format_value(settings[at][0].get(key))} ({name})"
        return found

    def _notes(self) -> list[str]:
        gathered = [
            gather_cells(each.runs, each.damaged, plan) for each, plan in zip(self.contents, self.plans, strict=True)
        ]
        notes = []
        if found := self._of_one_sweep(gathered):
            knows = "that only one of the sweeps knows"
            count = pluralize(len(found), f"setting {knows} is", f"settings {knows} are")
            notes.append(f"{count} not matched: {_first_of(found.values())}.")
        if changed := _of_other_defaults(gathered, self.names):
            has_changed = "whose default has changed"
            count = pluralize(len(changed), f"setting {has_changed} is", f"settings {has_changed} are")
            notes.append(f"{count} not matched: {_first_of(changed.values())}.")
        return notes


def _first_of(texts: Collection[str]) -> str:
    named = list(texts)[:_MAX_NAMED]
    return ", ".join([*named, f"and {len(texts) - len(named)} more"] if len(texts) > len(named) else named)


def _of_other_defaults(gathered: Sequence[Cells], names: Sequence[str]) -> dict[str, str]:
    """Settings that have an earlier default in the whole of one sweep and the present one in the other, as text.

    Only those that change nothing but the speed.
    """
    found: dict[str, str] = {}
    for name, change in CHANGED_DEFAULTS.items():
        if not change.same_results:
            continue
        values = [
            {hashable({**each.shared, **cell.own}.get(name, _ABSENT)) for cell in each.cells} for each in gathered
        ]
        before, now = {hashable(change.before)}, {hashable(change.now)}
        if values in ([before, now], [now, before]):
            shown = [change.before, change.now] if values[0] == before else [change.now, change.before]
            found[name] = " and ".join(
                f"{name}={format_value(value)} ({of})" for value, of in zip(shown, names, strict=True)
            )
    return found


def read_two_sweeps(baseline: SweepPaths, candidate: SweepPaths) -> TwoSweeps:
    """Read two sweeps. Raises `UsageError` where they are one."""
    if baseline.root.resolve() == candidate.root.resolve():
        raise UsageError(f"The two sweeps must be different, got {baseline.root} twice.")
    (first, first_plan), (second, second_plan) = read_results(baseline), read_results(candidate)
    names = baseline.name, candidate.name
    if baseline.name == candidate.name:
        names = str(baseline.root), str(candidate.root)
    return TwoSweeps(names, (first, second), (first_plan, second_plan))


def _matches(pair: Pair, axis: Axis, cells: Cells, metric: Metric) -> Iterator[Match]:
    members = pair.baseline_cells, pair.candidate_cells
    in_turns = all(_is_paired(cells, cell) for side in members for cell in side) and _have_sessions_in_common(members)
    for settings, of_size in of_batch_sizes(pair, metric):
        baseline, candidate = (
            Side(
                label_of(axis.name, name),
                of_side,
                of_size,
                paired=any(_is_paired(cells, cell) for cell in of_side),
                in_turns=in_turns,
                is_sweep=True,
                seeds=cells.seeds,
            )
            for name, of_side in zip(axis.values, members, strict=True)
        )
        yield Match(axis, settings, (axis.values[0], axis.values[1]), (baseline, candidate))


def _is_paired(cells: Cells, cell: Cell) -> bool:
    return "paired" in (cells.value(cell, "measure.name"), cells.value(cell, "measure"))


def _have_sessions_in_common(members: Sequence[Sequence[Cell]]) -> bool:
    """Whether processes of both sides took turns with each other."""
    sessions: list[set[Any]] = [
        {turn.session for cell in side if cell.stored is not None for turn in cell.stored.turns} for side in members
    ]
    return bool(set.intersection(*sessions))
