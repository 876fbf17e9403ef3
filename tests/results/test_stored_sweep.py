"""A sweep as an earlier version stored it: its tables are those that this version made, byte for byte.

`stored_sweep/first` are the records of `python -m runmanager -m dataset=digits dataset.size=5000 model=mlp
optimizer=sgd lr=0.05,0.5,1e30 seed=0,1,2 epochs=7 batch_size=500 device=cpu`, made before programs could log metrics;
`stored_sweep/expected` has the answers of that version. Host, processor and boot are replaced by neutral names.
"""

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runmanager.cli.main import run_command
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import SCHEMA_VERSION
from runmanager.results.load import summary_cache
from runmanager.results.load.loader import read_summary
from runmanager.results.result_files import write_tables
from runmanager.results.tables.results_table import result_rows
from runmanager.results.tables.text_formats import to_csv

STORED = Path(__file__).parent / "stored_sweep"
EXPECTED = STORED / "expected"
# Its command has the defaults of that version, which are others today.
DEFAULTS_THEN = ["channels_last=false", "micro_batch=null"]
REWORDED = {
    "cannot be told from the best one: lr=0.5.": "is not shown to be worse than the best one: lr=0.5.\n"
    "One more seed of both would likely rule it out.",
    "epochs=7 dataset.size": f"epochs=7 {' '.join(DEFAULTS_THEN)} dataset.size",
    "dataset.size=5000": "dataset.size=5000 dataset.val_size=null",
}
# Sums are exact since, so that every version of Python gives the same digits.
RECALCULATED = {
    "452181.5317124856": "452181.53171248554",
    "439914.54337390955": "439914.5433739096",
}

Command = Callable[..., str]


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepPaths:
    """The stored sweep as `outputs/first` of the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("RUNMANAGER_DATA", raising=False)  # a default that commands would name
    return SweepPaths(Path(shutil.copytree(STORED / "first", Path("outputs/first"))))


@pytest.fixture
def command(first: SweepPaths, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run a command and return its output."""

    def run(*words: str) -> str:
        assert run_command(words) == 0
        return capfd.readouterr().out

    return run


def expected(name: str) -> str:
    text = (EXPECTED / name).read_bytes().decode()
    for before, now in RECALCULATED.items():
        text = text.replace(before, now)
    return text


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_a_folder_of_each_schema_version_is_kept(version: int) -> None:
    """The tests below read it. A new version needs the folder of another one beside it."""
    files = [*STORED.glob("*/sweep.json"), *STORED.glob("*/runs/*/run.json")]
    kept = [json.loads(file.read_text())["schema_version"] for file in files]
    assert kept.count(version) > 1


@pytest.mark.parametrize("name", ["results.csv", "epochs.csv"])
def test_the_written_tables_are_as_before(first: SweepPaths, name: str) -> None:
    write_tables(first, report=False)
    assert (first.root / name).read_bytes().decode() == expected(name)


def test_the_table_is_as_before_with_and_without_a_cache(
    first: SweepPaths, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("table", "first", "--format", "csv") == expected("results.csv")
    assert not first.summaries.exists()  # a small sweep has no cache
    monkeypatch.setattr(summary_cache, "_MIN_NEW", 1)
    monkeypatch.setattr(summary_cache, "_SETTLED_NS", 0)  # the copy is seconds old
    read_summary(first)
    assert first.summaries.exists()
    monkeypatch.setattr("runmanager.results.load.loader.summarize_run", None)  # every run comes from the cache
    assert to_csv(result_rows(*read_summary(first))) == expected("results.csv")
    assert command("table", "first", "--format", "csv") == expected("results.csv")


@pytest.mark.parametrize(
    ("name", "options"),
    [("comparison.csv", ()), ("compare_lr.csv", ("--axis", "lr")), ("compare_val_accuracy.csv", ("--axis", "lr"))],
)
def test_comparisons_are_as_before(command: Command, name: str, options: tuple[str, ...]) -> None:
    metric = ("--metric", "val_accuracy") if "val_accuracy" in name else ()
    rows, before = (
        list(csv.reader(io.StringIO(text)))
        for text in (command("compare", "first", *options, *metric, "--format", "csv"), expected(name))
    )
    # The last digits of a quantile depend on the version of SciPy.
    assert [list(map(number_or_text, row)) for row in rows] == [
        [pytest.approx(each, rel=1e-9) if isinstance(each, float) else each for each in map(number_or_text, row)]
        for row in before
    ]


def number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def test_the_best_cell_is_as_before(command: Command) -> None:
    text = expected("best.txt")
    for before, now in REWORDED.items():
        text = text.replace(before, now)
    assert command("best", "first") == text
    found, before = (json.loads(each) for each in (command("best", "first", "--format", "json"), expected("best.json")))
    after = before["command"].index("epochs=7") + 1
    before["command"][after:after] = DEFAULTS_THEN
    before["command"].insert(before["command"].index("dataset.size=5000") + 1, "dataset.val_size=null")
    assert approximated(found) == approximated(before) | {"unmeasured": []}


def approximated(value: Any) -> Any:
    """The value with ten digits of each number."""
    if isinstance(value, dict):
        return {name: approximated(each) for name, each in value.items()}
    if isinstance(value, list):
        return [approximated(each) for each in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value
