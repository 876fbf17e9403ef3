"""A short form of `make test-deaths`, and the rows that it writes."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from runmanager.records.files.paths import SweepPaths

TABLE = "import sys; from runmanager.cli.main import run_command; sys.exit(run_command(['table', sys.argv[1]]))"


def test_killed_run_does_not_affect_others(deaths: ModuleType, tmp_path: Path) -> None:
    seen = deaths.try_death(tmp_path / "local", deaths.LAUNCHERS["local"], deaths.DEATHS["killed"])
    assert seen.is_as_promised, (tmp_path / "local" / "log").read_text()
    assert seen.in_words() == "`killed (signal)`"


@pytest.mark.release
def test_deaths_of_other_programs_are_told_truly(deaths: ModuleType, tmp_path: Path) -> None:
    import dying_programs

    for program, way in (
        (dying_programs.APPLICATION, "segfaults"),
        (dying_programs.REPLACED, "raises"),
        (dying_programs.SCRIPT, "diverges"),
    ):
        seen = deaths.try_death(tmp_path / way, deaths.LAUNCHERS["local"], deaths.DEATHS[way], program=program)
        assert seen.is_as_promised, (tmp_path / way / "log").read_text()


@pytest.mark.release
def test_table_shows_pending_cells_if_a_run_kills_its_driver(deaths: ModuleType, tmp_path: Path) -> None:
    seen = deaths.try_death(tmp_path / "basic", deaths.LAUNCHERS["basic"], deaths.DEATHS["killed"])
    assert not seen.is_as_promised
    assert seen.in_words() == "0 finished; `crashed (vanished)`, 3 `pending`; died of SIGKILL"
    sweep = SweepPaths(tmp_path / "basic" / "outputs" / "four")
    shown = subprocess.run(
        [sys.executable, "-c", TABLE, str(sweep.root)], capture_output=True, text=True, timeout=100, check=True
    ).stdout
    assert (shown.count("crashed"), shown.count("pending")) == (1, 3)


def test_rows(deaths: ModuleType) -> None:
    finished, pending = ("finished", None), ("pending", None)
    states = {"hangs": ("killed", "timeout"), "one": finished, "two": finished, "three": finished}
    good = deaths.Seen(deaths.DEATHS["hangs"], states, "longer than timeout=45 s", 1)
    bad = deaths.Seen(
        deaths.DEATHS["hangs"], {**states, "hangs": ("crashed", "vanished"), "two": pending, "three": pending}, "", None
    )
    row = deaths.row(deaths.DEATHS["hangs"], {"local": good, "basic": bad})
    assert row == (
        "| a hang | `killed (timeout)` | not measured | not measured | "
        "1 finished; `crashed (vanished)`, 2 `pending`; never ended | not measured | not measured |"
    )
    assert deaths.six_row(None, None).split(" | ")[1] == "not measured"


def test_summary_row_is_made_of_the_rows(deaths: ModuleType) -> None:
    finished = dict.fromkeys(deaths.FINE, ("finished", None))
    rows = []
    for death in deaths.DEATHS.values():
        good = deaths.Seen(death, {**finished, death.way: death.state}, death.message, 1)
        bad = deaths.Seen(death, {**finished, "two": ("pending", None), death.way: death.state}, "", 1)
        local = bad if death.way == "hangs" else good
        rows.append(deaths.row(death, {"local": local, "basic": bad, "joblib": good}))
    assert deaths.summary(rows) == (
        "| 8 ways to die, each in cell 1 of 4 | `local`: 7 of 8 times 3 finished and 1 truthful, status 1; "
        "`slurm`, `ray`, `submitit_local`: not measured; `basic`: 0 of 8 times 3 finished; "
        "`joblib`: 8 of 8 times 3 finished ([each](#eight-ways-to-die)) "
        "| `python tests/reliability/deaths.py` |"
    )


def test_every_row_is_on_the_page(deaths: ModuleType) -> None:
    lines = (deaths.ROOT / "docs" / "reliability.md").read_text().splitlines()
    for words in (*(death.words for death in deaths.DEATHS.values()), deaths.SUMMARY, deaths.SIX):
        assert sum(line.startswith(f"| {words} |") for line in lines) == 1, words


def test_the_row_of_other_programs_is_on_the_page(deaths: ModuleType) -> None:
    import program_deaths

    death = deaths.DEATHS["killed"]
    good = deaths.Seen(death, {"killed": death.state, **dict.fromkeys(deaths.FINE, ("finished", None))}, "SIGKILL", 1)
    whole = {key: dict.fromkeys(deaths.DEATHS, good) for key in program_deaths.NAMES}
    assert f"\n{program_deaths.summary(whole)}\n" in (deaths.ROOT / "docs" / "reliability.md").read_text()
    assert "0 of" not in (lacking := program_deaths.summary({})) and lacking.count("not measured") == len(whole)
