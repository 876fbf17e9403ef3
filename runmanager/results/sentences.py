"""The answers in a sentence or two each: is the candidate faster, which settings are best, did everything run."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from runmanager.records.spoken import spoken
from runmanager.records.states import Status
from runmanager.results.columns import NULLS, OUTCOMES, STAND_IN, Table, effect_of, prefers_larger, setting_name
from runmanager.results.formats import human, human_effect
from runmanager.results.judging import CONTENDED, DIFFERENT, NOT_MEASURED
from runmanager.results.matching import Matches
from runmanager.results.seeds import SEEDS, collapse_seeds
from runmanager.results.sides import label_of, typical

__all__ = [
    *("answers", "best_row", "duel_answers", "duel_rates", "finished_cells", "told_settings", "without_contention"),
]


_MOST_CAUSES = 2
_MOST_EXCEPTIONS = 2


def answers(results: Table, comparison: Table, *, of_the_best: Sequence[str] = ()) -> list[str]:
    """Readable sentences from a results table and a comparison, the same wherever they are said.

    First what was found by measuring, along an axis that stands in for the device after the best settings; then what
    could not be compared, and how the runs ended. `of_the_best` are sentences to follow that on the best settings.
    """
    asked, stand_ins = ([row for row in comparison.rows if row[STAND_IN] is is_it] for is_it in (False, True))
    found, missing = _speed_answers(asked, comparison)
    best = _best_answer(results)
    return [
        *(*found, *best, *(of_the_best if best else ())),
        *(*_stand_in_answer(stand_ins, comparison), *missing, _count_answer(results)),
    ]


def duel_answers(comparison: Table) -> list[str]:
    """One sentence for each pair that was measured side by side: its speedup, the interval, and the verdict."""
    return [_duel_answer(row, comparison) for row in comparison.rows]


def duel_rates(matches: Matches) -> list[str]:
    """What each side of each pair did in its turns, a line a side: its median samples a second."""
    lines: dict[str, None] = {}
    for match in matches.pairs:
        told = {name: value for name, value in match.settings.items() if name in matches.cells.varying}
        where = f" at {', '.join(f'{name}={spoken(value)}' for name, value in told.items())}" if told else ""
        for side in match.sides:
            if (rate := typical(side.values)) is not None:
                lines[f"{side.label}{where}: {human(rate, 'samples_per_second')} samples a second"] = None
    return list(lines)


def _duel_answer(row: dict[str, Any], comparison: Table) -> str:
    candidate, baseline = (label_of(row["axis"], row[side]) for side in ("candidate", "baseline"))
    where = _where(row, comparison)
    if row["verdict"] == NOT_MEASURED:
        return f"{candidate} and {baseline} could not be compared{where}: {without_contention(row['reason'])}."
    ratio, low, high = (f"{row[name]:.3f}" for name in ("speedup", "ci_low", "ci_high"))
    said = f"{candidate} is {ratio} times as fast as {baseline}{where} (95% interval {low} to {high}): {row['verdict']}"
    pairs = "1 pair" if row["pairs"] == 1 else f"{row['pairs']} pairs"
    return f"{said}, after {row['candidate_epochs']} rounds side by side in {pairs} of processes.{_caution([row])}"


def _speed_answers(rows: Sequence[dict[str, Any]], comparison: Table) -> tuple[list[str], list[str]]:
    """One sentence for each candidate, in the order of the rows: those of which any pair was measured, and the rest."""
    found, missing = list[str](), list[str]()
    for sides, pairs in _by_sides(rows).items():
        is_measured = any(row["verdict"] != NOT_MEASURED for row in pairs)
        (found if is_measured else missing).append(_speed_answer(pairs, *sides, comparison))
    return found, missing


def _stand_in_answer(rows: Sequence[dict[str, Any]], comparison: Table) -> list[str]:
    """Of an axis that nobody asked about: the one candidate that differs most, or that none does."""
    measured = [row for row in rows if row["verdict"] != NOT_MEASURED]
    if not measured:
        return []
    different = [row for row in measured if row["verdict"] in DIFFERENT]
    if not different:
        what, axis = measured[0].get("metric", "speed"), setting_name(measured[0]["axis"])
        said = f"There is no difference in {what} along {axis} beyond the noise{_of(measured)}."
        return [said + _caution(measured)]
    of_sides = _by_sides(rows)
    sides = next(sides for sides, pairs in of_sides.items() if max(different, key=_size) in pairs)
    others = len(of_sides) - 1
    more = f" The comparison has {others} other value{'' if others == 1 else 's'}." if others else ""
    chosen = " It is told because it differs most, which makes it look larger than it may be." if len(rows) > 1 else ""
    return [_speed_answer(of_sides[sides], *sides, comparison) + chosen + more]


def _by_sides(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rows of each candidate, by its label and the baseline's."""
    of_sides: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        sides = label_of(row["axis"], row["candidate"]), label_of(row["axis"], row["baseline"])
        of_sides.setdefault(sides, []).append(row)
    return of_sides


