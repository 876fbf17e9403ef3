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


def test_runs_with_and_without_metrics_differ_in_these_only(tmp_path: Path) -> None:
    plain, logging = (
        write_stored_sweep(tmp_path / str(count), num_runs=3, num_epochs=2, num_metrics=count) for count in (0, 20)
    )
    tables = [result_rows(*read_results(sweep)) for sweep in (plain, logging)]
    names = [f"val/metric_{number}" for number in range(20)]
    assert tables[1].columns == [*tables[0].columns, *names]
    for one, other in zip(tables[0].rows, tables[1].rows, strict=True):
        assert one.values == {name: value for name, value in other.values.items() if name not in names}
        assert other["val/metric_7"] == 1.0  # (7 + 1) / (2 + 6)
