"""The best cell of a sweep by a metric, over its seeds, and which others cannot be told from it."""

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import msgspec

from runmanager.errors import UsageError
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.records.sweep.record import SweepRecord
from runmanager.results.compare.metrics import PLAIN_METRICS, Metric, find_metric
from runmanager.results.compare.options import CompareOptions
from runmanager.results.compare.pairing import SEED, frozen
from runmanager.results.compare.side import Side
from runmanager.results.compare.verdict import DIFFERENT, NOT_MEASURED, Judgement, judge
from runmanager.results.findings.comparison_findings import without_contention
from runmanager.results.load.cells import Cell, Cells, gather_cells
from runmanager.results.load.contention import contention, exposure_of
from runmanager.results.model.columns import OUTCOMES
from runmanager.results.model.formatting import Spread, human
from runmanager.results.model.sections import Section
from runmanager.results.stats.descriptive import mean, median
from runmanager.text import format_value, pluralize

__all__ = ["Best", "Contender", "best_headline", "best_sections", "best_to_json", "find_best"]

_ABSENT = object()


@dataclass(frozen=True)
class Contender:
    """A cell with all its seeds; `side` has its finished runs and their values of the metric.

    `settings` are those in which the sweep's cells differ, without the seed and what the cell does not have.
    """

    settings: dict[str, Any]
    side: Side

    @cached_property
    def spread(self) -> Spread:
        """The typical value of its runs, by which cells are ranked and judged, with their deviation and count."""
        return Spread.of([_middle(values) for values in self.side.values], around=self.side.typical)

    @property
    def runs(self) -> list[tuple[StoredRun, float]]:
        """Its finished runs with their values, the best first."""
        pairs = [(run, _middle(values)) for run, values in zip(self.side.finished, self.side.values, strict=True)]
        return sorted(pairs, key=lambda pair: pair[1], reverse=self.side.metric.more_is_better)

    @property
    def num_unfinished(self) -> int:
        """Its runs that have not finished, and so say nothing."""
        return len(self.side.cells) - len(self.side.finished)


@dataclass(frozen=True, repr=False)
class Best:
    """The winner among `num_cells` cells, the next one, and what stands between them.

    `verdict` and `reason` are those of a comparison of the two, winner as candidate: `not measured` where too few runs
    were made to tell. All other cells are compared with the winner, by intervals that hold together for any two cells:
    `rivals` are those that cannot be told from it, the best first; of the `unmeasured` too few runs were made to tell,
    or something stands against a comparison. `flattery` is how much better the winner may look
    than it is, as it was picked after looking; None where its noise is not known. `num_ties` other cells have the
    winner's very mean, `num_left_out` have a finished run without a value of the metric. `instead_of` is the metric
    that it would be by if any finished run had it, where nobody asked for one.
    """

    metric: Metric
    winner: Contender
    runner_up: Contender | None
    verdict: str
    reason: str | None
    rivals: Sequence[Contender]
    unmeasured: Sequence[Contender]
    flattery: float | None
    num_cells: int
    num_ties: int
    num_left_out: int
    instead_of: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The winner's settings, those in which the cells differ."""
        return self.winner.settings

    @property
    def value(self) -> Spread:
        """The winner's mean, a number that also knows its `deviation` and the `count` of its runs."""
        return self.winner.spread

    @property
    def run(self) -> StoredRun:
        """The best one of the winner's runs."""
        return self.winner.runs[0][0]

    def __repr__(self) -> str:
        headline = best_headline(self)
        return "\n".join([headline[0].upper() + headline[1:], *self.sentences()])

    def sentences(self) -> list[str]:
        """By what it is the best, where that is not what is usual, and how sure it is."""
        said = []
        if self.instead_of is not None:
            said.append(
                f"No cell has a {self.instead_of} in each of its finished runs, so this is by {self.metric.name}."
            )
        if self.runner_up is None:
            return [*said, "It is the only cell with this metric: there is no other to be better than."]
        behind = _figure(self.runner_up, self.metric)
        said.append(f"Next is {self.runner_up.side.label} with {behind}.")
        if self.verdict in DIFFERENT:
            said.append(f"The difference is outside the noise ({self.reason})." if self.reason else _OUTSIDE)
        elif self.verdict == NOT_MEASURED:
            said.append(f"Whether it is truly behind is not known: {without_contention(self.reason or '')}.")
        said += [*self._about_rivals(), *self._about_unmeasured()]
        if self.num_ties:
            said.append(f"{pluralize(self.num_ties, 'other cell has', 'other cells have')} the very same mean.")
        if self.num_cells > 2 and (self.rivals or self.flattery is None):
            said.append(self._about_picking())
        return said

    def _about_rivals(self) -> list[str]:
        """The cells that may as well be the best ones, and why they are in doubt where their runs say so."""
        if not self.rivals:
            return []
        count = f"{len(self.rivals)} cells" if len(self.rivals) > 1 else "One cell"
        said = [f"{count} cannot be told from the best one: {_named(self.rivals)}."]
        is_about_them = self.reason and self.verdict not in (*DIFFERENT, NOT_MEASURED)
        return [*said, f"({self.reason}.)"] if is_about_them else said

    def _about_unmeasured(self) -> list[str]:
        """The cells behind the next one that could not be compared, where others could."""
        others = [each for each in self.unmeasured if each is not self.runner_up]
        if not others or len(self.unmeasured) == self.num_cells - 1:
            return []
        count = f"{len(others)} more cells" if len(others) > 1 else "one more cell"
        return [f"Of {count} too little is known to tell: {_named(others)}."]

    def _about_picking(self) -> str:
        """What picking the best one after looking makes of its mean."""
        picked = f"The best of {self.num_cells} cells was picked after looking, so its mean is likely a little too good"
        if self.flattery is None:
            return f"{picked}: by how much is not known without more seeds."
        size = human(self.flattery, self.metric.name)
        return f"{picked}: by {size} on average, if the {len(self.rivals) + 1} that cannot be told apart are equal."


