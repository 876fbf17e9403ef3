"""Writing a sweep's tables and report into its folder."""

import csv
import fcntl
import itertools
import json
import os
import subprocess
import sys

import pytest

from runmanager.errors import UsageError
from runmanager.records.storage.reader import read_sweep
from runmanager.results import result_files as writer
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.load.loader import read_results
from runmanager.results.result_files import TableUpdater, write_epochs_table, write_tables
from runmanager.results.write_throttle import WriteThrottle

TABLES = {
    *("results.csv", "results.json", "results.md", "results.html", "epochs.csv"),
    *("comparison.csv", "comparison.json", "comparison.md"),
}


def files(sweep):
    return {path.name for path in sweep.paths.root.iterdir() if path.is_file()}


def test_all_documented_files_are_written(sweep):
    for device in ("cpu", "cuda"):
        sweep.run({"lr": 0.1, "device": device})
    write_tables(sweep.paths, report=False)
    assert files(sweep) == TABLES
    write_tables(sweep.paths)
    assert files(sweep) == {*TABLES, "report.html"}


def test_the_report_names_the_bottlenecks_of_compared_runs(sweep, timed):
    loader = {"loader": {"name": "dataloader"}}
    for device, seconds in (("cpu", 1.6), ("cuda", 0.1)):
        config = {"lr": 0.1, "num_workers": 0, "device": device, **loader}
        sweep.run(config, timed([9.0] + [2.0] * 6, data_seconds=seconds))
    write_tables(sweep.paths)
    page = sweep.paths.report.read_text()
    hint = "cpu (input): 80% of the training epoch waits for data (64% of the wall time): <code>loader=resident</code>;"
    assert page.index(">What to do next</h2>") < page.index(hint) < page.index(">Comparison</h2>")
    assert "cuda (" not in page


def test_files_have_a_row_per_run_and_the_report_a_row_for_all_seeds(sweep):
    for seed in (1, 2):
        sweep.run({"lr": 0.1, "seed": seed})
    write_tables(sweep.paths)
    for kind in ("csv", "md"):
        text = sweep.paths.results(kind).read_text()
        assert text.count("finished") == 2
        assert "±" not in text
    page = sweep.paths.report.read_text()
    assert "2.000 ± 0.000" in page
    assert "2 runs: 2 finished." in page


def test_csv_and_json_have_the_same_values(sweep):
    sweep.run({"lr": 0.1, "device": "cpu"}, name="a")
    write_tables(sweep.paths, report=False)
    with sweep.paths.results("csv").open() as file:
        (from_csv,) = csv.DictReader(file)
    (from_json,) = json.loads(sweep.paths.results("json").read_text())
    assert list(from_csv) == list(from_json)
    assert from_csv == {key: "" if value is None else str(value) for key, value in from_json.items()}


def test_tables_are_rebuilt_from_the_current_runs(sweep):
    sweep.run({"lr": 0.1}, name="a")
    write_tables(sweep.paths, report=False)
    sweep.run({"lr": 0.2}, name="b")
    write_tables(sweep.paths, report=False)
    assert sweep.paths.results("csv").read_text().count("\n") == 3


def test_the_comparison_uses_its_options(sweep):
    for lr in (0.1, 0.2):
        sweep.run({"lr": lr})
    write_tables(sweep.paths, report=False, options=CompareOptions(axis="lr"))
    (row,) = json.loads(sweep.paths.comparison("json").read_text())
    assert (row["baseline"], row["candidate"], row["verdict"]) == (0.1, 0.2, "inconclusive")


def test_invalid_options_leave_all_files_unchanged(sweep):
    sweep.run({"lr": 0.1})
    with pytest.raises(UsageError):
        write_tables(sweep.paths, options=CompareOptions(axis="nothing"))
    assert files(sweep) == set()


def test_an_empty_sweep_has_tables(sweep):
    write_tables(sweep.paths)
    assert files(sweep) == {*TABLES, "report.html"}


def test_tables_of_large_sweeps_are_throttled(sweep, monkeypatch):
    monkeypatch.setattr(writer, "_MAX_UNTHROTTLED_RUNS", 2)
    seconds = itertools.count(1)
    tables = TableUpdater(
        sweep.paths, throttle=WriteThrottle(0.25, clock=lambda: next(seconds))
    )  # each call takes a second
    written = []
    for lr in range(1, 9):
        sweep.run({"lr": lr})
        tables.run_ended()
        written.append(sweep.paths.results("csv").read_text().count("\n") - 1)
    assert written == [1, 2, 2, 2, 2, 6, 6, 6]  # the second write took a second, so four seconds pass before the next


def test_concurrent_writers_take_turns(sweep, monkeypatch):
    sweep.run({"lr": 0.1})
    locked = []

    def read_while_another_locks(paths):
        handle = os.open(paths.root, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked.append(True)
        finally:
            os.close(handle)
        return read_results(paths)

    monkeypatch.setattr(writer, "read_results", read_while_another_locks)
    write_tables(sweep.paths, report=False)
    assert locked == [True]


def test_epochs_table_has_one_row_per_epoch(sweep, tmp_path, timed):
    sweep.run({"lr": 0.1}, timed([3.0, 2.0]), name="a")
    stem = tmp_path / "not" / "there" / "my.table"
    write_epochs_table(read_sweep(sweep.paths).runs, stem)
    rows = json.loads(stem.with_name("my.table.json").read_text())
    assert [(row["run"], row["epoch"], row["lr"]) for row in rows] == [("a", 1, 0.1), ("a", 2, 0.1)]
    lines = stem.with_name("my.table.csv").read_text().splitlines()
    assert lines[0].startswith("run,epoch,loss,")
    assert len(lines) == 3


def test_tables_are_written_without_slow_imports(sweep):
    sweep.run({"lr": 0.1})
    program = (
        "import sys, pathlib; from runmanager.records.files.paths import SweepPaths;"
        "from runmanager.results.sweep_snapshot import SweepSnapshot;"
        "from runmanager.results.tables import text_formats;"
        f"snapshot = SweepSnapshot.read(SweepPaths(pathlib.Path({str(sweep.paths.root)!r})));"
        "text_formats.to_csv(snapshot.results); text_formats.to_csv(snapshot.comparison);"
        "import runmanager.results.result_files, runmanager.results.sweep, runmanager.results.tables.terminal;"
        "import runmanager.results.report.report;"
        "slow = {'torch', 'pandas', 'numpy', 'matplotlib', 'rich', 'jinja2', 'hydra'} & set(sys.modules);"
        "print(*slow)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
