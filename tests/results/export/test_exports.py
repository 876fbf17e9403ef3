"""All exports: their content, repeated exports, and missing packages."""

import dataclasses
import importlib
import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.run.status import Reason, Status
from runmanager.results.export.incremental import (
    distinct_names,
    epoch_metrics,
    exported_names,
    final_metrics,
    names_elsewhere,
    run_fingerprint,
)
from runmanager.results.export.mlflow import export_to_mlflow, metric_name
from runmanager.results.export.parquet import export_to_parquet
from runmanager.results.export.wandb import export_to_wandb
from runmanager.results.load.loader import read_results


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@pytest.fixture
def stored(sweep: Any, timed: Callable[..., list[EpochRecord]]) -> SweepPaths:
    """A finished and a failed run, with a setting of several types."""
    noted = {"deviations": ("batch split in halves",), "notes": ("a note", "n" * 9000)}
    settings = {"lr": 0.1, "hidden": [3, 4], "width": 10**20, "model": {"name": "cnn"}}
    sweep.run(settings, timed([9.0, 2.0, 2.0]), num_parameters=7, **noted)
    failed = {"status": Status.FAILED, "reason": Reason.DIVERGED, "message": "the loss was nan"}
    sweep.run({"lr": "auto", "hidden": None, "model": {"name": "mlp"}}, timed([9.0]), **failed)
    return sweep.paths


@pytest.mark.parametrize(
    ("package", "extra"), [("pyarrow", "parquet"), ("mlflow", "mlflow"), ("wandb", "wandb")], ids=str
)
def test_a_missing_package_is_an_error_with_its_install_command(
    stored: SweepPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    exports: dict[str, Callable[[], Any]] = {
        "parquet": lambda: export_to_parquet(stored),
        "mlflow": lambda: export_to_mlflow(read_results(stored)[0]),
        "wandb": lambda: export_to_wandb(read_results(stored)[0], folder=tmp_path),
    }
    with pytest.raises(UsageError) as rejected:
        exports[extra]()
    assert str(rejected.value) == (
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
        assert [row["width"] for row in runs] == [str(10**20), None]
        assert [row["epoch"] for row in epochs] == [1, 2, 3, 1]
        assert comparison == []


@pytest.fixture
def logging(sweep: Any, timed: Callable[..., list[EpochRecord]]) -> SweepPaths:
    """A run whose program logged metrics, one of them with the name of a fixed column, and tokens."""
    logged = [{"val/f1": 0.25, "fid@50": 3.0, "loss": 7.0}, {"val/f1": 0.5}, {"val/f1": None}]
    epochs = [
        msgspec.structs.replace(epoch, metrics=metrics, units={"tokens": 100})
        for epoch, metrics in zip(timed([9.0, 2.0, 4.0]), logged, strict=True)
    ]
    sweep.run({"lr": 0.1}, epochs)
    return sweep.paths


def test_logged_metrics_are_exported_by_epoch_and_for_the_run(logging: SweepPaths) -> None:
    (run,) = read_results(logging)[0].runs
    names = exported_names(run)
    by_epoch = [epoch_metrics(epoch, names) for epoch in run.epochs]
    assert [each.get("val/f1") for each in by_epoch] == [0.25, 0.5, None]
    assert [each["tokens_per_second"] for each in by_epoch] == [100 / 9, 50.0, 25.0]
    assert (by_epoch[0]["loss"], by_epoch[0]["metrics.loss"], by_epoch[0]["fid@50"]) == (1.0, 7.0, 3.0)
    assert final_metrics(run, names) == {
        **{"val/f1": None, "fid@50": 3.0, "metrics.loss": 7.0},
        "tokens_per_second": 37.5,
    }


@pytest.fixture
def without_epochs(sweep: Any) -> SweepPaths:
    """A run whose program returned or printed its results."""
    sweep.run({"lr": 0.1}, [], minute=0, summary={"test/acc": 0.9, "val_loss": 0.25, "fid": None})
    return sweep.paths


def test_results_of_a_run_without_epochs_are_exported(without_epochs: SweepPaths) -> None:
    (run,) = read_results(without_epochs)[0].runs
    assert final_metrics(run, exported_names(run)) == {"val_loss": 0.25, "test/acc": 0.9, "fid": None}
    record = msgspec.structs.replace(run.record, summary={"test/acc": 0.8, "val_loss": 0.25, "fid": None})
    assert run_fingerprint(dataclasses.replace(run, record=record)) != run_fingerprint(run)


@pytest.mark.filterwarnings("ignore")  # raised by MLflow and its dependencies
@needs("mlflow", "sqlalchemy", "alembic")
def test_mlflow_gets_results_of_a_run_without_epochs(without_epochs: SweepPaths, tmp_path: Path) -> None:
    mlflow = importlib.import_module("mlflow")
    uri = f"sqlite:///{tmp_path}/store.db"
    export_to_mlflow(read_results(without_epochs)[0], uri=uri)
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name(without_epochs.name).experiment_id])
    assert (run.data.metrics["test/acc"], run.data.metrics["val_loss"]) == (0.9, 0.25)
    assert "fid" not in run.data.metrics


