"""The roofline of a run: its work per second, relative to the measured peaks of its device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runmanager.records.host.gpus import DevicePeaks
from runmanager.records.run.run_record import RANK_0_ALONE, UNKNOWN_WORK, Measurements
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.matched_pairs import Matches
from runmanager.results.load.cells import gather_cells
from runmanager.results.metrics.metric import THROUGHPUT, unit_rate_metric
from runmanager.results.stats.descriptive import median
from runmanager.results.table_model.columns import MISSING, Row, Table, column_of, rate_name
from runmanager.results.table_model.formatting import with_unit_prefix

WorkKind = Literal["compute", "memory", "launch"]

_CACHED_BYTES = 2 * 2**20
"""Operations that touch fewer bytes on average use caches, for which the ceiling of copies is not valid."""
_CALIBRATE = "what a device can do at best is known where `runmanager doctor --calibrate` came before the run"


@dataclass(frozen=True)
class Work:
    """One kind of a step's work: FLOP of matrix products (`compute`), bytes (`memory`) or operations (`launch`).

    `per_second` is the rate of the run, `at_best` the measured ceiling of its device; None is unknown.
    """

    per_step: int
    per_second: float | None
    at_best: float | None

    @property
    def share(self) -> float | None:
        """The share of the ceiling. Above 1 the count is too high, as where bytes stay in caches."""
        return self.per_second / self.at_best if self.per_second and self.at_best else None


def work_of(run: StoredRun) -> dict[WorkKind, Work]:
    """Return each kind of counted work: that of a step, over the training part of measured epochs (or turns).

    Ceilings are used only if they were measured on the run's device; those of several ranks add up. That of copies is
    used only for operations that are too large for caches on average. Kinds whose count does not apply to the run's
    steps are left out.
    """
    facts = run.record.measurements
    ceilings = _ceilings_of(run)
    excluded = _kinds_counted_differently(run)
    steps = _steps_per_second(run)
    best: dict[WorkKind, tuple[int | None, float | None]] = {
        "compute": (facts.flop_per_step, ceilings.flops_per_second.get(facts.precision or "")),
        "memory": (facts.bytes_per_step, ceilings.copy_bytes_per_second if _is_uncached(facts) else None),
        "launch": (facts.operations_per_step, 1 / ceilings.dispatch_seconds if ceilings.dispatch_seconds else None),
    }
    devices = num_devices(run)
    return {
        kind: Work(amount, None if steps is None else amount * steps, at_best and at_best * devices)
        for kind, (amount, at_best) in best.items()
        if amount and kind not in excluded
    }


def num_devices(run: StoredRun) -> int:
    """Return the number of ranks whose samples are in the run's record."""
    return 1 if any(line.endswith(RANK_0_ALONE) for line in run.record.deviations) else run.world_size


def _kinds_counted_differently(run: StoredRun) -> set[WorkKind]:
    """Return the kinds of work that differ between the run's steps and the plain step on a whole batch that is counted.

    Compiled code has other operators, which read and write other bytes, and a captured step has one launch. Pieces of a
    batch have the same number of operators each, on data that stays in caches. Lower precisions halve the bytes.
    """
    settings = run.record.settings
    micro_batch = {**settings, **(run.record.measurements.chosen or {})}.get("micro_batch")
    if settings.get("compile") or micro_batch is not None or run.record.deviations:
        return {"memory", "launch"}
    kinds: set[WorkKind] = {"launch"} if settings.get("graphs") else set()
    return kinds | ({"memory"} if settings.get("precision") in ("bf16", "fp16") else set())


def full_batches(run: StoredRun) -> float | None:
    """Return the number of counted steps that an epoch's work is equal to; a smaller step counts as a fraction.

    None where unknown.
    """
    facts, last = run.record.measurements, run.epochs[-1] if run.epochs else None
    if facts.steps_per_epoch is None:
        return None
    if (step_unit := _step_unit(facts)) is not None and last is not None:
        unit, in_step = step_unit
        count = last.known_samples if unit == "samples" else (last.units or {}).get(unit, 0)
        return None if count is None else count / in_step
    size, steps, samples = run.record.config.get("batch_size"), facts.steps_per_epoch, last.samples if last else None
    return min(float(steps), samples / size) if isinstance(size, int) and size > 0 and samples else float(steps)


def _step_unit(facts: Measurements) -> tuple[str, float] | None:
    """Return the unit that the work of a step depends on, and how many of it a counted step has."""
    known = [(unit, in_step) for unit, in_step in (facts.step_units or {}).items() if in_step > 0]
    return known[0] if len(known) == 1 else None


def _steps_per_second(run: StoredRun) -> float | None:
    """Return the counted steps a second, by the run's median throughput of the unit that its work depends on."""
    facts = run.record.measurements
    if (step_unit := _step_unit(facts)) is not None:
        unit, in_step = step_unit
        rate = median((THROUGHPUT if unit == "samples" else unit_rate_metric(rate_name(unit), unit)).values(run))
        return None if rate is None else rate / in_step
    rate, steps = median(THROUGHPUT.values(run)), full_batches(run)
    samples = run.epochs[-1].samples if run.epochs else None
    return None if rate is None or steps is None or not samples else rate * steps / samples


def _is_uncached(facts: Measurements) -> bool:
    moved, operations = facts.bytes_per_step, facts.operations_per_step
    return bool(moved and operations and moved / operations >= _CACHED_BYTES)


