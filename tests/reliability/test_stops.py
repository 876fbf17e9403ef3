"""A short form of `tests/reliability/stops.py`, and the rows that it writes."""

import csv
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep

BEST = "import sys; from runmanager.cli.main import run_command; sys.exit(run_command(['best', *sys.argv[1:]]))"


@pytest.fixture(scope="session")
def stops(deaths: ModuleType) -> Any:
    """tests/reliability/stops.py."""
    import stops

    return stops


@pytest.mark.parametrize(
    ("column", "how"),
    [
        pytest.param("job", "outside", marks=pytest.mark.release),
        pytest.param("application", "outside", marks=pytest.mark.release),
        ("script", "terminated"),
    ],
)
def test_a_stopped_cell_has_the_reason_of_the_stop(stops: Any, tmp_path: Path, column: str, how: str) -> None:
    (chosen,) = [each for each in stops.COLUMNS if each.words == column]
    seen = stops.try_stop(tmp_path / "tried", chosen.program, stops.HOWS[how], ways=chosen.ways)
    assert seen.is_as_promised, seen


@pytest.mark.parametrize("program", [pytest.param("APPLICATION", marks=pytest.mark.release), "SCRIPT"])
def test_an_end_that_is_its_own_counts(stops: Any, tmp_path: Path, program: str) -> None:
    seen = stops.try_stop(tmp_path / "tried", getattr(stops, program), stops.HOWS["once"], ways=stops.LOGS)
    assert seen.is_as_promised, seen


def test_metrics_of_a_stopped_run_are_kept_and_not_ranked(stops: Any, tmp_path: Path) -> None:
    ways = {"flags": stops.INTERRUPTED, "exits": stops.INTERRUPTED, "one": stops.FINISHED}
    rows: list[dict[str, str]] = []
    said: list[str] = []

    def look(sweep: SweepPaths) -> None:
        (stopped,) = [run.record for run in read_sweep(sweep).runs if "way=flags" in run.record.name]
        assert stopped.summary == {"loss": 0.25}
        rows.extend(csv.DictReader(sweep.results("csv").read_text().splitlines()))
        said.append(_output(BEST, [str(sweep.root), "--metric", "loss", "--better", "min"]))

    seen = stops.try_stop(tmp_path / "tried", stops.APPLICATION, stops.HOWS["once"], ways=ways, meanwhile=look)
    assert seen.is_as_promised, seen
    assert {row["way"]: row["status"] for row in rows} == {"flags": "killed", "exits": "killed", "one": "finished"}
    assert "way=one" in said[0] and "way=flags" not in said[0]


def test_a_second_ctrl_c_leaves_the_summary_and_the_way_to_resume(stops: Any, tmp_path: Path) -> None:
    """It comes when the driver has told the run's end; the cells without a device were not begun."""
    for name, text in stops.SCRIPT.files.items():
        (tmp_path / name).write_text(text)
    words = [*stops.SCRIPT.words(["exits", "one"], {}), "device=cpu,cuda"]
    log = tmp_path / "log"
    driver = stops.start_python(tmp_path, *words, log=log)
    with stops.killed_at_exit(driver):
        stops.wait_until((tmp_path / "ready-exits").exists, "the first cell")
        driver.send_signal(signal.SIGINT)
        stops.wait_until(lambda: driver.poll() is not None or "killed (interrupted)" in log.read_text(), "its end")
        driver.send_signal(signal.SIGINT)
        assert driver.wait(stops.DEADLINE_SECONDS) == 130
    told = log.read_text()
    assert "4 runs: 2 skipped, 1 killed, 1 pending." in told, told
    assert "Interrupted. To resume:\n  runmanager sweep --name stopped" in told and "Traceback" not in told, told


def _output(program: str, words: Sequence[str]) -> str:
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout


def test_every_row_is_on_the_page(stops: Any, deaths: ModuleType) -> None:
    lines = (deaths.ROOT / "docs" / "reliability.md").read_text().splitlines()
    assert f"| how they are stopped | status | {' | '.join(each.words for each in stops.COLUMNS)} |" in lines
    for how in stops.HOWS.values():
        assert sum(line.startswith(f"| {how.words} |") for line in lines) == 1, how.words
