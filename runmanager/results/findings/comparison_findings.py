"""The findings of a comparison, in a sentence or two for each candidate."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from runmanager.results.compare.caveats import CONTENDED, mentions_hidden_costs
from runmanager.results.compare.comparison_table import (
    NO_RUN,
    SWEEP_AXIS,
    ComparisonRow,
    ComparisonTable,
    rows_by_sides,
)
from runmanager.results.compare.overall_effect import OverallEffect, overall_effect
from runmanager.results.compare.verdict import BEHIND, DIFFERENT, NO_DIFFERENCE, NOT_MEASURED, VERDICTS
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.table_model.columns import Row, Table, setting_name
from runmanager.text import format_value, pluralize

Rows = Sequence[ComparisonRow]

_MAX_CAUSES = 2
_MAX_CANDIDATES = 5


def comparison_answers(rows: Rows, comparison: ComparisonTable) -> tuple[list[str], list[str]]:
    """Return one answer for each candidate, in the order of the rows: first the measured ones, then the others.

    Of many others, as the values of a search, there is one line for all with the same baseline.
    """
    found, missing = list[str](), dict[str, dict[str, str]]()
    of_sides = rows_by_sides(rows)
    num_answers = _num_measured(of_sides)
    for sides, pairs in of_sides.items():
        answer = _answer(pairs, *sides, comparison, num_answers)
        if any(row["verdict"] != NOT_MEASURED for row in pairs):
            found.append(answer)
        else:
            candidate, baseline = sides
            missing.setdefault(baseline, {})[candidate] = answer
    return found, [line for baseline, answers in missing.items() for line in _in_one_line(baseline, answers)]


def _in_one_line(baseline: str, answers: Mapping[str, str]) -> list[str]:
    """The answers of candidates that are not measured, or one for all if they are more than a few."""
    if len(answers) <= _MAX_CAUSES:
        return list(answers.values())
    return [f"{_named(list(answers))} could not be compared with {baseline}; `compare --all` shows why."]


def stand_in_answer(rows: Rows, comparison: ComparisonTable) -> list[str]:
    """Describe a stand-in axis: the candidate that differs most, or that none does."""
    measured = [row for row in rows if row["verdict"] != NOT_MEASURED]
    of_sides = rows_by_sides(rows)
    if not measured:
        return comparison_answers(rows, comparison)[1] if len(of_sides) == 1 else []
    if len(of_sides) == 1 and not comparison.command:  # as where it is the one that was asked for
        return comparison_answers(rows, comparison)[0]
    different = [row for row in measured if row["verdict"] in DIFFERENT]
    if not different:
        what, axis = _metric_name(measured[0]), setting_name(measured[0]["axis"])
        are_equal = all(row["verdict"] == NO_DIFFERENCE for row in measured)
        if are_equal:
            text = f"No difference in {what} along {axis}{_of(measured)}."
        else:
            text = _open_answer(measured, what, axis, comparison.command)
        return [text + caution_text(measured)]
    sides = next(sides for sides, pairs in of_sides.items() if max(different, key=_size) in pairs)
    others = {candidate: pairs for (candidate, _), pairs in of_sides.items() if candidate != sides[0]}
    more = _other_candidates(others, max(different, key=_size)["verdict"])
    chosen = " It is shown because it differs most, which makes it look larger than it may be." if len(rows) > 1 else ""
    return [_answer(of_sides[sides], *sides, comparison, _num_measured(of_sides)) + chosen + more]


def _other_candidates(pairs_of: Mapping[str, Rows], shown: str) -> str:
    """Name the other candidates by the verdict of their one measured pair; count them where one has several."""
    named: dict[str, list[str]] = {verdict: [] for verdict in (shown, *VERDICTS, NOT_MEASURED)}
    for candidate, pairs in pairs_of.items():
        verdicts = [row["verdict"] for row in pairs if row["verdict"] != NOT_MEASURED] or [NOT_MEASURED]
        if len(verdicts) > 1:
            return f" The comparison has {pluralize(len(pairs_of), 'other value')}."
        named[verdicts[0]].append(candidate)
    return "".join(f" {_named_as(verdict, names, shown)}." for verdict, names in named.items() if names)


def _named_as(verdict: str, names: Sequence[str], shown: str) -> str:
    word = f"Also {verdict}" if verdict == shown else verdict.capitalize()
    return f"{word}: {_named(names)}"


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MAX_CANDIDATES
    return ", ".join(names[:_MAX_CANDIDATES]) + (f", and {more} more" if more > 0 else "")


def _open_answer(measured: Rows, what: str, axis: str, command: str) -> str:
    """Say that a stand-in axis has no answer. Its pairs are judged alone, as it was chosen by what they show."""
    answer = f"A difference in {what} along {axis} is neither shown nor ruled out"
    if len(measured) == 1 or len(rows_by_sides(measured)) > 1:
        return f"{answer}{_of(measured)}."
    return f"{answer} by any of {len(measured)} pairs alone; {command} judges them together."


def _num_measured(of_sides: Mapping[Any, Rows]) -> int:
    return sum(any(row["verdict"] != NOT_MEASURED for row in pairs) for pairs in of_sides.values())


def _answer(rows: Rows, candidate: str, baseline: str, comparison: ComparisonTable, num_answers: int) -> str:
    measured = [row for row in rows if row["verdict"] != NOT_MEASURED]
    if not measured:
        if text := _nothing_in_common(rows, candidate, baseline, comparison):
            return text
        # Contention is not a cause: it does not prevent a comparison.
        causes = Counter(without_contention(row["reason"]) for row in rows)
        reasons = _causes(causes)
        return f"{candidate} and {baseline} could not be compared: {reasons}{'' if reasons.endswith('?') else '.'}"
    varying = [name for name in comparison.settings if name in comparison.shown]
    found = overall_effect(measured, varying, sides=num_answers)
    if found.agrees:
        location = location_text(measured[0], comparison) if len(measured) == 1 else ""
        text = _agreement(found, measured, candidate, baseline, location)
    else:
        text = _range(found, measured, candidate, baseline)
    return f"{text}.{_verdict_counts(measured)}{caution_text(measured)}"


def _nothing_in_common(rows: Rows, candidate: str, baseline: str, comparison: ComparisonTable) -> str:
    """Say of two sweeps without a cell of equal settings which settings differ throughout; empty for any others."""
    alone = [[row for row in rows if f"{other}: {NO_RUN}" in (row["reason"] or "")] for other in (baseline, candidate)]
    if not all(alone) or sum(map(len, alone)) < len(rows) or rows[0]["axis"] != SWEEP_AXIS:
        return ""
    names = [side.removeprefix(f"{SWEEP_AXIS}=") for side in (candidate, baseline)]
    differing = []
    for setting in comparison.settings:
        ours, theirs = ([format_value(row[setting]) for row in some] for some in alone)
        if not set(ours) & set(theirs):
            values = (
                f"{', '.join(dict.fromkeys(some))} ({name})" for some, name in zip((ours, theirs), names, strict=True)
            )
            differing.append(f" {setting_name(setting)} differs: {', '.join(values)}.")
    more = len(differing) - _MAX_CAUSES
    others = f" So do {pluralize(more, 'other setting')}." if more > 0 else ""
    start = f"Nothing to compare: no run of {names[0]} has the settings of a run of {names[1]}."
    return f"{start}{''.join(differing[:_MAX_CAUSES])}{others}"


def _agreement(found: OverallEffect, rows: Rows, candidate: str, baseline: str, location: str) -> str:
    """Describe the mean effect with its interval. A speedup is that of the faster side."""
    over = "" if len(rows) == 1 else f", the {_mean_of(rows)} over {len(rows)} pairs"
    what = _metric_name(rows[0])
    if found.verdict == NO_DIFFERENCE:
        start = f"No difference in {what} between {candidate} and {baseline}{location}: "
    elif found.verdict not in DIFFERENT:
        start = f"Whether {candidate} and {baseline} differ in {what}{location} is not known: "
    elif rows[0].metric.effect == "speedup":
        return f"{_clause(found, rows[0], candidate, baseline, location)}{over}"
    else:
        start = f"{candidate} is {found.verdict} than {baseline}{location}: "
    return f"{start}{_clause(found, rows[0], candidate, baseline, '')}{over}"


def _mean_of(rows: Rows) -> str:
    return "mean" if rows[0].metric.effect == "difference" else "geometric mean"


def _clause(found: OverallEffect, row: ComparisonRow, candidate: str, baseline: str, location: str) -> str:
    """`cuda is 2.1 times as fast as cpu [1.8, 2.5]`, or the ratio or difference of the two sides' metric."""
    effect, estimate = row.metric.effect, found.estimate
    if effect != "speedup":
        value = row.metric.format_effect(estimate.value)
        least, most = row.metric.format_ends(estimate.low, estimate.high)
        how = "times" if effect == "ratio" else "above" if estimate.value >= 0 else "below"
        return f"its {row.metric.name} is {value.removeprefix('-')} {how} {baseline}'s [{least}, {most}]"
    ratio, low, high = estimate.value, estimate.low, estimate.high
    if found.verdict in BEHIND:
        candidate, baseline, ratio, low, high = baseline, candidate, 1 / ratio, 1 / high, 1 / low
    by = _by_metric(row)
    texts = [_short(value, least=low) for value in (ratio, low, high)]
    if found.verdict in DIFFERENT and texts[1] == "1.00":  # an end that is not 1 must not be rounded to it
        texts = [f"{value:.4f}" for value in (ratio, low, high)]
    return f"{candidate} is {texts[0]} times as fast as {baseline}{by}{location} [{texts[1]}, {texts[2]}]"