_OUTSIDE = "The difference is outside the noise."
_MOST_NAMED = 10


def find_best(
    sweep: SweepContents,
    plan: SweepRecord | None,
    *,
    metric: str | None = None,
    folders: Collection[str] | None = None,
    options: CompareOptions | None = None,
) -> Best:
    """The cell that is best by the mean of `metric` over its seeds (the geometric mean of times and rates).

    `folders` names the runs that count (None: all).
    Every other cell is compared with it, as one of all pairs of cells: the best was picked after looking, and any two
    might have been the first and another (Tukey's comparisons, here by max-t; Hochberg and Tamhane, *Multiple
    Comparison Procedures*, 1987).
    Without a metric it is the first of `OUTCOMES` that a cell has; the answer says so where that is not the first.
    Only cells of which every finished run has the metric are in: those that never reach an accuracy have no time to it.
    Raises `UsageError` for an unknown metric, and where no finished run has it.
    """
    cells = gather_cells(sweep.runs, sweep.damaged, plan)

    def sides_by(name: str) -> list[Contender]:
        return _contenders(cells, find_metric(name), folders)

    named = metric or next((name for name in OUTCOMES if _with_values(sides_by(name))), OUTCOMES[0])
    asked, sides = find_metric(named), sides_by(named)
    contenders = _with_values(sides)
    if not contenders:
        raise UsageError(_why_none(named, sides, [name for name in PLAIN_METRICS if _with_values(sides_by(name))]))
    sign = -1 if asked.more_is_better else 1
    winner, *others = sorted(contenders, key=lambda each: sign * float(each.spread))
    met = contention([exposure_of(run) for run in sweep.runs])
    shared_host = {run.paths.root: causes for run, causes in zip(sweep.runs, met, strict=True)}
    # By their places and not by their settings, which the reasons would say again and again.
    ahead = replace(winner.side, label="the best")
    pairs = [(replace(each.side, label="the next"), ahead) for each in others]
    among = len(contenders) * len(others) // 2
    rows = judge(pairs, shared_host, options or CompareOptions(), among=among)
    found = list(zip(others, rows, strict=True))
    rivals = [each for each, row in found if row.verdict not in (*DIFFERENT, NOT_MEASURED)]
    return Best(
        asked,
        winner,
        others[0] if others else None,
        rows[0].verdict if rows else NOT_MEASURED,
        rows[0].reason if rows else None,
        rivals,
        [each for each, row in found if row.verdict == NOT_MEASURED],
        _flattery(winner, rows, len(rivals)),
        len(contenders),
        sum(float(each.spread) == float(winner.spread) for each in others),
        len([each for each in sides if each.side.finished]) - len(contenders),
        OUTCOMES[0] if metric is None and named != OUTCOMES[0] else None,
    )


def _flattery(winner: Contender, rows: Sequence[Judgement], num_rivals: int) -> float | None:
    """By how much the winner's mean exceeds the truth on average, were its rivals as good as it is.

    That is the expected largest of so many normal numbers, times the standard error of a cell's mean: half of the
    variance of two cells' difference. The expectation is Blom's approximation (*Statistical Estimates and Transformed
    Beta-Variables*, 1958).
    """
    errors = [row.effect.estimate.error for row in rows if row.effect is not None and row.effect.estimate.freedom]
    if not errors:
        return None
    count = num_rivals + 1
    error = math.sqrt(mean([each**2 for each in errors]) / 2)
    if not error:
        return None  # the runs differ by less than their metric's rounding
    largest = NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if num_rivals else 0.0
    if winner.side.metric.effect == "difference":
        return error * largest
    return float(winner.spread) * -math.expm1(-error * largest)