def _ceilings_of(run: StoredRun) -> DevicePeaks:
    """Return the ceilings of the run's device, which on a CPU depend on the threads; empty where they are unknown."""
    environment, known = run.record.environment, run.record.measurements.ceilings
    unknown = DevicePeaks(device_name=environment.device_name or "")
    if known is None or known.device_name != environment.device_name:
        return unknown
    return known if known.threads in (None, environment.torch_threads) else unknown


def roofline_lines(matches: Matches) -> list[str]:
    """Describe how near the runs of each side come to what their device can do, in matrix products, a line a side.

    Only for comparisons of speed, and for sides whose device was measured: a rate alone says nothing of it.
    """
    if matches.metric.effect != "speedup":
        return []
    rates = {label: map(_matrix_products, runs) for label, runs in matches.runs.items()}
    known = {label: [each for each in of_side if each is not None] for label, of_side in rates.items()}
    return [_line(label, of_side) for label, of_side in known.items() if any(each.best for each in of_side)]


@dataclass(frozen=True)
class _MatrixProducts:
    """The FLOP a second of a run's matrix products, and the ceiling of its device in this precision."""

    rate: float
    best: float | None
    precision: str | None


def _matrix_products(run: StoredRun) -> _MatrixProducts | None:
    work = work_of(run).get("compute")
    if work is None or work.per_second is None:
        return None
    return _MatrixProducts(work.per_second, work.at_best, run.record.measurements.precision)


def _line(label: str, done: Sequence[_MatrixProducts]) -> str:
    """`cpu does 9.8 to 12.1 GFLOP/s, 31 to 38% of the 31.9 GFLOP/s that its matrix products reach at best (fp32).`"""
    rates = [with_unit_prefix(rate) for rate in sorted(each.rate for each in done)]
    text = f"{label} does {_range(rates)}FLOP/s"
    shares = sorted(each.rate / each.best for each in done if each.best)
    share = _range([_percent(each) for each in shares])
    bests = {(each.best, each.precision) for each in done}
    best, precision = bests.pop()
    if bests or best is None:
        return f"{text}, {share} of what its matrix products reach at best."
    return (
        f"{text}, {share} of the {with_unit_prefix(best)}FLOP/s that its matrix products reach at best ({precision})."
    )


def _percent(share: float) -> str:
    return f"{share * 100:.2g}%" if share < 1 else f"{share:,.0%}"


def _range(ordered: Sequence[str]) -> str:
    """Join the first and the last, with a common unit once: `9.8 to 12.1 G`."""
    first, last = ordered[0], ordered[-1]
    if first == last:
        return first
    units = [text.lstrip("0123456789.,e+-") for text in (first, last)]
    return f"{first.removesuffix(units[0]) if units[0] == units[1] else first.strip()} to {last}"


_COLUMNS: dict[str, tuple[WorkKind, str]] = {
    "flop_per_step": ("compute", "per_step"),
    "flop_per_second": ("compute", "per_second"),
    "flop_share": ("compute", "share"),
    "bytes_per_second": ("memory", "per_second"),
    "bytes_share": ("memory", "share"),
    "operations_per_step": ("launch", "per_step"),
    "operations_per_second": ("launch", "per_second"),
    "operations_share": ("launch", "share"),
}
_SHOWN = (*_COLUMNS, "precision")  # the measured one, of the weights' products; the requested one is a setting
_LEGEND = (
    "Work counted in a step, forward, backward and optimiser, over the time of the training part (medians). Each "
    "share is of what the device was measured to do at best: matrix products (`flop_share`, the model FLOP utilization "
    "or MFU), copies, starting operations. Bytes are "
    f"those of all operators, were nothing kept in caches. {MISSING} is not known; {_CALIBRATE}."
)


def roofline_rows(sweep: SweepContents, plan: SweepRecord | None) -> Table:
    """Make a table of the runs whose work was counted, the most FLOP a second first; a note counts the others."""
    cells = gather_cells(sweep.runs, sweep.damaged, plan)
    settings = {name: f"settings.{name}" if name in _SHOWN else column_of(name) for name in cells.columns}
    rows = []
    for cell in cells.cells:
        if cell.stored is None or not (work := work_of(cell.stored)):
            continue
        values: dict[str, Any] = {"run": cell.run}
        values |= {column: cells.value(cell, name) for name, column in settings.items()}
        values |= {name: getattr(work.get(kind), part, None) for name, (kind, part) in _COLUMNS.items()}
        rows.append(Row(values | {"precision": cell.stored.record.measurements.precision}))
    rows.sort(key=lambda row: -(row["flop_per_second"] or 0.0))
    varying = [column for name, column in settings.items() if name in cells.telling]
    return Table(
        columns=["run", *settings.values(), *_SHOWN],
        rows=rows,
        settings=tuple(settings.values()),
        shown=(*(varying or ["run"]), *_SHOWN),
        notes=_uncounted([cell.stored for cell in cells.cells if cell.stored is not None], len(rows)),
        legend=_LEGEND,
    )


def _uncounted(runs: Sequence[StoredRun], num_counted: int) -> tuple[str, ...]:
    """Explain why the work of some runs is not known, by the first of their records with a note on it."""
    if num_counted == len(runs):
        return ()
    notes = (note for run in runs if not work_of(run) for note in run.record.notes if note.startswith(UNKNOWN_WORK))
    why = next(notes, f"{UNKNOWN_WORK}: it is counted on a first batch, which they have not shown")
    missing = len(runs) - num_counted
    return (f"Of {missing} of {len(runs)} runs {why}.",)