def _metric_name(row: ComparisonRow) -> str:
    return "speed" if row.metric == THROUGHPUT else row.metric.name


def _by_metric(row: ComparisonRow) -> str:
    return "" if row.metric == THROUGHPUT else f" by {row.metric.name}"


def _range(found: OverallEffect, rows: Rows, candidate: str, baseline: str) -> str:
    """Describe disagreeing pairs: the range of their effects, and the setting that these depend on."""
    metric = rows[0].metric
    effect = metric.effect
    ends = sorted(row[effect] for row in rows)

    def text_of(value: float) -> str:
        return _short(value, least=ends[0]) if effect == "speedup" else metric.format_effect(value)

    low, high = (text_of(value) for value in (ends[0], ends[-1]))
    of = candidate if metric == THROUGHPUT else f"{metric.name} of {candidate}"
    if effect == "speedup":
        whole = f"{candidate} is {low} to {high} times as fast as {baseline}{_by_metric(rows[0])}"
    elif effect == "ratio":
        whole = f"The {of} is {low} to {high} times {baseline}'s"
    else:
        whole = f"The {of} less {baseline}'s is {low} to {high}"
    if found.setting is None or not found.effects:
        return f"{whole}: the pairs differ by more than noise, and no setting alone explains it"
    name, by_value = setting_name(found.setting), sorted(found.effects.items(), key=lambda each: each[1])
    low, high = (f"{text_of(value)} at {name}={text}" for text, value in (by_value[0], by_value[-1]))
    return f"{whole}, depending on {name}: {low}, {high}"


