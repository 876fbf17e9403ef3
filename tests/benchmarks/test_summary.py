"""The summary collects every budget and comparison from the page and shows what is missing."""

import datetime
import sys
from pathlib import Path

import pytest

from benchmarks import page, summary
from benchmarks.rows import Row

ROWS = [
    Row("a table", "0.4 s (0.3 s to 0.5 s)", rounds="7", budget="at most 0.5 s", met="yes"),
    Row("epoch: theirs / ours", "1 s", "4 s", "4 (3.9 to 4.1)", "5", "at least 3", "yes"),
    Row("step: quick / ours with all", "2 s", "1 s", "0.5 (0.4 to 0.6)", "5"),
    Row("step: slow / ours", "1 s", "2 s", "2 (1.5 to 2.5)", "5"),
    Row("step: alike / ours", "1 s", "1 s", "1.01 (0.9 to 1.1)", "5"),
    Row("step: absent / ours", "skipped: absent is not installed", rounds="0"),
    Row("one / the other", "1 s", "2 s", "0.5 (0.5 to 0.5)", "5"),
]


def test_summary_has_every_budget_and_comparison_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.md"
    sections = ("summary", "some", "other")
    path.write_text("".join(f"<!-- begin {name} -->\nNothing.\n<!-- end {name} -->\n" for name in sections))
    day = datetime.date(2026, 2, 3)
    text = page.section(ROWS, machine="a machine", command="python -m some", day=day, seconds=71.6)
    page.write_section(path, "some", text)
    assert page.read_rows(path) == {"summary": [], "some": ROWS, "other": []}
    monkeypatch.setattr(summary, "BENCHMARKS", path)
    monkeypatch.setattr(sys, "argv", ["summary", "--write"])
    for _ in range(2):
        summary.main()
    assert path.read_text().startswith(
        "<!-- begin summary -->\n"
        "| what | measured | budget | met | script |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| a table | 0.4 s (0.3 s to 0.5 s) | at most 0.5 s | yes | `some` |\n"
        "| epoch: theirs / ours | 4 (3.9 to 4.1) | at least 3 | yes | `some` |\n"
        "| - | not measured yet | - | - | `other` |\n"
        "\n"
        "| other / ours | ratio | ours is | script |\n"
        "| --- | --- | --- | --- |\n"
        "| step: quick / ours with all | 0.5 (0.4 to 0.6) | slower | `some` |\n"
        "| step: slow / ours | 2 (1.5 to 2.5) | faster | `some` |\n"
        "| step: alike / ours | 1.01 (0.9 to 1.1) | no different within the noise | `some` |\n"
        "| step: absent / ours | - | skipped: absent is not installed | `some` |\n"
        "<!-- end summary -->\n"
    )
