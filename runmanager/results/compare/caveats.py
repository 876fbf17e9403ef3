"""Caveats of a pair that can be compared: contention, outliers, hidden costs, other differences between the sides."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from runmanager.records.run.run_record import RunRecord
from runmanager.records.settings.grid import seed_text
from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.comparability import differences
from runmanager.results.compare.comparison_table import Side
from runmanager.results.load.run_summary import OVERALL_RATE, clock_changes, measured_epochs, overall_rate
from runmanager.results.metrics.metric_lookup import RUN_TIME
from runmanager.results.stats.descriptive import geometric_mean, median
from runmanager.results.table_model.columns import Row
from runmanager.text import format_value, pluralize

CONTENDED = "contended:"

ContentionCauses = Mapping[Path, tuple[str, ...] | None]
"""What each run had to share its host with, by run folder."""

_OUTLIER_SCORE = 3.5
_OUTLIER_SHARE = 0.1  # of the median: nearer runs are within the usual spread of seeds
_MIN_HIDDEN_COST = 0.05
"""Smallest distance of the overall rate from the median that is reported, as a share of the median."""
_MAX_NAMED = 5
_MAX_FOLLOWING = 3  # settings that follow from others, and values of one
_SLOWER, _FASTER = "periodic or one-off costs that the median hides", "faster epochs that the median hides"
_OVERALL_SPEEDUP = f"by `{OVERALL_RATE}` the speedup is"


def contention_caveats(sides: Sequence[Side], shared_host: ContentionCauses) -> list[str]:
    """Return one sentence that begins with `contended:` where a side shared its host; else an empty list."""
    met: dict[str, list[str]] = {}
    for side in sides:
        runs = side.finished or [cell.stored for cell in side.cells if cell.stored is not None]
        for cause in dict.fromkeys(cause for run in runs for cause in shared_host[run.paths.root] or ()):
            met.setdefault(cause, []).append(side.label)
    if not met:
        return []
    return [f"{CONTENDED} " + ", ".join(f"{' and '.join(labels)} met {cause}" for cause, labels in met.items())]


def pair_caveats(sides: Sequence[Side], *, is_compared: bool) -> list[str]:
    """Return what a reader must know about two sides though they can be compared; empty before both have finished.

    Of sides that are not compared, what settings of `auto` became, and what follows from others, would read as the
    cause, and is left out.
    """
    if not all(side.finished for side in sides):
        return []
    partial = [f"{side.label}: {side.state}" for side in sides if len(side.finished) < len(side.cells)]
    partial += [*_left_out(sides), *_one_time_costs(sides)]
    dirty = [side.label for side in sides if any(run.record.environment.commit_clean is False for run in side.finished)]
    uncommitted = [f"uncommitted changes: {', '.join(dirty)}"] if dirty else []
    uncommitted += dict.fromkeys(
        f"{side.label}: {each.commit_unknown}"
        for side in sides
        for each in (run.record.environment for run in side.finished)
        if each.commit and each.commit_unknown
    )
    # One side is one device: seeds on two kinds of GPU do not repeat the same measurement.
    devices = [difference for side in sides for difference in differences([side], ["device"])]
    # Of two sweeps these are what is compared, and named as such.
    noteworthy = [] if all(side.is_sweep for side in sides) else differences(sides, ["host", "CPU model"])
    environment = [*noteworthy, *devices, *_unknown_code(sides)]
    return [
        *outlier_caveats(sides),
        *_clock_caveats(sides),
        *_deviations(sides),
        *_unlike_precision(sides),
        *([*_unlike_choices(sides), *_unlike_following(sides)] if is_compared else []),
        *environment,
        *uncommitted,
        *partial,
    ]


def _clock_caveats(sides: Sequence[Side]) -> list[str]:
    """Name the sides whose devices were throttled, or had a clock that changed between the epochs of a run."""
    lines = []
    for side in sides:
        changes = [clock_changes(run, measured_epochs(run)) for run in side.finished]
        throttled = [each.throttled_share for each in changes if each.throttled_share]
        unsteady = [each.highest / each.lowest - 1 for each in changes if each.is_unsteady]
        for found, what in (
            (throttled, "was throttled in up to {} of its readings"),
            (unsteady, "changed its clock by up to {}"),
        ):
            if found:
                which = f" in {len(found)} of {len(changes)} runs" if len(changes) > 1 else ""
                lines.append(f"{side.label}: the device {what.format(_percent(max(found)))}{which}")
    return lines


def _left_out(sides: Sequence[Side]) -> list[str]:
    """Name the sides of which finished runs do not count, as all of their epochs are warm-up."""
    lacking = (side for side in sides if side.metric.per_epoch and side.values and side.without_values)
    return [
        f"{side.label}: {side.without_values} of {len(side.finished)} runs left out, without a measured epoch"
        for side in lacking
    ]


def _one_time_costs(sides: Sequence[Side]) -> list[str]:
    """Say what the times of whole runs do not include, and where a part of them was spent twice."""
    if sides[0].metric != RUN_TIME:
        return []
    compiled = {
        side.label: [seconds for run, _ in side.measured if (seconds := run.record.measurements.compile_seconds)]
        for side in sides
    }
    texts = [f"{geometric_mean(seconds):.3g} s ({label})" for label, seconds in compiled.items() if seconds]
    resumed = {side.label: sum(bool(run.record.earlier) for run, _ in side.measured) for side in sides}
    return [
        *([f"without compilation, which took {' and '.join(texts)}"] if texts else []),
        *(f"{label}: {pluralize(count, 'run')} started more than once" for label, count in resumed.items() if count),
    ]


def _unknown_code(sides: Iterable[Side]) -> list[str]:
    """Name the sides with a finished run whose code is not known, neither by hash nor by commit, where others' is."""
    runs = [(side.label, run.record.environment) for side in sides for run in side.finished]
    lacking = dict.fromkeys(label for label, each in runs if each.code is None and each.commit_clean is not True)
    if all(each.code is None for _, each in runs) or not lacking:
        return []
    return [f"whether the code is the same is not known: {', '.join(lacking)}"]