def _causes(causes: Counter[str]) -> str:
    """Join the most common causes, each with its share of the pairs where there is more than one."""
    if len(causes) == 1:
        return next(iter(causes))
    named = [f"{cause} ({count} of {causes.total()} pairs)" for cause, count in causes.most_common(_MAX_CAUSES)]
    more = len(causes) - len(named)
    return "; ".join([*named, f"and {pluralize(more, 'other reason')}"] if more else named)


def without_contention(reason: str) -> str:
    """Remove contention from a reason that has other parts."""
    return reason.partition("; ")[2] or reason if reason.startswith(CONTENDED) else reason


def caution_text(measured: Rows) -> str:
    """Return warnings where medians hide costs, or the pairs were contended."""
    hidden = any(mentions_hidden_costs(row["reason"]) for row in measured)
    whole = " The medians hide slower or faster epochs: see `overall_samples_per_second`." if hidden else ""
    met = sum((row["reason"] or "").startswith(CONTENDED) for row in measured)
    if not met:
        return whole
    which = "Its runs" if len(measured) == 1 else f"The runs of {met} of the {len(measured)} pairs"
    return f"{whole} {which} were contended: other load was on the machine, so measure again when it is quiet."


def _size(row: ComparisonRow) -> float:
    """Return the size of an effect, in either direction."""
    value: float = row[row.metric.effect]
    return abs(value) if row.metric.effect == "difference" else max(value, 1 / value)


_SMALL = 0.01  # two decimals would leave nothing of it


def _short(ratio: float, *, least: float | None = None) -> str:
    """Format a ratio with two digits, as it is known to a few percent, or three near 1, to distinguish it from 1.

    Ratios that are printed together have the decimals of the `least` of them.
    """
    least = ratio if least is None else least
    if least >= 100:
        return f"{ratio:,.0f}"
    if least < _SMALL:
        return f"{ratio:.2g}"
    return f"{ratio:.1f}" if least >= 2 else f"{ratio:.2f}"


def _verdict_counts(measured: Rows) -> str:
    """Count the verdicts of the single pairs."""
    if len(measured) == 1:
        return ""
    counts = Counter(row["verdict"] for row in measured)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    return f" Of {len(measured)} measured pairs: {verdicts}."


def _of(measured: Rows) -> str:
    return f" in {len(measured)} pairs" if len(measured) > 1 else ""


def location_text(row: Row, table: Table) -> str:
    """Return the settings of a row as ` at batch_size=100`; empty where no other setting varies."""
    settings = named_settings(row, table)
    return f" at {settings}" if settings else ""


def named_settings(row: Row, table: Table, *, without: Collection[str] = ()) -> str:
    """Return the settings of a row that vary in its table, as given in a command."""
    names = [name for name in table.settings if name in table.shown and name not in without]
    present = [name for name in names if name not in row.absent_settings]
    return ", ".join(f"{setting_name(name)}={format_value(row[name])}" for name in present)