def _contenders(cells: Cells, metric: Metric, folders: Collection[str] | None) -> list[Contender]:
    names = [name for name in cells.varying if name != SEED]
    groups: dict[Hashable, list[Cell]] = {}
    for cell in cells.cells:
        if cell.stored is not None and (folders is None or cell.stored.paths.name in folders):
            key = tuple(frozen(cells.value(cell, name, _ABSENT)) for name in names)
            groups.setdefault(key, []).append(cell)
    contenders = []
    for members in groups.values():
        values = {name: cells.value(members[0], name, _ABSENT) for name in names}
        settings = {name: value for name, value in values.items() if value is not _ABSENT}
        label = ", ".join(f"{name}={format_value(value)}" for name, value in settings.items()) or members[0].run
        paired = all(cells.value(cell, "measure.name") == "paired" for cell in members)
        contenders.append(Contender(settings, Side(label, members, metric, paired)))
    return contenders


def _with_values(sides: Sequence[Contender]) -> list[Contender]:
    return [each for each in sides if each.side.finished and not each.side.without_values]


def _why_none(metric: str, sides: Sequence[Contender], others: Sequence[str]) -> str:
    if any(each.side.finished for each in sides):
        way_out = f"; there is {', '.join(others)}." if others else "."
        said = f"`--metric` must be one that a finished run has, got '{metric}' and a run without it in every cell"
        return said + way_out
    num_runs = sum(len(each.side.cells) for each in sides)
    return f"The best must be one of finished runs, got no finished run among {num_runs}."


def _middle(values: Sequence[float]) -> float:
    middle = median(values)
    assert middle is not None  # a side keeps runs that have values only
    return middle


def _named(contenders: Sequence[Contender]) -> str:
    """The first of them by what they are called, and how many more there are."""
    labels = [each.side.label for each in contenders]
    more = len(labels) - _MOST_NAMED
    return "; ".join(labels[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _figure(contender: Contender, metric: Metric) -> str:
    count = contender.spread.count
    # A table's row of several seeds has the arithmetic one.
    kind = "geometric mean, " if count > 1 and metric.effect != "difference" else ""
    return f"{human(contender.spread, metric.name)} ({kind}n={count})"


def best_headline(best: Best) -> str:
    """The answer in a line."""
    return f"the best {best.metric.name} is {_figure(best.winner, best.metric)} with {best.winner.side.label}."


def best_sections(best: Best, *, trust: bool = False) -> list[Section]:
    """The winner for people: its runs, the best first, what is left out, and where the best one's weights are.

    Whoever has said to `trust` the run gets a call that does.
    """
    runs = [(run.record.name, human(value, best.metric.name)) for run, value in best.winner.runs]
    lines = []
    if best.winner.num_unfinished:
        lines.append(f"{best.winner.num_unfinished} more of its runs did not finish.")
    if best.num_left_out:
        cells = pluralize(best.num_left_out, "cell is", "cells are")
        lines.append(f"{cells} left out: not every finished run there has the metric.")
    return [
        Section("Runs", runs, ("run", best.metric.name), lines),
        Section("Settings that vary", [(name, format_value(value)) for name, value in best.winner.settings.items()]),
        Section("Weights of the first", lines=_weights(best.winner.runs[0][0], trust=trust)),
    ]


def _weights(stored: StoredRun, *, trust: bool) -> list[str]:
    paths = stored.paths
    run = f"{paths.root.parent.parent}/{paths.name}"
    trusting = ", trust=True" if trust else ""
    if paths.best.exists():
        return [str(paths.best), f"runmanager.load_model({run!r}, best=True{trusting})"]
    if paths.checkpoint.exists():
        return [str(paths.checkpoint), f"runmanager.load_model({run!r}{trusting})"]
    if stored.record.unsigned is not None:
        return ["none were kept; a loop of its own saves its model itself"]
    return ["none were kept; checkpoint.keep_best=val_accuracy keeps the best ones"]


def best_to_json(best: Best, *, command: Sequence[str] | None) -> str:
    """An object: the metric, the winner with its runs, the runner-up, verdict and reason.

    `command` makes the cell; it is null where none may be given.
    """
    found = {
        "metric": best.metric.name,
        "best": _plain(best.winner),
        "runner_up": None if best.runner_up is None else _plain(best.runner_up),
        "verdict": best.verdict,
        "reason": best.reason,
        "rivals": [each.settings for each in best.rivals],
        "unmeasured": [each.settings for each in best.unmeasured],
        "flattery": best.flattery,
        "num_cells": best.num_cells,
        "num_ties": best.num_ties,
        "num_left_out": best.num_left_out,
        "command": command and list(command),
    }
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def _plain(contender: Contender) -> dict[str, Any]:
    spread = contender.spread
    return {
        "settings": contender.settings,
        "mean": float(spread),
        "deviation": spread.deviation,
        "seeds": spread.count,
        "unfinished": contender.num_unfinished,
        "runs": [
            {"run": run.record.name, "value": value, "folder": str(run.paths.root)} for run, value in contender.runs
        ],
    }