def _unlike_precision(sides: Sequence[Side]) -> list[str]:
    """Name the precisions of the products of each side, where all requested the same one and not all used it.

    PyTorch's own default on GPUs rounds the products of convolutions to TF32: in custom loops, and in built-in runs of
    versions that did not change it.
    """
    runs = [run for side in sides for run in side.finished]
    if len({run.record.config.get("precision", "fp32") for run in runs}) > 1:
        return []
    found = {
        side.label: sorted({kind for run in side.finished if (kind := run.record.measurements.precision)})
        for side in sides
    }
    if len({kind for kinds in found.values() for kind in kinds}) < 2:
        return []
    text = ", ".join(f"{' and '.join(kinds)} ({label})" for label, kinds in found.items() if kinds)
    return [f"precision of products differs: {text}"]


def _unlike_choices(sides: Sequence[Side]) -> list[str]:
    """Name what settings of `auto` became, where that is not the same in all runs of the sides."""
    runs = [run.record for side in sides for run in side.finished]
    names = dict.fromkeys(name for record in runs for name in record.measurements.chosen or {})
    return [line for name in names if (line := _unlike_values(sides, name))]


def _unlike_values(sides: Sequence[Side], name: str) -> str:
    found = {side.label: list(dict.fromkeys(_value_used(run.record, name) for run in side.finished)) for side in sides}
    if len({value for values in found.values() for value in values}) < 2:
        return ""
    text = ", ".join(f"{' and '.join(values)} ({label})" for label, values in found.items())
    are_auto = all(run.record.settings.get(name) == "auto" for side in sides for run in side.finished)
    return f"{name}=auto became {text}" if are_auto else f"{name} differs: {text}"


def _unlike_following(sides: Sequence[Side]) -> list[str]:
    """Name the settings that differ between the sides although they are not compared: they follow from others."""
    lines = []
    for name in dict.fromkeys(name for side in sides for name in side.following):
        found = {side.label: _values_of(name, side) for side in sides}
        if len({frozenset(values) for values in found.values()}) > 1:
            text = ", ".join(f"{_listed(values)} ({label})" for label, values in found.items())
            lines.append(f"{name} differs as well: {text}")
    more = len(lines) - _MAX_FOLLOWING
    return [*lines[:_MAX_FOLLOWING], *([f"and {more} more"] if more > 0 else [])]


def _values_of(name: str, side: Side) -> list[str]:
    finished = {run.signature for run in side.finished}
    values = (cell.own[name] for cell in side.cells if cell.signature in finished and name in cell.own)
    return list(dict.fromkeys(map(format_value, values)))


def _listed(values: Sequence[str]) -> str:
    """The first few values."""
    return " and ".join([*values[:_MAX_FOLLOWING], *(["others"] if values[_MAX_FOLLOWING:] else [])]) or "not set"


def _value_used(record: RunRecord, name: str) -> str:
    value = {**record.settings, **(record.measurements.chosen or {})}.get(name)
    return "unknown" if value == "auto" else format_value(value)


def _deviations(sides: Sequence[Side]) -> list[str]:
    """Return the deviations of runs from their settings, which distinguish the sides in addition to the axis."""
    lines = [f"{side.label}: {line}" for side in sides for run in side.finished for line in run.record.deviations]
    return list(dict.fromkeys(lines))


