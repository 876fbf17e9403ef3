"""What the rows of a comparison come to, in a sentence or two for each candidate."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from runmanager.results.compare.caveats import CONTENDED, mentions_hidden_costs
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable
from runmanager.results.compare.metrics import THROUGHPUT
from runmanager.results.compare.overall_effect import OverallEffect, overall_effect
from runmanager.results.compare.side import label_of
from runmanager.results.compare.verdict import DIFFERENT, NO_DIFFERENCE, NOT_MEASURED, VERDICTS
from runmanager.results.model.columns import Row, Table, setting_name
from runmanager.text import format_value, pluralize

__all__ = [
    "caution_text",
    "comparison_answers",
    "location_text",
    "named_settings",
    "stand_in_answer",
    "without_contention",
]

Rows = Sequence[ComparisonRow]

_MOST_CAUSES = 2


def comparison_answers(rows: Rows, comparison: ComparisonTable) -> tuple[list[str], list[str]]:
    """One answer for each candidate, in the order of the rows: those of which any pair was measured, and the rest."""
    found, missing = list[str](), list[str]()
    of_sides = _by_sides(rows)
    told = _num_measured(of_sides)
    for sides, pairs in of_sides.items():
        is_measured = any(row["verdict"] != NOT_MEASURED for row in pairs)
        (found if is_measured else missing).append(_answer(pairs, *sides, comparison, told))
    return found, missing


def stand_in_answer(rows: Rows, comparison: ComparisonTable) -> list[str]:
    """Of an axis that nobody asked about: the one candidate that differs most, or that none does."""
    measured = [row for row in rows if row["verdict"] != NOT_MEASURED]
    if not measured:
        return []
    different = [row for row in measured if row["verdict"] in DIFFERENT]
    if not different:
        what, axis = _metric_said(measured[0]), setting_name(measured[0]["axis"])
        are_equal = all(row["verdict"] == NO_DIFFERENCE for row in measured)
        said = "There is no difference" if are_equal else "No difference can be told"
        return [f"{said} in {what} along {axis}{_of(measured)}." + caution_text(measured)]
    of_sides = _by_sides(rows)
    sides = next(sides for sides, pairs in of_sides.items() if max(different, key=_size) in pairs)
    others = len(of_sides) - 1
    more = f" The comparison has {pluralize(others, 'other value')}." if others else ""
    chosen = " It is told because it differs most, which makes it look larger than it may be." if len(rows) > 1 else ""
    return [_answer(of_sides[sides], *sides, comparison, _num_measured(of_sides)) + chosen + more]


def _by_sides(rows: Rows) -> dict[tuple[str, str], list[ComparisonRow]]:
    """The rows of each candidate, by its label and the baseline's."""
    of_sides: dict[tuple[str, str], list[ComparisonRow]] = {}
    for row in rows:
        sides = label_of(row["axis"], row["candidate"]), label_of(row["axis"], row["baseline"])
        of_sides.setdefault(sides, []).append(row)
    return of_sides


def _num_measured(of_sides: Mapping[Any, Rows]) -> int:
    return sum(any(row["verdict"] != NOT_MEASURED for row in pairs) for pairs in of_sides.values())


def _answer(rows: Rows, candidate: str, baseline: str, comparison: ComparisonTable, told: int) -> str:
    measured = [row for row in rows if row["verdict"] != NOT_MEASURED]
    if not measured:
        # What they met on the host is no cause: it would not have forbidden a comparison.
        causes = Counter(without_contention(row["reason"]) for row in rows)
        return f"{candidate} and {baseline} could not be compared: {_causes(causes)}."
    varying = [name for name in comparison.settings if name in comparison.shown]
    found = overall_effect(measured, varying, sides=told)
    if found.agrees:
        where = location_text(measured[0], comparison) if len(measured) == 1 else ""
        said = _agreement(found, measured, candidate, baseline, where)
    else:
        said = _range(found, measured, candidate, baseline)
    return f"{said}.{_rest(measured)}{caution_text(measured)}"


def _agreement(found: OverallEffect, rows: Rows, candidate: str, baseline: str, where: str) -> str:
    """The mean effect with its interval. A speedup is always said of the faster side."""
    over = "" if len(rows) == 1 else f", the {_mean_of(rows)} over {len(rows)} pairs"
    what = _metric_said(rows[0])
    if found.verdict == NO_DIFFERENCE:
        said = f"There is no difference in {what} between {candidate} and {baseline}{where}: "
    elif found.verdict not in DIFFERENT:
        said = f"Whether {candidate} and {baseline} differ in {what}{where} cannot be told: "
    elif rows[0].metric.effect == "speedup":
        return f"{_clause(found, rows[0], candidate, baseline, where)}{over}"
    else:
        said = f"{candidate} is {found.verdict} than {baseline}{where}: "
    return f"{said}{_clause(found, rows[0], candidate, baseline, '')}{over}"


def _mean_of(rows: Rows) -> str:
    return "mean" if rows[0].metric.effect == "difference" else "geometric mean"


