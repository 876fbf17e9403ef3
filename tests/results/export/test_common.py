"""Tests of the exports: what is in them, that a second one adds nothing, and what a missing package comes to."""

import importlib
import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.record import EpochRecord
from runmanager.records.run.status import Reason, Status
from runmanager.results.export.incremental import run_fingerprint
from runmanager.results.export.mlflow import export_to_mlflow
from runmanager.results.export.parquet import export_to_parquet
from runmanager.results.export.wandb import export_to_wandb
from runmanager.results.load.loader import read_results


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@pytest.fixture
def stored(sweep: Any, timed: Callable[..., list[EpochRecord]]) -> SweepPaths:
    """One finished run, one that failed, and a setting of several types."""
    otherwise = {"deviations": ("it went in halves",), "notes": ("a note", "n" * 9000)}
    settings = {"lr": 0.1, "hidden": [3, 4], "model": {"name": "cnn"}}
    sweep.run(settings, timed([9.0, 2.0, 2.0]), num_parameters=7, **otherwise)
    failed = {"status": Status.FAILED, "reason": Reason.DIVERGED, "message": "the loss was nan"}
    sweep.run({"lr": "auto", "hidden": None, "model": {"name": "mlp"}}, timed([9.0]), **failed)
    return sweep.paths


@pytest.mark.parametrize(
    ("package", "extra"), [("pyarrow", "parquet"), ("mlflow", "mlflow"), ("wandb", "wandb")], ids=str
)
def test_missing_package_is_one_line_with_its_cure(
    stored: SweepPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    exports: dict[str, Callable[[], Any]] = {
        "parquet": lambda: export_to_parquet(stored),
        "mlflow": lambda: export_to_mlflow(read_results(stored)[0]),
        "wandb": lambda: export_to_wandb(read_results(stored)[0], folder=tmp_path),
    }
    with pytest.raises(UsageError) as refused:
        exports[extra]()
    assert str(refused.value) == (
        f"`--to {extra}` must find the package {package}, got none; pip install 'torch-runmanager[{extra}]'."
    )


@needs("pyarrow")
def test_parquet_has_the_three_tables(stored: SweepPaths, tmp_path: Path) -> None:
    parquet = importlib.import_module("pyarrow.parquet")
    for folder in (tmp_path / "new" / "folder", None, None):
        done = export_to_parquet(stored, folder=folder)
        assert done.num_written == 2
        runs, epochs, comparison = (
            parquet.read_table((folder or stored.root) / f"{name}.parquet").to_pylist()
            for name in ("runs", "epochs", "comparison")
        )
        assert [row["status"] for row in runs] == ["finished", "failed"]
        assert [row["lr"] for row in runs] == ["0.1", "auto"]
        assert [row["hidden"] for row in runs] == ["[3, 4]", None]
        assert [row["epoch"] for row in epochs] == [1, 2, 3, 1]
        assert comparison == []


@pytest.mark.filterwarnings("ignore")  # MLflow's own, of what it rests on
@needs("mlflow", "sqlalchemy", "alembic")
def test_mlflow_has_a_run_for_each_run_once(stored: SweepPaths, tmp_path: Path) -> None:
    mlflow = importlib.import_module("mlflow")
    uri = f"sqlite:///{tmp_path}/store.db"
    first = export_to_mlflow(read_results(stored)[0], uri=uri)
    again = export_to_mlflow(read_results(stored)[0], uri=uri)
    assert [(done.num_written, done.num_kept) for done in (first, again)] == [(2, 0), (0, 2)]
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(stored.name).experiment_id
    of_name = {run.data.params["model.name"]: run for run in client.search_runs([experiment])}
    assert (of_name["cnn"].info.status, of_name["mlp"].info.status) == ("FINISHED", "FAILED")
    assert of_name["mlp"].data.tags["runmanager.reason"] == "diverged"
    assert of_name["cnn"].data.metrics["num_parameters"] == 7
    assert of_name["cnn"].data.tags["runmanager.deviations"] == "it went in halves"
    assert of_name["cnn"].data.tags["mlflow.note.content"].startswith("it went in halves\n\na note\n\nnnn")
    assert "runmanager.deviations" not in of_name["mlp"].data.tags
    history = client.get_metric_history(of_name["cnn"].info.run_id, "epoch_seconds")
    assert [(each.step, each.value) for each in history] == [(1, 9.0), (2, 2.0), (3, 2.0)]


@pytest.mark.filterwarnings("ignore")  # MLflow's own, of what it rests on
@needs("mlflow", "sqlalchemy", "alembic")
def test_mlflow_run_that_has_changed_since_is_replaced(stored: SweepPaths, tmp_path: Path) -> None:
    mlflow = importlib.import_module("mlflow")
    uri = f"sqlite:///{tmp_path}/store.db"
    export_to_mlflow(read_results(stored)[0], uri=uri)
    contents = read_results(stored)[0]
    with contents.runs[1].paths.epochs.open("ab") as file:
        file.write(b'{"epoch": 2, "loss": 0.25}\n')
    done = export_to_mlflow(read_results(stored)[0], uri=uri)
    assert (done.num_written, done.num_kept) == (1, 1)
    client = mlflow.MlflowClient(tracking_uri=uri)
    runs = client.search_runs([client.get_experiment_by_name(stored.name).experiment_id])
    assert len(runs) == 2
    assert {run.data.metrics["loss"] for run in runs} == {1 / 3, 0.25}


def test_a_run_made_anew_has_another_mark(sweep: Any, timed: Callable[..., list[EpochRecord]]) -> None:
    marks = set()
    for _ in range(2):  # somebody deletes its folder and runs the same cell again: as many epochs, other numbers
        name = sweep.run({"lr": 0.1}, timed([9.0, 2.0]))
        (run,) = read_results(sweep.paths)[0].runs
        marks.add(run_fingerprint(run))
        shutil.rmtree(sweep.paths.run(name).root)
    assert len(marks) == 2


def test_an_export_that_lacks_what_was_done_otherwise_is_made_anew(sweep: Any) -> None:
    plain, otherwise = ({"minute": 0, "deviations": said} for said in ((), ("it went in halves",)))
    marks = set()
    for fields in (plain, otherwise):
        name = sweep.run({"lr": 0.1}, **fields)
        (run,) = read_results(sweep.paths)[0].runs
        marks.add(run_fingerprint(run))
        shutil.rmtree(sweep.paths.run(name).root)
    assert len(marks) == 2


@pytest.fixture
def wandb_ends() -> Iterator[None]:
    """Its service would live as long as this process."""
    yield
    importlib.import_module("wandb").teardown()


@pytest.mark.filterwarnings("ignore")  # wandb's own
@needs("wandb")
def test_wandb_has_an_offline_run_for_each_run_once(stored: SweepPaths, tmp_path: Path, wandb_ends: None) -> None:
    def export() -> tuple[int, int]:
        done = export_to_wandb(read_results(stored)[0], folder=tmp_path)
        return done.num_written, done.num_kept

    assert [export(), export()] == [(2, 0), (0, 2)]
    runs = read_results(stored)[0].runs
    with runs[1].paths.epochs.open("ab") as file:
        file.write(b'{"epoch": 2, "loss": 0.25}\n')
    assert export() == (1, 1)
    folders = list(tmp_path.glob("wandb/offline-run-*"))
    assert {folder.name.rpartition("-")[2] for folder in folders} == {run.record.signature[:16] for run in runs}
    assert all(list(folder.glob("*.wandb")) for folder in folders)
