"""A sweep written without running is read as a complete sweep."""

from pathlib import Path

from benchmarks.stored_sweep import write_stored_sweep
from runmanager.results.load.loader import read_results
from runmanager.results.tables.results_table import result_rows


def test_stored_sweep_is_read_as_finished(tmp_path: Path) -> None:
    sweep = write_stored_sweep(tmp_path / "sweep", num_runs=90, num_epochs=3)
    contents, plan = read_results(sweep)
    assert not contents.damaged
    assert plan is not None
    assert set(plan.cells) == {run.record.signature for run in contents.runs}
    rows = result_rows(contents, plan).rows
    assert len(rows) == 90
    assert {(row["status"], row["epochs"], row["contended"]) for row in rows} == {("finished", 3, False)}
    assert all(row["epoch_seconds"] > 0 for row in rows)
