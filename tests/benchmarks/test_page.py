"""Rows of benchmarks, and their sections on the pages."""

import datetime
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import command_line, page
from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule
from benchmarks.our_training import FASTEST
from benchmarks.rows import Budget, Row, format_seconds, measurement_row, ratio_row

ROOT = Path(__file__).resolve().parents[2]


def test_ratio_row_shows_both_sides_ratio_and_verdict() -> None:
    row, ratio = ratio_row(
        "basic / ours", ours=[2.0] * 5, other=[9.0] * 5, budget=Budget(4, is_minimum=True), inverse=True
    )
    assert row.fields == ("basic / ours", "2 s", "9 s", "4.5 (4.5 to 4.5)", "5", "at least 4", "yes")
    assert ratio.value == 4.5
    assert ratio_row("ours / basic", ours=[0.05] * 5, other=[0.04] * 5)[0].fields == (
        *("ours / basic", "50 ms", "40 ms", "1.25 (1.25 to 1.25)", "5", "-", "-"),
    )


@pytest.mark.parametrize(
    ("values", "met"),
    [
        ([0.3, 0.4, 0.45], "yes"),
        ([0.4, 0.45, 0.6], "yes, within the noise"),
        ([0.4, 0.55, 0.6], "no, within the noise"),
        ([0.6, 0.7, 0.8], "no"),
    ],
)
def test_measurement_row_shows_the_range(values: list[float], met: str) -> None:
    row = measurement_row("table", values, budget=Budget(0.5, format=format_seconds))
    assert (row.budget, row.met, row.rounds) == ("at most 0.5 s", met, "3")
    assert row.ours == f"{values[1]:g} s ({values[0]:g} s to {values[2]:g} s)"


def test_only_the_text_between_the_markers_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("Before.\n<!-- begin a -->\nold\n<!-- end a -->\n<!-- begin b -->\nkept\n<!-- end b -->\n")
    day = datetime.date(2026, 2, 3)
    text = page.section([Row("what", "1 s")], machine="a machine", command="python -m a", day=day)
    for _ in range(2):
        page.write_section(path, "a", text)
    assert path.read_text() == (
        "Before.\n<!-- begin a -->\n"
        "| what | ours |\n"
        "| --- | --- |\n"
        "| what | 1 s |\n"
        "\n`python -m a`, 2026-02-03, 1 round, on a machine.\n"
        "<!-- end a -->\n<!-- begin b -->\nkept\n<!-- end b -->\n"
    )
    with pytest.raises(RuntimeError, match="must match"):
        page.write_section(path, "c", text)


def test_a_machine_that_the_page_lists_is_named_by_its_letter(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("- **machine A**: one, 2 cores\n\n<!-- begin a -->\n<!-- end a -->\n")
    for machine, named in {"one, 2 cores": "machine A", "one, 2 cores, more": "one, 2 cores, more"}.items():
        page.write_section(path, "a", f"`python -m a`, 2026-02-03, on {machine}.\n")
        assert f"<!-- begin a -->\n`python -m a`, 2026-02-03, on {named}.\n<!-- end a -->" in path.read_text()


def test_command_measures_prints_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.md"
    path.write_text("<!-- begin some -->\n<!-- end some -->\n")
    monkeypatch.setattr(command_line, "BENCHMARKS", path)
    seen: list[Settings] = []

    def measure(settings: Settings) -> Sequence[Row]:
        seen.append(settings)
        return [Row("a thing", "1 s")]

    def run(*args: str) -> None:
        run_benchmark("some", measure, summary=None, stopping_rule=StoppingRule(min_rounds=5, max_rounds=9), argv=args)

    run()
    assert path.read_text() == "<!-- begin some -->\n<!-- end some -->\n"
    run("--rounds", "3", "--seconds", "10", "--seed", "2", "--write")
    assert "| a thing | 1 s |" in path.read_text()
    assert "`python -m benchmarks.some --rounds 3 --seconds 10 --seed 2`" in path.read_text()
    assert [each.stopping_rule.max_rounds for each in seen] == [9, 3]
    assert seen[1].stopping_rule == StoppingRule(min_rounds=3, max_rounds=3, max_seconds=10)
    assert capsys.readouterr().out.count("| a thing |") == 2


def test_documents_have_all_markers_that_scripts_write_to() -> None:
    scripts = sorted(
        path.stem for path in Path(page.__file__).parent.glob("*.py") if "run_benchmark(" in path.read_text()
    )
    text = page.BENCHMARKS.read_text()
    names = [name for name in scripts if name != "command_line"]
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    run_by_make = re.findall(r"^BENCHMARKS := (.*)$", makefile, re.MULTILINE)[0].split()
    assert [name for name in names if name not in run_by_make] == []
    names.append("summary")
    for name in names:
        assert f"<!-- begin {name} -->\n" in text
        assert f"<!-- end {name} -->\n" in text
    assert [word for word in FASTEST if f"`{word}`" not in text] == []
    for name in ("phase_truth", "warmup_truth", "compare_truth", "paired_truth"):
        assert f"<!-- begin {name} -->\n" in page.MEASUREMENT.read_text()
        assert f"<!-- end {name} -->" in page.MEASUREMENT.read_text()
