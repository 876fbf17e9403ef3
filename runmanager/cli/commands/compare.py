"""`runmanager compare`: the runs of a sweep that differ in one setting only, or those of two sweeps, compared."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.arguments import (
    AtOption,
    BetterOption,
    SweepName,
    complete_axes,
    complete_baselines,
    complete_crossovers,
    complete_metrics,
    complete_sweeps,
)
from runmanager.cli.conditions import (
    FailIfOption,
    Verdict,
    answer_conditions,
    duel_of_sides,
    duel_of_sweeps,
    options_of_table,
)
from runmanager.cli.printing import (
    DATA_FORMATS,
    TableFormat,
    console,
    max_text_rows,
    print_rendered,
    print_table,
    print_text,
    print_warning,
    warn_damaged,
)
from runmanager.errors import UsageError
from runmanager.records.host.standard_streams import print_line
from runmanager.records.run.measurement import COMPARED, named
from runmanager.records.sweep.lookup import find_sweep, typed_name
from runmanager.text import in_backticks, printable_line, shell_join

if TYPE_CHECKING:
    from runmanager.records.storage.reader import SweepContents
    from runmanager.records.sweep.sweep_record import SweepRecord
    from runmanager.results.compare.comparison_table import CompareOptions, ComparisonRow, ComparisonTable
    from runmanager.results.compare.matched_pairs import Matches
    from runmanager.results.gate.sweep_pairs import TwoSweeps


_SPEEDS = named(each for each in COMPARED if each.effect == "speedup")
_OTHERS = ", ".join(name for name in named(COMPARED) if name not in _SPEEDS)


@dataclass(frozen=True)
class OneSweep:
    """The pairs within one sweep."""

    contents: "SweepContents"
    plan: "SweepRecord | None"
    title: str

    @classmethod
    def read(cls, name: str) -> "OneSweep":
        from runmanager.results.load.loader import read_results

        paths = find_sweep(name)
        return cls(*read_results(paths), f"Comparison of {paths.name}")

    def with_metric(self, options: "CompareOptions") -> "CompareOptions":
        from runmanager.results.compare.sweep_question import with_metric_of_sweep

        return with_metric_of_sweep(self.contents, self.plan, options)

    def match(self, options: "CompareOptions") -> "Matches":
        from runmanager.results.compare.matched_pairs import match_sides

        return match_sides(self.contents, self.plan, options)

    def in_turn(self, options: "CompareOptions", matches: "Matches") -> "tuple[CompareOptions, Matches]":
        from runmanager.results.compare.sweep_question import in_turn

        return in_turn(self.contents, self.plan, options, matches)

    def along_only_axis(self, options: "CompareOptions", matches: "Matches") -> "tuple[CompareOptions, Matches]":
        from runmanager.results.compare.sweep_question import along_only_axis

        return along_only_axis(self.contents, self.plan, options, matches)

    def compare(self, matches: "Matches", options: "CompareOptions") -> "ComparisonTable":
        from runmanager.results.compare.comparison import compare_matches

        return compare_matches(self.contents, matches, options)

    def answers(self, pairs: "ComparisonTable", options: "CompareOptions") -> list[str]:
        from runmanager.results.findings.answer_sentences import answers
        from runmanager.results.metrics.metric_lookup import requested_metric
        from runmanager.results.tables.results_table import result_rows

        runs = self.contents.runs
        metric = requested_metric(options.metric, runs, better=options.better)
        by = options.metric if metric is not None and metric.effect == "difference" else None  # the best is no speed
        better = None if by is None else options.better
        return answers(result_rows(self.contents, self.plan), pairs, runs=runs, metric=by, better=better)

    @property
    def typed_names(self) -> list[str]:
        return [typed_name(self.contents.paths)]

    @property
    def duel(self) -> "Callable[[ComparisonRow], str]":
        return partial(duel_of_sides, runs=self.contents.runs, seed_names=self.plan.seed_names if self.plan else ())


@dataclass(frozen=True)
class SweepPair:
    """The pairs across two sweeps."""

    sweeps: "TwoSweeps"

    @classmethod
    def read(cls, baseline: str, candidate: str) -> "SweepPair":
        from runmanager.results.gate.sweep_pairs import read_two_sweeps

        return cls(read_two_sweeps(find_sweep(baseline), find_sweep(candidate)))

    @property
    def contents(self) -> "SweepContents":
        return self.sweeps.together

    @property
    def plan(self) -> "SweepRecord | None":
        return self.sweeps.plans[1]

    @property
    def title(self) -> str:
        return f"Comparison of {self.sweeps.names[1]} with {self.sweeps.names[0]}"

    def with_metric(self, options: "CompareOptions") -> "CompareOptions":
        from runmanager.results.compare.sweep_question import with_metric_of_untimed

        return with_metric_of_untimed(self.contents.runs, self.plan, options)

    def match(self, options: "CompareOptions") -> "Matches":
        return self.sweeps.match(options)

    def in_turn(self, options: "CompareOptions", matches: "Matches") -> "tuple[CompareOptions, Matches]":
        return options, matches  # two sweeps have one axis: themselves

    def along_only_axis(self, options: "CompareOptions", matches: "Matches") -> "tuple[CompareOptions, Matches]":
        return options, matches

    def compare(self, matches: "Matches", options: "CompareOptions") -> "ComparisonTable":
        return self.sweeps.compare_matches(matches, options)

    def answers(self, pairs: "ComparisonTable", options: "CompareOptions") -> list[str]:
        from runmanager.results.findings.comparison_findings import comparison_answers

        return [line for lines in comparison_answers(pairs.rows, pairs) for line in lines]

    @property
    def typed_names(self) -> list[str]:
        return [typed_name(each.paths) for each in self.sweeps.contents]

    @property
    def duel(self) -> "Callable[[ComparisonRow], str]":
        runs = [each.runs for each in self.sweeps.contents]
        command, seed_names = ((), ()) if self.plan is None else (self.plan.command, self.plan.seed_names)
        return partial(duel_of_sweeps, runs=runs, command=command, seed_names=seed_names)


class CompareFormat(StrEnum):
    """Output formats of a comparison: those of tables, and a comment for GitHub."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"
    LATEX = "latex"
    HTML = "html"
    GITHUB = "github"


