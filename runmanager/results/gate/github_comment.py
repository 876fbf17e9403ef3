"""A comparison as a comment on a pull request: the answer first, the table folded away."""

import re
from collections.abc import Sequence

from runmanager.results.compare.comparison import with_numbered_reasons
from runmanager.results.compare.comparison_table import ComparisonTable
from runmanager.results.gate.fail_if import GateStatus
from runmanager.results.tables.text_formats import escape_markdown, outside_code, to_markdown
from runmanager.text import pluralize

__all__ = ["github_comment"]

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