def _speed_answer(rows: Sequence[dict[str, Any]], candidate: str, baseline: str, comparison: Table) -> str:
    measured = [row for row in rows if row["verdict"] != NOT_MEASURED]
    if not measured:
        # What they met on the host is no cause: it would not have forbidden a comparison.
        causes = Counter(without_contention(row["reason"]) for row in rows)
        return f"{candidate} and {baseline} could not be compared: {_causes(causes)}."
    different = [row for row in measured if row["verdict"] in DIFFERENT]
    if not different:
        what = measured[0].get("metric", "speed")
        answer = f"There is no difference in {what} between {candidate} and {baseline} beyond the noise{_of(measured)}."
        return answer + _caution(measured)
    best = max(different, key=_size)
    others = [row for row in measured if row["verdict"] != best["verdict"]]
    exceptions = others if len(others) <= _MOST_EXCEPTIONS and all(_where(row, comparison) for row in others) else []
    said = [_difference(row, candidate, baseline, _where(row, comparison)) for row in (best, *exceptions)]
    rest = _rest(measured) if len(measured) > len(said) or len(said) == 1 else ""
    return "; ".join(said) + "." + rest + _caution(measured)


def _causes(causes: Counter[str]) -> str:
    """The commonest causes, each with its share of the pairs where there is more than one."""
    if len(causes) == 1:
        return next(iter(causes))
    told = [f"{cause} ({count} of {causes.total()} pairs)" for cause, count in causes.most_common(_MOST_CAUSES)]
    more = len(causes) - len(told)
    return "; ".join([*told, f"and {more} other reason{'' if more == 1 else 's'}"] if more else told)


def without_contention(reason: str) -> str:
    """A reason without what the runs met on their host, where it says anything else."""
    return reason.partition("; ")[2] or reason if reason.startswith(CONTENDED) else reason


def _caution(measured: Sequence[dict[str, Any]]) -> str:
    """A warning where the measured pairs met other load: the answer must not sound surer than it is."""
    met = sum((row["reason"] or "").startswith(CONTENDED) for row in measured)
    if not met:
        return ""
    which = "Its runs" if len(measured) == 1 else f"The runs of {met} of the {len(measured)} pairs"
    return f" {which} were contended: other load was on the machine, so measure again when it is quiet."


def _size(row: dict[str, Any]) -> float:
    """How large a difference is, whichever side is ahead."""
    effect = effect_of(row)
    value: float = row[effect]
    return abs(value) if effect == "difference" else max(value, 1 / value)


def _difference(row: dict[str, Any], candidate: str, baseline: str, where: str) -> str:
    """A clause. A speedup is always said of the faster side, with the interval of that ratio."""
    if row["verdict"] not in DIFFERENT:
        return f"{where.removeprefix(' ')} there is no difference beyond the noise"
    effect, low, high = effect_of(row), row["ci_low"], row["ci_high"]
    if effect != "speedup":
        interval = f"[{human_effect(row, 'ci_low')}, {human_effect(row, 'ci_high')}]"
        how = "times" if effect == "ratio" else "above" if row[effect] > 0 else "below"
        said = f"its {row['metric']} is {human_effect(row, effect).removeprefix('-')} {how} {baseline}'s"
        return f"{candidate} is {row['verdict']} than {baseline}{where}: {said} {interval}"
    ratio = row["speedup"]
    if row["verdict"] == "slower":
        candidate, baseline = baseline, candidate
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    by = f" by {row['metric']}" if "metric" in row else ""
    ratio, low, high = (_short(value, least=low) for value in (ratio, low, high))
    return f"{candidate} is {ratio} times faster than {baseline}{by}{where} [{low}, {high}]"