def compare(
    sweep: SweepName,
    candidate: Annotated[
        str | None,
        typer.Argument(
            metavar="[CANDIDATE]",
            help="A second sweep: its cells are compared with those of equal settings in the first, the baseline.",
            show_default=False,
            autocompletion=complete_sweeps,
        ),
    ] = None,
    axis: Annotated[
        str | None,
        typer.Option(
            help="The setting or group whose values are compared, several joined by +; any: each that varies. "
            "Default: the axis of a paired sweep, else device, or what varies if no two devices can be compared.",
            autocompletion=complete_axes,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="The value to compare against. Default: cpu for device, else the first value.",
            autocompletion=complete_baselines,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help=f"The metric to compare: {', '.join(_SPEEDS)}, time_to_accuracy=0.95, {_OTHERS}, any logged metric "
            "and the time to it (time_to_val/f1=0.8), and tokens_per_second for any counted unit. Default: "
            "samples_per_second; in text the outcome, such as val_accuracy, where nothing was timed, and where only "
            "settings such as lr or optimizer vary and that has an answer.",
            show_default=False,
            autocompletion=complete_metrics,
        ),
    ] = None,
    better: BetterOption = None,
    at: AtOption = "last",
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Only pairs that meet it: 'verdict==faster and batch_size>100'. Intervals hold for all pairs jointly.",
        ),
    ] = None,
    crossover: Annotated[
        str | None,
        typer.Option(
            metavar="AXIS",
            help="Find the value of AXIS (num_parameters, batch_size, …) from which one side is ahead.",
            autocompletion=complete_crossovers,
        ),
    ] = None,
    drift: Annotated[
        float,
        typer.Option(
            help="The most by which the machine may drift if one side ran after the other; the interval includes it."
        ),
    ] = 0.1,
    margin: Annotated[
        float | None,
        typer.Option(
            help="The largest effect that counts as no difference: a share for ratios (default 0.03), "
            "in their own unit for accuracies, losses and logged metrics.",
            show_default=False,
        ),
    ] = None,
    show_all: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Show every row (a terminal shows 50), shorter runs that longer ones continue, unmeasured pairs.",
        ),
    ] = False,
    fail_if: FailIfOption = None,
    format_: Annotated[
        CompareFormat,
        typer.Option("--format", help="Files hold every row and column; github is a comment in Markdown."),
    ] = CompareFormat.TEXT,
) -> int:
    """Compare the runs of a sweep that differ in one setting only, or two sweeps, with the noise stated.

    Of two sweeps, commit, library versions, host and device may differ: they are what is compared.
    """
    from runmanager.app.programs.cell_metrics import advice_without_metrics
    from runmanager.results.compare.comparison_table import CompareOptions
    from runmanager.results.compare.sweep_question import with_metric_of_untimed
    from runmanager.results.findings.crossover import crossover_answers
    from runmanager.results.gate.fail_if import parse_condition
    from runmanager.results.metrics.metric_lookup import any_direction, printed_notes
    from runmanager.results.tables.query import TableQuery
    from runmanager.results.tables.shown_rows import without_shorter_runs, without_unmeasured_sides

    if crossover is not None and format_ in (CompareFormat.CSV, CompareFormat.JSON, CompareFormat.GITHUB):
        raise UsageError(
            f"`--crossover` must go with a format that has sentences, got --format {format_}; use markdown."
        )
    query = TableQuery.parse(where=where)
    conditions = [parse_condition(text) for text in fail_if or ()]
    pairing = OneSweep.read(sweep) if candidate is None else SweepPair.read(sweep, candidate)
    requested = CompareOptions(axis, baseline, better=better, at=at, drift=drift, margin=margin)
    if metric is not None:
        requested = dataclasses.replace(requested, metric=metric)
    elif format_ is CompareFormat.TEXT and conditions:
        requested = with_metric_of_untimed(pairing.contents.runs, pairing.plan, requested)
    elif format_ is CompareFormat.TEXT:
        requested = pairing.with_metric(requested)
    options = options_of_table(conditions, requested, pairing.contents.runs) if conditions else requested
    matches = pairing.match(options)
    if conditions:
        options, matches = pairing.along_only_axis(options, matches)
        requested = dataclasses.replace(requested, axis=options.axis)
    if format_ is not CompareFormat.TEXT:
        matches = matches.without_stand_in()
    elif not conditions:
        options, matches = pairing.in_turn(options, matches)
    every_pair = pairing.compare(matches, options)
    pairs = query.of_comparison(every_pair)

    def comparison_by(wanted: "CompareOptions") -> "ComparisonTable":
        if wanted == options:
            return pairs
        return query.of_comparison(pairing.compare(pairing.match(wanted).without_stand_in(), wanted))

    verdict = answer_conditions(conditions, options, comparison_by, pairing.contents, pairing.duel, requested=requested)
    sentences = [*_sentences(matches), *printed_notes(matches.metric.name, pairing.contents.runs)]
    crossing = crossover_answers(matches, every_pair, crossover) if crossover is not None else []
    if format_ is CompareFormat.TEXT:
        found = pairing.answers(pairs, options)
        shown = pairs if show_all or where is not None else without_unmeasured_sides(without_shorter_runs(pairs))
        if metric is None and every_pair.rows:
            shown = dataclasses.replace(shown, notes=(*shown.notes, *_other_question(pairing, options, where)))
        answers = [*found, "", *crossing] if crossing else found
        if not any(map(any_direction(options.metric, pairing.contents.runs).values, pairing.contents.runs)):
            answers = [*answers, *advice_without_metrics(pairing.contents.runs)]
        _show_pairs(shown, sentences, answers, show_all=show_all)
        print_text("".join(f"{printable_line(line)}\n" for line in verdict.lines))  # not wrapped: they hold commands
    elif format_ is CompareFormat.GITHUB:
        from runmanager.results.report.markdown_summary import github_comment

        found = pairing.answers(pairs, options)
        print_text(github_comment(pairs, pairing.title, found, verdict.lines, verdict.status))
    else:
        _print_file(
            pairs, TableFormat(format_), pairing, [*sentences, *crossing], verdict, is_filtered=where is not None
        )
    return verdict.exit_status