def outlier_caveats(sides: Sequence[Side]) -> list[str]:
    """Name the runs that fell far behind the others of their side.

    Far is a modified z-score above 3.5 (Iglewicz and Hoaglin, *How to Detect and Handle Outliers*, 1993), where it is
    also a tenth of the median.
    """
    return [line for side in sides if (line := _outliers(side))]


def _outliers(side: Side) -> str:
    values = [middle for of_run in side.values if (middle := median(of_run)) is not None]
    middle = median(values)
    if middle is None or len(values) < 3:
        return ""
    sign = 1 if side.metric.more_is_better else -1
    spread = median([abs(value - middle) for value in values]) or 0.0
    far = [
        (run, value)
        for (run, _), value in zip(side.measured, values, strict=True)
        if sign * (middle - value) > max(_OUTLIER_SCORE * spread / 0.6745, _OUTLIER_SHARE * abs(middle))
    ]
    if not far:
        return ""
    named = [(seed_text(side.seeds_of(run)) or run.record.name, value) for run, value in far]
    names = ", ".join(f"{name} with {side.metric.format_value(value)}" for name, value in named)
    return f"{side.label}: {names} fell far behind the median of {side.metric.format_value(middle)}"


def hidden_cost_notes(rows: Sequence[Row]) -> list[str]:
    """Name the runs of a results table whose overall rate is far from their median, the furthest first.

    One line for each direction.
    """
    apart = [(share, row["run"]) for row in rows if (share := _apart(row[OVERALL_RATE], row["samples_per_second"]))]
    apart.sort(key=lambda each: -abs(each[0]))
    below, above = ([each for each in apart if (each[0] < 0) is is_below] for is_below in (True, False))
    notes = [("below", below, _SLOWER), ("above", above, _FASTER)]
    return [
        f"{OVERALL_RATE} is {where} samples_per_second by {_named(runs)}: {why}." for where, runs, why in notes if runs
    ]


def hidden_cost_caveats(sides: Sequence[Side]) -> list[str]:
    """Name the sides whose overall rate is far from their median epoch, with the speedup by the overall rates.

    Runs below their median and runs above it are named apart. Empty for metrics that are not medians of epochs.
    """
    if not sides[0].metric.per_epoch:
        return []
    rates = [[known for run in side.finished if (known := _rates(run))] for side in sides]
    lines = []
    for side, of_side in zip(sides, rates, strict=True):
        shares = [_apart(*known) for known in of_side]
        for of_direction in ([share for share in shares if share < 0], [share for share in shares if share > 0]):
            if of_direction:
                lines.append(_hidden_cost_caveat(side.label, of_direction, len(side.finished)))
    if lines and all(rates):
        overall, middle = (_speedup([[each[at] for each in of_side] for of_side in rates]) for at in (0, 1))
        if _apart(overall, middle):
            lines.append(f"{_OVERALL_SPEEDUP} {overall:.2f}")
    return lines


def mentions_hidden_costs(reason: str | None) -> bool:
    """Whether the reason of a comparison says that the speedup by the overall rates is a different one."""
    return _OVERALL_SPEEDUP in (reason or "")


def _speedup(sides: Sequence[Sequence[float]]) -> float:
    baseline, candidate = map(geometric_mean, sides)
    return candidate / baseline


def _rates(run: StoredRun) -> tuple[float, float] | None:
    """Return the throughput of all measured epochs together and that of the median epoch; None without either."""
    measured = measured_epochs(run)
    overall, middle = overall_rate(measured), median([rate for epoch in measured if (rate := epoch.samples_per_second)])
    return (overall, middle) if overall and middle else None


def _apart(overall: float | None, middle: float | None) -> float:
    """Return the signed distance of the overall rate from the median, as a share of it; 0 where it is small."""
    share = overall / middle - 1 if overall and middle else 0.0
    return share if abs(share) > _MIN_HIDDEN_COST else 0.0


def _named(runs: Sequence[tuple[float, str]]) -> str:
    named = [f"{_percent(share)} ({run})" for share, run in runs[:_MAX_NAMED]]
    more = len(runs) - len(named)
    return ", ".join(named) + (f" and {pluralize(more, 'more run')}" if more > 0 else "")


def _hidden_cost_caveat(label: str, shares: Sequence[float], num_runs: int) -> str:
    furthest = max(shares, key=abs)
    up_to, which = ("up to ", f" in {len(shares)} of {num_runs} runs") if num_runs > 1 else ("", "")
    return (
        f"{label}: overall {up_to}{_percent(furthest)} {'below' if furthest < 0 else 'above'} its median epoch{which}"
    )


def _percent(share: float) -> str:
    return f"{abs(share) * 100:.0f}%"
