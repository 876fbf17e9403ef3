"""The figures of an outcome against the latency of inference: which cells no other cell beats in both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.verdict import AHEAD, BEHIND, NO_DIFFERENCE, judge
from runmanager.results.figures.axes import set_number_scale
from runmanager.results.figures.figure import SweepFigure, join_names, numbered_names
from runmanager.results.figures.style import GREY, add_legend_below, label_text, new_figure, series_style
from runmanager.results.findings.best import RankedCell, asked_metric, group_seeds
from runmanager.results.load.cells import gather_cells
from runmanager.results.load.contention import causes_by_run
from runmanager.results.metrics.metric import Metric, by_batch_size, inference_metric, inference_names
from runmanager.results.metrics.metric_lookup import default_metrics, find_metric
from runmanager.results.table_model.formatting import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_CELLS = 12  # each is compared with each other one
_MAX_SIZES = 3

NOT_BEATEN, NOT_KNOWN, BEATEN = (
    "not beaten in both",
    "not known to be beaten",
    "beaten in one, and not better in the other",
)


@dataclass(frozen=True)
class TradeOff:
    """Cells by an outcome and by the latency with batches of one size, and the `state` of each cell by its label.

    A cell is not beaten where it is shown to be ahead of each other cell in one of the two at least. It is beaten where
    another one is shown to be ahead of it in one of the two, and ahead or no different in the other.
    """

    outcome: Metric
    latency: Metric
    batch_size: int
    values: Mapping[str, tuple[float, float]]
    state: Mapping[str, str]
    num_left_out: int

    def in_words(self) -> str:
        """The states in a sentence each."""
        kinds = {
            state: [label for label, found in self.state.items() if found == state]
            for state in (NOT_BEATEN, NOT_KNOWN, BEATEN)
        }
        parts = [f"{state}: {join_names(labels)}" for state, labels in kinds.items() if labels]
        more = f"; {self.num_left_out} more cells are not compared" if self.num_left_out else ""
        return f"{'; '.join(parts)}{more}.".capitalize() if parts else ""


def trade_offs(sweep: SweepContents, plan: SweepRecord | None) -> list[TradeOff]:
    """Return a trade-off by the preferred outcome for each of the first batch sizes that two cells have measured."""
    latency = inference_metric("latency_p50_seconds")
    if latency is None or not inference_names(sweep.runs):
        return []
    sizes = [(size, metric) for size, metric in by_batch_size(latency, sweep.runs) if size is not None]
    for name in (*asked_metric(sweep, plan), *default_metrics(sweep.runs)):
        outcome = find_metric(name, sweep.runs)
        found = [_trade_off(sweep, plan, outcome, metric, size) for size, metric in sizes[:_MAX_SIZES]]
        if any(found):
            return [each for each in found if each is not None]
    return []


def _trade_off(
    sweep: SweepContents, plan: SweepRecord | None, outcome: Metric, latency: Metric, size: int
) -> TradeOff | None:
    cells = gather_cells(sweep.runs, sweep.damaged, plan)
    of_both = [
        pair
        for pair in zip(*(group_seeds(cells, metric, None) for metric in (outcome, latency)), strict=True)
        if all(each.side.values and not each.side.without_values for each in pair)
    ]
    if len(of_both) < 2:
        return None
    of_both.sort(key=lambda pair: float(pair[0].spread), reverse=outcome.more_is_better)
    compared = of_both[:_MAX_CELLS]
    labels = [pair[0].side.label for pair in compared]
    ahead = [_ahead([pair[at] for pair in compared], sweep) for at in (0, 1)]
    return TradeOff(
        outcome,
        latency,
        size,
        {label: (float(one.spread), float(other.spread)) for label, (one, other) in zip(labels, compared, strict=True)},
        {label: _state(at, ahead, len(labels)) for at, label in enumerate(labels)},
        len(of_both) - len(compared),
    )


def _ahead(cells: Sequence[RankedCell], sweep: SweepContents) -> dict[tuple[int, int], int | None]:
    """Whether the first cell of a pair is shown to be ahead (1), behind (-1) or no different (0); None: not known."""
    pairs = list(combinations(range(len(cells)), 2))
    sides = [(cells[other].side, replace(cells[one].side, label="another")) for one, other in pairs]
    found = {**dict.fromkeys(AHEAD, 1), **dict.fromkeys(BEHIND, -1), NO_DIFFERENCE: 0}
    ahead: dict[tuple[int, int], int | None] = {}
    for (one, other), judgement in zip(pairs, judge(sides, causes_by_run(sweep.runs), CompareOptions()), strict=True):
        sign = found.get(judgement.verdict)
        ahead[one, other], ahead[other, one] = sign, None if sign is None else -sign
    return ahead


def _state(at: int, ahead: Sequence[Mapping[tuple[int, int], int | None]], count: int) -> str:
    others = [[of_metric[at, other] for of_metric in ahead] for other in range(count) if other != at]
    if all(1 in signs for signs in others):
        return NOT_BEATEN
    is_beaten = any(-1 in signs and all(sign in (-1, 0) for sign in signs) for signs in others)
    return BEATEN if is_beaten else NOT_KNOWN


def trade_off_figures(sweep: SweepContents, plan: SweepRecord | None) -> list[SweepFigure]:
    """A figure for each trade-off."""
    found = trade_offs(sweep, plan)
    names = numbered_names("trade-off", found)
    return [_figure(name, each) for name, each in zip(names, found, strict=True)]


def _figure(name: str, found: TradeOff) -> SweepFigure:
    title = f"{found.outcome.name} against latency with batches of {found.batch_size}"
    caption = (
        f"{title}, means over seeds, by intervals that hold jointly with 95% for each of the two. {found.in_words()}"
    )
    ends = [f"{label}: {number(one)}, {number(other)} s" for label, (one, other) in found.values.items()]
    return SweepFigure(name, title, caption, f"{'; '.join(ends)}.", partial(_draw, found))


def _draw(found: TradeOff) -> "Figure":
    figure, axes = new_figure(height=3.4)
    for index, state in enumerate((NOT_BEATEN, NOT_KNOWN, BEATEN)):
        style = series_style(index)
        points = [found.values[label][::-1] for label, known in found.state.items() if known == state]
        if points:
            colour = GREY if state == BEATEN else style.colour
            axes.plot(*zip(*points, strict=True), style.marker, color=colour, linestyle="none", label=state)
    for label, (outcome, latency) in found.values.items():
        axes.annotate(
            label_text(label), (latency, outcome), xytext=(4, 4), textcoords="offset points", fontsize="x-small"
        )
    set_number_scale(axes, "x", log=True)
    set_number_scale(axes, "y")
    axes.set_xlabel(f"latency p50 seconds, batches of {found.batch_size}")
    axes.set_ylabel(label_text(found.outcome.name))
    add_legend_below(figure, columns=1)
    return figure