def _sentences(matches: "Matches") -> list[str]:
    from runmanager.results.findings.bottleneck import bottleneck_notes
    from runmanager.results.findings.roofline import roofline_lines

    return [*bottleneck_notes(matches), *roofline_lines(matches)]


def _other_question(pairing: "OneSweep | SweepPair", options: "CompareOptions", where: str | None) -> list[str]:
    """Say how to compare by quality instead of speed, or the reverse, where no metric was named."""
    from runmanager.results.compare.sweep_question import other_metric
    from runmanager.results.metrics.metric import LAST, THROUGHPUT

    other = other_metric(pairing.contents.runs, pairing.plan, options.metric)
    if not other:
        return []
    asked = dataclasses.replace(options, at=LAST, better=None) if other == THROUGHPUT.name else options
    among = [] if where is None else ["--where", where]
    command = shell_join(["runmanager", "compare", *pairing.typed_names, *asked.words(), "--metric", other, *among])
    return [f"By another metric: {in_backticks(command)}."]


def _print_file(
    pairs: "ComparisonTable",
    format_: TableFormat,
    pairing: OneSweep | SweepPair,
    sentences: Sequence[str],
    verdict: Verdict,
    *,
    is_filtered: bool,
) -> None:
    """Print the table as a file; the lines of `--fail-if` go to stderr where the format has rows only."""
    if format_ in DATA_FORMATS:
        warn_damaged([each.message for each in pairing.contents.damaged])
        if is_filtered and not pairs.rows:
            print_warning(pairs.notes[0])
    if format_ in (TableFormat.LATEX, TableFormat.HTML):
        from runmanager.results.compare.comparison import with_numbered_reasons

        pairs = with_numbered_reasons(pairs)
    pairs = dataclasses.replace(pairs, notes=(*pairs.notes, *sentences, *verdict.lines))
    print_table(pairs, format_, title=pairing.title)
    if format_ in DATA_FORMATS:
        for line in verdict.lines:
            print_line(printable_line(line), sys.stderr)


def _show_pairs(pairs: "ComparisonTable", sentences: Sequence[str], answers: Sequence[str], *, show_all: bool) -> None:
    """Print the table with its notes, then what explains it, and last and alone the answers."""
    from runmanager.results.tables.terminal import render_comparison

    target = console()
    between = [*sentences, *([""] if sentences else [])]
    if pairs.rows:
        limit = max_text_rows(show_all=show_all)
        print_rendered(target, render_comparison(pairs, limit=limit, width=target.width), *between, *answers)
    else:  # a legend would explain columns that are not there
        notes = [*pairs.notes, *([""] if pairs.notes else [])]
        print_text("\n".join([*map(printable_line, [*notes, *between, *answers]), ""]))
