"""A cell counts once, for any number of folders that hold it."""

import json
import shutil
from typing import Any

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Reason, Status
from runmanager.results.compare.comparison import compare
from runmanager.results.findings.answer_sentences import answers
from runmanager.results.load.loader import CachedReader, read_results, read_summary
from runmanager.results.table_model.columns import Table
from runmanager.results.tables.results_table import result_rows


def copied(sweep: Any, name: str, copy: str) -> None:
    shutil.copytree(sweep.paths.run(name).root, sweep.paths.run(copy).root)


def tables(sweep: SweepPaths) -> list[Table]:
    """Return the results table by each way of reading."""
    return [result_rows(*read(sweep)) for read in (read_results, read_summary, lambda s: CachedReader(s).read())]


@pytest.mark.parametrize("copy", ["a copy of it", "zzz"])  # sorted before and after the original
def test_copied_folder_is_not_a_second_run(sweep: Any, copy: str) -> None:
    slow = sweep.run({"lr": 0.1, "device": "cpu"})
    sweep.run({"lr": 0.1, "device": "cuda"})
    (before,) = compare(*read_results(sweep.paths)).rows
    copied(sweep, slow, copy)
    for table in tables(sweep.paths):
        assert [row["run_dir"] for row in table.rows if row["device"] == "cpu"] == [f"runs/{slow}"]
        assert len(table.rows) == 2
        (note,) = (note for note in table.notes if note.startswith("Not read"))
        assert note.endswith(f"runs/{copy} holds the same cell as {slow}, and a cell counts once; move one away.")
    read = read_results(sweep.paths)
    (row,) = compare(*read).rows
    assert row == before
    assert answers(result_rows(*read), compare(*read))[-1] == "3 runs: 2 finished, 1 not read."


def test_finished_one_of_two_folders_counts(sweep: Any) -> None:
    name = sweep.run({"lr": 0.1})
    sweep.paths.run(name).root.rename(sweep.paths.run("renamed").root)
    sweep.run({"lr": 0.1}, status=Status.FAILED, reason=Reason.EXCEPTION)
    for table in tables(sweep.paths):
        assert [row["run_dir"] for row in table.rows] == ["runs/renamed"]


def test_runs_with_different_settings_and_one_signature_are_two(sweep: Any) -> None:
    names = [sweep.run({"lr": lr}) for lr in (0.1, 0.2)]
    records = [sweep.paths.run(name).record for name in names]
    one, other = (json.loads(record.read_text()) for record in records)
    records[1].write_text(json.dumps({**other, "signature": one["signature"]}))
    for table in tables(sweep.paths):
        assert sorted(row["lr"] for row in table.rows) == [0.1, 0.2]
