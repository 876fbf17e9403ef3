"""The summary counts every budget of the page, and shows what is not met and what is missing."""

import datetime
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import page, summary
from benchmarks.rows import Row

ROWS = [
    Row("a table", "0.4 s (0.3 s to 0.5 s)", rounds="7", budget="at most 0.5 s", met="yes"),
    Row("epoch: theirs / ours", "1 s", "4 s", "4 (3.9 to 4.1)", "5", "at least 3", "yes"),
    Row("step: quick / ours", "2 s", "1 s", "0.5 (0.4 to 0.6)", "5", "at least 1", "no"),
    Row("a report", "0.5 s (0.3 s to 0.6 s)", rounds="5", budget="at most 0.5 s", met="yes, within the noise"),
    Row("step: absent / ours", "skipped: absent is not installed", rounds="0"),
    Row("one / the other", "1 s", "2 s", "0.5 (0.5 to 0.5)", "5"),
]


def test_summary_counts_every_budget_and_shows_what_is_not_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.md"
    sections = ("summary", "some", "other")
    path.write_text("".join(f"<!-- begin {name} -->\nNothing.\n<!-- end {name} -->\n" for name in sections))
    day = datetime.date(2026, 2, 3)
    text = page.section(ROWS, machine="a machine", command="python -m some", day=day)
    page.write_section(path, "some", text)
    read = page.read_rows(path)
    assert read.keys() == {"summary", "some", "other"}
    assert [replace(row, rounds="1") for row in ROWS] == read["some"]  # the page has the rounds of all rows together
    monkeypatch.setattr(summary, "BENCHMARKS", path)
    monkeypatch.setattr(sys, "argv", ["summary", "--write"])
    for _ in range(2):
        summary.main()
    assert path.read_text().startswith(
        "<!-- begin summary -->\n"
        "- 4 budgets: 2 met, 1 met within the noise, 1 missed\n"
        "- missed: step: quick / ours (`some`)\n"
        "- not measured yet: `other`\n"
        "<!-- end summary -->\n"
    )


def test_empty_columns_are_left_out_and_read_back() -> None:
    rows = [Row("a", "1 s", rounds="3", budget="at most 2 s", met="yes"), Row("b", "2 s", rounds="4")]
    day = datetime.date(2026, 2, 3)
    text = page.section(rows, machine="a machine", command="python -m some", day=day)
    assert text == (
        "| what | ours | budget |\n"
        "| --- | --- | --- |\n"
        "| a | 1 s | ≤ 2 s: yes |\n"
        "| b | 2 s | - |\n"
        "\n`python -m some`, 2026-02-03, 3 to 4 rounds, on a machine.\n"
    )
    assert [(row.budget, row.met) for row in page.parse_rows(text)] == [("at most 2 s", "yes"), ("-", "-")]