@pytest.mark.parametrize(
    ("name", "accepted"),
    [("val/f1", "val/f1"), ("fid@50", "fid_50"), ("a//b", "a__b"), ("/a", "_a"), ("../a", "___a"), ("", "_")],
)
def test_metrics_have_names_that_mlflow_accepts(name: str, accepted: str) -> None:
    assert metric_name(name) == accepted
    assert len(metric_name(300 * "x")) == 250


def test_names_stay_distinct_where_another_tool_does_not_accept_them() -> None:
    names = ["err>1", "err<1", "err_1", "err_1_2", "loss", "a" * 300, "a" * 299 + "b"]
    found = distinct_names(names, metric_name, max_length=250)
    assert found == distinct_names(names[::-1], metric_name, max_length=250)
    assert (found["err_1"], found["err_1_2"], found["loss"]) == ("err_1", "err_1_2", "loss")
    assert (found["err<1"], found["err>1"]) == ("err_1_3", "err_1_4")
    assert (found["a" * 300], found["a" * 299 + "b"]) == ("a" * 250, "a" * 248 + "_2")
    in_any_case = distinct_names(["Loss", "F1", "loss", "f1"], str, is_same_in_any_case=True)
    assert in_any_case == {"loss": "loss", "Loss": "Loss_2", "F1": "F1", "f1": "f1_2"}


@pytest.fixture
def clashing(sweep: Any, timed: Callable[..., list[EpochRecord]]) -> SweepPaths:
    """Runs whose names other tools do not accept, or do not tell apart, and a setting of 7,000 characters."""
    settings = {"model@net": "mlp", "model_net": "cnn", "text": 7000 * "x", "_wandb": 1, "K": 1, "k": 2}
    for number, metrics in enumerate(
        ({"err>1": 1.0, "err<1": 2.0, "_step": 3.0}, {"err>1": 4.0, "F1": 5.0, "f1": 6.0})
    ):
        epochs = [msgspec.structs.replace(epoch, metrics=metrics) for epoch in timed([9.0, 2.0])]
        sweep.run(settings | {"lr": number}, epochs, summary={"sum>1": 7.0, "sum<1": 8.0})
    return sweep.paths


def test_a_run_is_exported_again_when_its_names_change(clashing: SweepPaths) -> None:
    def names(runs: Any) -> Any:
        return names_elsewhere(runs, setting_name=metric_name, metric_name=metric_name, max_length=250)

    first, second = read_results(clashing)[0].runs
    alone, both = names([second]), names([first, second])
    assert (alone.metrics["err>1"], both.metrics["err>1"]) == ("err_1", "err_1_2")
    assert run_fingerprint(second, alone) != run_fingerprint(second, both) != run_fingerprint(second)


@needs("pyarrow")
def test_parquet_has_columns_that_differ_in_more_than_case(clashing: SweepPaths) -> None:
    parquet = importlib.import_module("pyarrow.parquet")
    done = export_to_parquet(clashing)
    first, second = parquet.read_table(clashing.root / "runs.parquet").to_pylist()
    assert len({name.casefold() for name in first}) == len(first)
    assert (second["F1"], second["f1_2"], first["err>1"], first["err<1"]) == (5.0, 6.0, 1.0, 2.0)
    assert done.describe().splitlines()[1:] == [
        "Other names in Parquet, where columns must differ in more than case: f1 is f1_2."
    ]


@pytest.mark.filterwarnings("ignore")  # raised by MLflow and its dependencies
@needs("mlflow", "sqlalchemy", "alembic")
def test_mlflow_has_all_metrics_and_settings_and_says_what_is_changed(clashing: SweepPaths, tmp_path: Path) -> None:
    mlflow = importlib.import_module("mlflow")
    uri = f"sqlite:///{tmp_path}/store.db"
    done = export_to_mlflow(read_results(clashing)[0], uri=uri)
    client = mlflow.MlflowClient(tracking_uri=uri)
    runs = client.search_runs([client.get_experiment_by_name(clashing.name).experiment_id])
    first, second = sorted(runs, key=lambda run: run.data.params["lr"])
    assert [first.data.metrics[name] for name in ("err_1", "err_1_2", "sum_1", "sum_1_2")] == [2.0, 1.0, 8.0, 7.0]
    assert (second.data.metrics["err_1_2"], "err_1" in second.data.metrics) == (4.0, False)
    assert (first.data.params["model_net"], first.data.params["model_net_2"]) == ("cnn", "mlp")
    assert len(first.data.params["text"]) == 6000 and "7,000 characters" in first.data.params["text"]
    _, names, texts = done.describe().splitlines()
    assert "the setting model@net is model_net_2, the metric err<1 is err_1, the metric err>1 is err_1_2" in names
    assert texts.startswith("Cut, as MLflow takes 6,000 characters") and texts.endswith("the setting text (7,000).")
    assert export_to_mlflow(read_results(clashing)[0], uri=uri).num_kept == 2