def _clause(found: OverallEffect, row: ComparisonRow, candidate: str, baseline: str, where: str) -> str:
    """`cuda is 2.1 times as fast as cpu [1.8, 2.5]`, or what the metric of the one is to that of the other."""
    effect, estimate = row.metric.effect, found.estimate
    if effect != "speedup":
        value, least, most = (row.metric.format_effect(each) for each in (estimate.value, estimate.low, estimate.high))
        how = "times" if effect == "ratio" else "above" if estimate.value >= 0 else "below"
        return f"its {row.metric.name} is {value.removeprefix('-')} {how} {baseline}'s [{least}, {most}]"
    ratio, low, high = estimate.value, estimate.low, estimate.high
    if found.verdict == "slower":
        candidate, baseline, ratio, low, high = baseline, candidate, 1 / ratio, 1 / high, 1 / low
    by = _by_metric(row)
    said = [_short(value, least=low) for value in (ratio, low, high)]
    if found.verdict in DIFFERENT and said[1] == "1.00":  # an end that is not 1 must not read as if it were
        said = [f"{value:.4f}" for value in (ratio, low, high)]
    return f"{candidate} is {said[0]} times as fast as {baseline}{by}{where} [{said[1]}, {said[2]}]"


def _metric_said(row: ComparisonRow) -> str:
    return "speed" if row.metric == THROUGHPUT else row.metric.name


def _by_metric(row: ComparisonRow) -> str:
    return "" if row.metric == THROUGHPUT else f" by {row.metric.name}"


def _range(found: OverallEffect, rows: Rows, candidate: str, baseline: str) -> str:
    """Where the pairs disagree: from what to what, and on which setting it depends."""
    metric = rows[0].metric
    effect = metric.effect
    ends = sorted(row[effect] for row in rows)

    def text_of(value: float) -> str:
        return _short(value, least=ends[0]) if effect == "speedup" else metric.format_effect(value)

    said = [text_of(value) for value in (ends[0], ends[-1])]
    of = candidate if metric == THROUGHPUT else f"{metric.name} of {candidate}"
    if effect == "speedup":
        whole = f"{candidate} is {said[0]} to {said[1]} times as fast as {baseline}{_by_metric(rows[0])}"
    elif effect == "ratio":
        whole = f"The {of} is {said[0]} to {said[1]} times {baseline}'s"
    else:
        whole = f"The {of} less {baseline}'s is {said[0]} to {said[1]}"
    if found.setting is None or not found.effects:
        return f"{whole}: the pairs differ by more than noise, and no setting alone explains it"
    name, by_value = setting_name(found.setting), sorted(found.effects.items(), key=lambda each: each[1])
    low, high = (f"{text_of(value)} at {name}={text}" for text, value in (by_value[0], by_value[-1]))
    return f"{whole}, depending on {name}: {low}, {high}"


def _causes(causes: Counter[str]) -> str:
    """The commonest causes, each with its share of the pairs where there is more than one."""
    if len(causes) == 1:
        return next(iter(causes))
    told = [f"{cause} ({count} of {causes.total()} pairs)" for cause, count in causes.most_common(_MOST_CAUSES)]
    more = len(causes) - len(told)
    return "; ".join([*told, f"and {pluralize(more, 'other reason')}"] if more else told)


def without_contention(reason: str) -> str:
    """A reason without what the runs met on their host, where it says anything else."""
    return reason.partition("; ")[2] or reason if reason.startswith(CONTENDED) else reason


def caution_text(measured: Rows) -> str:
    """Warnings where medians hide costs or the pairs met other load: the answer must not sound surer than it is."""
    hidden = any(mentions_hidden_costs(row["reason"]) for row in measured)
    whole = " The medians hide slower or faster epochs: see `overall_samples_per_second`." if hidden else ""
    met = sum((row["reason"] or "").startswith(CONTENDED) for row in measured)
    if not met:
        return whole
    which = "Its runs" if len(measured) == 1 else f"The runs of {met} of the {len(measured)} pairs"
    return f"{whole} {which} were contended: other load was on the machine, so measure again when it is quiet."


def _size(row: ComparisonRow) -> float:
    """How large a difference is, whichever side is ahead."""
    value: float = row[row.metric.effect]
    return abs(value) if row.metric.effect == "difference" else max(value, 1 / value)


def _short(ratio: float, *, least: float | None = None) -> str:
    """Two digits say enough of a ratio that holds to a few percent; near 1 a third is needed to see it is not 1.

    What stands beside each other has the decimals of the `least` among them.
    """
    least = ratio if least is None else least
    if least >= 100:
        return f"{ratio:,.0f}"
    return f"{ratio:.1f}" if least >= 2 else f"{ratio:.2f}"


def _rest(measured: Rows) -> str:
    """What the pairs say, each for itself."""
    if len(measured) == 1:
        return ""
    counts = Counter(row["verdict"] for row in measured)
    said = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
    return f" Of {len(measured)} measured pairs: {said}."


def _of(measured: Rows) -> str:
    return f" in {len(measured)} pairs" if len(measured) > 1 else ""


def location_text(row: Row, table: Table) -> str:
    """` at batch_size=100`: where a row is, nothing of a table that has no other setting."""
    settings = named_settings(row, table)
    return f" at {settings}" if settings else ""


def named_settings(row: Row, table: Table, *, without: Collection[str] = ()) -> str:
    """The settings of a row that vary in its table, as they are given in a command."""
    names = [name for name in table.settings if name in table.shown and name not in without]
    has = [name for name in names if name not in row.absent_settings]
    return ", ".join(f"{setting_name(name)}={format_value(row[name])}" for name in has)
