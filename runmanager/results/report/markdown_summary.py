"""A sweep's findings in sentences, its tables as Markdown and figures as PNG; a comparison as a comment on GitHub."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runmanager.errors import UsageError
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.comparison import with_numbered_reasons
from runmanager.results.compare.comparison_table import ComparisonTable
from runmanager.results.figures.figure import SweepFigure, render
from runmanager.results.findings.answer_sentences import answers, best_row
from runmanager.results.findings.best import find_best
from runmanager.results.findings.best_text import best_sentences
from runmanager.results.findings.crossover import Crossover, crossover_lines
from runmanager.results.gate.fail_if import GateStatus
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.table_model.columns import Table
from runmanager.results.tables.shown_rows import collapse_seeds
from runmanager.results.tables.text_formats import escape_markdown, outside_code, to_markdown
from runmanager.text import in_backticks, pluralize, shell_join

_MAX_CROSSOVERS = 3  # the comparison lists all


def headlines(
    sweep: SweepContents,
    plan: SweepRecord | None,
    *,
    results: Table,
    comparison: ComparisonTable,
    crossovers: Sequence[Crossover] = (),
) -> list[str]:
    """Return the answers, with the certainty of the best cell, then the first crossovers, and how the runs ended."""
    *found, count = answers(results, comparison, runs=sweep.runs, of_the_best=_certainty(sweep, plan, results))
    crossing = [each for each in crossovers if each.crossings][:_MAX_CROSSOVERS]
    decision = [plan.decision] if plan and plan.decision else []
    return [*found, *decision, *crossover_lines(crossing), count]


def _certainty(sweep: SweepContents, plan: SweepRecord | None, results: Table) -> list[str]:
    """Describe how sure it is that the best cell is the best, where there are others."""
    found = best_row(results, sweep.runs)
    if found is None:
        return []
    try:
        best = find_best(sweep, plan, metric=found.outcome.name)
    except UsageError:  # some finished run of every cell lacks the metric
        return []
    if float(best.value) != float(found.value):
        return []  # another cell: some finished run of the answered one lacks the metric
    # The answer itself counts ties.
    return [" ".join(best_sentences(best))] if best.runner_up and not best.num_ties else []


_MAX_ROWS = 50  # as in the terminal
_DOTS_PER_INCH = 130  # 702 pixels, twice the width of TensorBoard's cards, which can be enlarged


@dataclass(frozen=True)
class MarkdownSummary:
    """Markdown `texts` and PNG `pictures`, each by name."""

    texts: dict[str, str]
    pictures: dict[str, bytes]


def summarize_in_markdown(snapshot: SweepSnapshot) -> MarkdownSummary:
    """Summarize the sweep by its answers and results, and, for several cells, comparison and figures."""
    answers = headlines(
        snapshot.sweep,
        snapshot.plan,
        results=snapshot.results,
        comparison=snapshot.comparison,
        crossovers=snapshot.crossovers,
    )
    cells = collapse_seeds(snapshot.results)
    figures = snapshot.figures if len(cells.rows) > 1 else []  # with a single cell there is nothing to compare
    folder = str(snapshot.sweep.paths.root)
    texts = {
        "answers": "\n".join(f"- {escape_markdown(line)}" for line in answers),
        "comparison": _table(with_numbered_reasons(snapshot.comparison), ["runmanager", "compare", folder, "--all"]),
        "figures": "\n\n".join(_figure_texts(figures)),
        "results": _table(cells, ["runmanager", "table", folder, "--all"]),
    }
    return MarkdownSummary(
        texts={name: text for name, text in texts.items() if text},
        pictures={each.name: render(each, "png", dots_per_inch=_DOTS_PER_INCH) for each in figures},
    )


def _table(table: Table, command: Sequence[str]) -> str:
    """The first rows, with the `command` that shows all of them; empty for a table without rows."""
    if not table.rows:
        return ""
    count = len(table.rows)
    shown_by = in_backticks(shell_join(command))
    more = (f"The first {_MAX_ROWS} of {count:,} rows; {shown_by} shows all.",) if count > _MAX_ROWS else ()
    return to_markdown(dataclasses.replace(table, rows=table.rows[:_MAX_ROWS], notes=(*more, *table.notes)))


def _figure_texts(figures: list[SweepFigure]) -> Iterator[str]:
    for figure in figures:
        name, *texts = map(escape_markdown, (figure.name, figure.caption, figure.description))
        yield f"**{name}**: {' '.join(texts)}"


_MAX_CHARACTERS = 60_000  # GitHub refuses a comment above 65,536
_MENTION = re.compile(r"@(?=\w)")  # a name in a setting or a message must not notify its owner
_HEADINGS = {
    None: "",
    GateStatus.PASSED: ": passed",
    GateStatus.FAILED: ": failed",
    GateStatus.NOT_KNOWN: ": not known",
}


def github_comment(
    comparison: ComparisonTable,
    title: str,
    answers: Sequence[str],
    conditions: Sequence[str],
    status: GateStatus | None,
) -> str:
    """Return the comparison as Markdown for a comment.

    `answers` are its findings, `conditions` the lines of `--fail-if`, and `status` what these came to, None without
    any. A table that is too long for a comment is left out, and said to be.
    """
    lines = [f"### {escape_markdown(title)}{_HEADINGS[status]}", ""]
    lines += [f"- {escape_markdown(line)}" for line in conditions]
    lines += [*([""] if conditions else []), *(f"{escape_markdown(line)}\n" for line in answers)]
    table = to_markdown(with_numbered_reasons(comparison)).rstrip()
    pairs = pluralize(len(comparison.rows), "pair")
    if len(table) > _MAX_CHARACTERS:
        folded = [f"The table of {pairs} is too long for a comment: `runmanager compare --format markdown` has it."]
    else:
        folded = ["<details>", f"<summary>{pairs}</summary>", "", table, "", "</details>"]
    return outside_code("\n".join([*lines, *folded, ""]), lambda text: _MENTION.sub("@<!-- -->", text))