@needs("pyarrow")
def test_parquet_has_logged_metrics(logging: SweepPaths) -> None:
    parquet = importlib.import_module("pyarrow.parquet")
    export_to_parquet(logging)
    runs, epochs = (parquet.read_table(logging.root / f"{name}.parquet").to_pylist() for name in ("runs", "epochs"))
    assert [(row["fid@50"], row["metrics.loss"], row["tokens_per_second"]) for row in runs] == [(3.0, 7.0, 37.5)]
    assert [(row["val/f1"], row["fid@50"], row["tokens"]) for row in epochs] == [
        (0.25, 3.0, 100),
        (0.5, None, 100),
        (None, None, 100),
    ]


@pytest.mark.filterwarnings("ignore")  # raised by MLflow and its dependencies
@needs("mlflow", "sqlalchemy", "alembic")
def test_mlflow_gets_logged_metrics(logging: SweepPaths, tmp_path: Path) -> None:
    mlflow = importlib.import_module("mlflow")
    uri = f"sqlite:///{tmp_path}/store.db"
    export_to_mlflow(read_results(logging)[0], uri=uri)
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name(logging.name).experiment_id])
    assert (run.data.metrics["fid_50"], run.data.metrics["metrics.loss"]) == (3.0, 7.0)
    history = client.get_metric_history(run.info.run_id, "val/f1")
    assert [(each.step, each.value) for each in history] == [(1, 0.25), (2, 0.5)]


@pytest.mark.filterwarnings("ignore")  # raised by MLflow and its dependencies
@needs("mlflow", "sqlalchemy", "alembic")
def test_mlflow_gets_each_run_once(stored: SweepPaths, tmp_path: Path) -> None:
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
    assert of_name["cnn"].data.tags["runmanager.deviations"] == "batch split in halves"
    assert of_name["cnn"].data.tags["mlflow.note.content"].startswith("batch split in halves\n\na note\n\nnnn")
    assert "runmanager.deviations" not in of_name["mlp"].data.tags
    history = client.get_metric_history(of_name["cnn"].info.run_id, "epoch_seconds")
    assert [(each.step, each.value) for each in history] == [(1, 9.0), (2, 2.0), (3, 2.0)]


@pytest.mark.filterwarnings("ignore")  # raised by MLflow and its dependencies
@needs("mlflow", "sqlalchemy", "alembic")
def test_a_changed_run_is_replaced_in_mlflow(stored: SweepPaths, tmp_path: Path) -> None:
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


def test_a_repeated_run_has_another_fingerprint(sweep: Any, timed: Callable[..., list[EpochRecord]]) -> None:
    fingerprints = set()
    for _ in range(2):  # the user deletes the folder and runs the cell again: same number of epochs, other results
        name = sweep.run({"lr": 0.1}, timed([9.0, 2.0]))
        (run,) = read_results(sweep.paths)[0].runs
        fingerprints.add(run_fingerprint(run))
        shutil.rmtree(sweep.paths.run(name).root)
    assert len(fingerprints) == 2


def test_deviations_change_the_fingerprint(sweep: Any) -> None:
    fingerprints = set()
    for deviations in ((), ("batch split in halves",)):
        name = sweep.run({"lr": 0.1}, minute=0, deviations=deviations)
        (run,) = read_results(sweep.paths)[0].runs
        fingerprints.add(run_fingerprint(run))
        shutil.rmtree(sweep.paths.run(name).root)
    assert len(fingerprints) == 2


@pytest.fixture
def wandb_teardown() -> Iterator[None]:
    """Stop wandb's service, which would otherwise live as long as the test process."""
    yield
    importlib.import_module("wandb").teardown()


@pytest.mark.filterwarnings("ignore")  # raised by wandb
@needs("wandb")
def test_wandb_gets_names_that_it_does_not_fill_itself(
    clashing: SweepPaths, tmp_path: Path, wandb_teardown: None
) -> None:
    renamed = clashing.root.rename(clashing.root.with_name("a#b"))
    done = export_to_wandb(read_results(SweepPaths(renamed))[0], folder=tmp_path)
    assert done.describe().splitlines()[1:] == [
        "Other names in wandb: the setting _wandb is settings._wandb, the metric _step is metrics._step.",
        "The project is called a_b, as wandb does not accept a#b.",
    ]


@pytest.mark.filterwarnings("ignore")  # raised by wandb
@needs("wandb")
def test_wandb_gets_an_offline_run_for_each_run_once(stored: SweepPaths, tmp_path: Path, wandb_teardown: None) -> None:
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