def _short(ratio: float, *, least: float | None = None) -> str:
    """Two digits say enough of a ratio that holds to a few percent; near 1 a third is needed to see it is not 1.

    What stands beside each other has the decimals of the `least` among them.
    """
    least = ratio if least is None else least
    if least >= 100:
        return f"{ratio:,.0f}"
    return f"{ratio:.1f}" if least >= 2 else f"{ratio:.2f}"


def _rest(measured: Sequence[dict[str, Any]]) -> str:
    if len(measured) == 1:
        return ""
    counts = Counter(row["verdict"] for row in measured)
    said = ", ".join(f"{counts[word]} {word}" for word in (*DIFFERENT, "no difference") if counts[word])
    effect = effect_of(measured[0])
    ordered = sorted(measured, key=lambda row: float(row[effect]))
    ends = [human_effect(row, effect) if effect == "difference" else _short(row[effect]) for row in ordered]
    return f" Of {len(measured)} measured pairs: {said}; {effect}s {ends[0]} to {ends[-1]}."


def _of(measured: Sequence[dict[str, Any]]) -> str:
    return f" in {len(measured)} pairs" if len(measured) > 1 else ""


def _where(row: dict[str, Any], table: Table) -> str:
    settings = told_settings(row, table)
    return f" at {settings}" if settings else ""


def told_settings(row: Mapping[str, Any], table: Table, *, without: Collection[str] = ()) -> str:
    """The settings of a row that vary in its table, as they are given in a command."""
    names = [name for name in table.settings if name in table.shown and name not in without]
    has = [name for name in names if row[name] is not None or name in row[NULLS]]
    return ", ".join(f"{setting_name(name)}={spoken(row[name])}" for name in has)


def best_row(results: Table) -> tuple[str, dict[str, Any], Table] | None:
    """The metric by which a cell is best, the row of that cell, and the table of all cells, seeds together."""
    cells = collapse_seeds(results)
    finished = finished_cells(cells)
    for metric in OUTCOMES:
        known = [row for row in finished if row[metric] is not None and math.isfinite(row[metric])]
        if known:
            return metric, (max if prefers_larger(metric) else min)(known, key=lambda row: row[metric]), cells
    return None


def finished_cells(cells: Table) -> list[dict[str, Any]]:
    """The rows, of runs or of cells, that have a finished run."""
    return [row for row in cells.rows if row.get(SEEDS) or row["status"] == Status.FINISHED]


def _best_answer(results: Table) -> list[str]:
    found = best_row(results)
    if found is None:
        return []
    metric, best, cells = found
    settings = told_settings(best, cells)
    ties = sum(row[metric] == best[metric] for row in finished_cells(cells)) - 1
    others = f"{ties} other {'cell' if SEEDS in best else 'run'}{'' if ties == 1 else 's'}"
    also = f", and {others} reached the same" if ties else ""
    said = f" with {settings}" if settings else ""
    over = f" over {best[SEEDS]} seeds" if best.get(SEEDS, 1) > 1 else ""
    return [f"The best {metric} is {human(best[metric], metric)}{over}{said}{also}."]


def _count_answer(results: Table) -> str:
    counts = Counter(row["status"] for row in results.rows)
    order = sorted(Status, key=lambda status: (not status.is_ended, not status.is_success))
    total = len(results.rows) + results.num_unread
    said = [f"{counts[status]:,} {status.value}" for status in order if counts[status]]
    if results.num_unread:
        said.append(f"{results.num_unread:,} not read")
    return f"{total:,} run{'' if total == 1 else 's'}: {', '.join(said)}." if total else "No runs yet."
