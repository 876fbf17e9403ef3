"""The comparison: one row a matched pair, with its speedup, its interval, a verdict, and what stands against it."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.store import StoredRun, SweepContents
from runmanager.records.sweep import SweepRecord
from runmanager.results.cells import Cell, Cells, gather_cells
from runmanager.results.columns import COMPARISON_COLUMNS, MISSING, Table, column_of
from runmanager.results.contention import contention
from runmanager.results.pairing import Axis, Pair, find_axis, pair_cells, usual_baseline
from runmanager.results.sides import Side, differences, label_of, must_agree, should_agree, throughput
from runmanager.results.statistics import Interval, speedup_interval
from runmanager.results.table import damage_notes

__all__ = ["CONTENDED", "DIFFERENT", "CompareOptions", "compare", "verdict"]

FASTER, SLOWER, NO_DIFFERENCE, NOT_MEASURED = "faster", "slower", "no difference", "not measured"
DIFFERENT = (FASTER, SLOWER)
CONTENDED = "contended:"

_SHOWN = (
    *("candidate", "baseline", "speedup", "ci_low", "ci_high", "verdict"),
    *("baseline_samples_per_second", "candidate_samples_per_second", "reason"),
)
_LEGEND = (
    "The speedup is candidate / baseline, of the median samples per second over measured epochs (warm-up does not "
    f"count), with its 95% bootstrap interval. {MISSING} is not measured."
)
_Causes = Mapping[Path, tuple[str, ...] | None]


@dataclass(frozen=True)
class CompareOptions:
    """How runs are compared.

    `axis` is the compared setting or group, `baseline` its value to compare against (None: `cpu` for `device`, else
    the first given). `drift` is the share by which runs alone drift: with fewer than `min_runs` runs a side, a
    difference must exceed it; `paired_drift` is the same where both sides were measured interleaved. Below
    `min_epochs` measured epochs a side nothing is said.
    """

    axis: str = "device"
    baseline: Any = None
    drift: float = 0.10
    paired_drift: float = 0.01
    min_epochs: int = 5
    min_runs: int = 5

    def faults(self) -> list[str]:
        """What is wrong with these options, one readable line each."""
        shares = [
            f"`compare.{name}` must be at least 0 and below 1, got {value}; 0.1 means 10%."
            for name, value in (("drift", self.drift), ("paired_drift", self.paired_drift))
            if not 0 <= value < 1
        ]
        counts = [
            f"`compare.{name}` must be at least 1, got {value}."
            for name, value in (("min_epochs", self.min_epochs), ("min_runs", self.min_runs))
            if value < 1
        ]
        return shares + counts


def compare(sweep: SweepContents, plan: SweepRecord | None, options: CompareOptions | None = None) -> Table:
    """The rows of comparison.csv: each value of the axis against the baseline, all other settings but the seed equal.

    Speedup is candidate throughput / baseline throughput. Runs that differ in the seed alone are one side. A pair
    that cannot be compared is a row too: `not measured`, with its reason.

    Raises `UsageError` for an axis or a baseline that the sweep does not have, and for options that cannot be.
    """
    options = options or CompareOptions()
    if faults := options.faults():
        raise UsageError("\n".join(faults))
    cells = _in_order_of_plan(gather_cells(sweep, plan), plan)
    axis = find_axis(cells, options.axis)
    baseline = _baseline(axis, options)
    shared_host = {run.paths.root: causes for run, causes in zip(sweep.runs, contention(sweep.runs), strict=True)}
    rows = [_row(cells, axis, baseline, pair, shared_host, options) for pair in pair_cells(cells, axis, baseline)]
    matched = [name for name in cells.columns if name not in axis.members and name != "seed"]
    settings = tuple(column_of(name) for name in matched)
    varying = [column_of(name) for name in matched if name in cells.varying]
    return Table(
        columns=[*settings, *COMPARISON_COLUMNS],
        rows=rows,
        settings=settings,
        shown=(*varying, *_SHOWN),
        notes=(*_nothing_to_compare(axis, rows), *damage_notes(sweep)),
        legend=_LEGEND,
    )


def verdict(interval: Interval, *, tolerance: float) -> str:
    """What an interval of the speedup says: a difference only where it lies wholly outside 1 ± `tolerance`."""
    if interval.low > 1 + tolerance:
        return FASTER
    return SLOWER if interval.high < 1 - tolerance else NO_DIFFERENCE


def _in_order_of_plan(cells: Cells, plan: SweepRecord | None) -> Cells:
    """The same cells as they were given, so that the first value of an axis is the first one asked for."""
    if plan is None:
        return cells
    places = {signature: place for place, signature in enumerate(plan.cells)}
    ordered = sorted(cells.cells, key=lambda cell: places.get(cell.signature, len(places)))
    return dataclasses.replace(cells, cells=ordered)


def _baseline(axis: Axis, options: CompareOptions) -> int:
    if options.baseline is not None:
        return axis.index(options.baseline)
    return usual_baseline(axis)


def _nothing_to_compare(axis: Axis, rows: list[dict[str, Any]]) -> list[str]:
    if rows:
        return []
    values = f"every run has {axis.name}={axis.values[0]}" if axis.values else "there are no runs"
    return [f"Nothing to compare: {values}."]


def _row(
    cells: Cells, axis: Axis, baseline: int, pair: Pair, shared_host: _Causes, options: CompareOptions
) -> dict[str, Any]:
    first = axis.values[baseline]
    sides = [
        Side(label_of(axis.name, _said(value)), members, _are_paired(cells, members))
        for value, members in ((first, pair.baseline_cells), (pair.candidate, pair.candidate_cells))
    ]
    row = {column_of(name): value for name, value in pair.settings.items()}
    row |= dict.fromkeys(COMPARISON_COLUMNS)
    row |= {"axis": axis.name, "baseline": _said(first), "candidate": _said(pair.candidate)}
    return row | _judged(sides[0], sides[1], shared_host, options)


def _said(value: Any) -> Any:
    """A value of the axis as a field: a setting that is set to nothing is a side, not a missing value."""
    return "null" if value is None else value


def _are_paired(cells: Cells, members: Sequence[Cell]) -> bool:
    asked = [(cells.value(cell, "measure.name"), cells.value(cell, "measure")) for cell in members]
    return bool(asked) and all("paired" in names for names in asked)


def _judged(baseline: Side, candidate: Side, shared_host: _Causes, options: CompareOptions) -> dict[str, Any]:
    """The measured columns of a row, its verdict and its reason."""
    rates = baseline.throughputs, candidate.throughputs
    num_epochs = [sum(map(len, side)) for side in rates]
    against = _obstacles(baseline, candidate, num_epochs, options)
    remarks = _remarks(baseline, candidate)
    row: dict[str, Any] = {
        "baseline_samples_per_second": throughput(rates[0]),
        "candidate_samples_per_second": throughput(rates[1]),
        "verdict": NOT_MEASURED,
        "baseline_epochs": num_epochs[0],
        "candidate_epochs": num_epochs[1],
    }
    if not against:
        estimate = speedup_interval(*rates)
        tolerance, why = _tolerance(baseline, candidate, options)
        row |= {"speedup": estimate.speedup, "ci_low": estimate.low, "ci_high": estimate.high}
        row["verdict"] = verdict(estimate.interval, tolerance=tolerance)
        remarks = [*why, *remarks]
    reason = "; ".join([*_contended(baseline, candidate, shared_host), *against, *remarks])
    return row | {"reason": reason or None}


def _obstacles(baseline: Side, candidate: Side, num_epochs: list[int], options: CompareOptions) -> list[str]:
    """Why the two sides cannot be compared; nothing where they can."""
    sides = baseline, candidate
    if unfinished := [side for side in sides if not side.finished]:
        return [f"{side.label}: {side.state}" for side in unfinished]
    against = differences(sides, must_agree)
    if min(num_epochs) < options.min_epochs:
        counts = ", ".join(f"{count} of {side.label}" for side, count in zip(sides, num_epochs, strict=True))
        against.append(f"too few epochs: {counts} measured, {options.min_epochs} needed")
    return against


def _tolerance(baseline: Side, candidate: Side, options: CompareOptions) -> tuple[float, list[str]]:
    """The share around 1 that the interval must leave, and why."""
    runs = [len(side.throughputs) for side in (baseline, candidate)]
    if min(runs) >= options.min_runs:
        return 0.0, []
    paired = baseline.paired and candidate.paired
    tolerance = options.paired_drift if paired else options.drift
    counts = f"{runs[0]} of {baseline.label}, {runs[1]} of {candidate.label}"
    return tolerance, [
        f"fewer than {options.min_runs} runs a side ({counts}): the interval knows only the noise between epochs, "
        f"not between runs, so a difference must lie outside 1 ± {tolerance * 100:g}%"
    ]


def _remarks(baseline: Side, candidate: Side) -> list[str]:
    """What a reader must know, though it forbids nothing."""
    sides = baseline, candidate
    if not all(side.finished for side in sides):
        return []
    partial = [f"{side.label}: {side.state}" for side in sides if len(side.finished) < len(side.cells)]
    dirty = [side.label for side in sides if any(run.record.environment.commit_clean is False for run in side.finished)]
    uncommitted = [f"uncommitted changes: {', '.join(dirty)}"] if dirty else []
    # One side is one device: seeds that landed on two kinds of GPU are no repetitions of each other.
    devices = [
        difference
        for side in sides
        for difference in differences([side], lambda environment: {"device": environment.device_name})
    ]
    return [*differences(sides, should_agree), *devices, *uncommitted, *partial]


def _contended(baseline: Side, candidate: Side, shared_host: _Causes) -> list[str]:
    """Empty, or one sentence that begins with `contended:`: which side shared its host with what."""
    met: dict[str, list[str]] = {}
    for side in (baseline, candidate):
        runs = side.finished or [cell.stored for cell in side.cells if cell.stored is not None]
        for cause in _causes(runs, shared_host):
            met.setdefault(cause, []).append(side.label)
    if not met:
        return []
    return [f"{CONTENDED} " + ", ".join(f"{' and '.join(labels)} met {cause}" for cause, labels in met.items())]


def _causes(runs: list[StoredRun], shared_host: _Causes) -> list[str]:
    return list(dict.fromkeys(cause for run in runs for cause in shared_host[run.paths.root] or ()))
