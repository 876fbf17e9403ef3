"""Finding sweeps and runs by folder or name."""

import os
import shutil
from pathlib import Path

import pytest

from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.versioned_file import encode_record
from runmanager.records.sweep.lookup import find_run, find_sweep, known_runs, known_sweeps

RUNS = {
    "first": ("lr=0.1,seed=0-250ab410", "lr=0.1,seed=1-2dc67ffb", "lr=0.1-7e000000"),
    "second": ("batch_size=100-25ffffff",),
}


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sweeps under outputs/ of the current folder."""
    monkeypatch.chdir(tmp_path)
    for sweep, runs in RUNS.items():
        for run in runs:
            folder = tmp_path / "outputs" / sweep / "runs" / run
            folder.mkdir(parents=True)
            (folder / "run.json").write_text("{}")
    return tmp_path / "outputs"


def test_folder_and_bare_name_find_the_same_sweep(outputs: Path) -> None:
    for name in (str(outputs / "first"), "outputs/first", "outputs/first/", "first"):
        assert find_sweep(name).root.resolve() == outputs / "first"


def test_local_folder_that_is_not_a_sweep_does_not_hide_the_one_under_outputs(outputs: Path, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    assert find_sweep("first").root.resolve() == outputs / "first"


def test_unknown_sweep_is_rejected_with_the_closest_name() -> None:
    with pytest.raises(UsageError, match=r"'furst' must be a sweep's folder.*Did you mean 'first'\?"):
        find_sweep("furst")


def test_unknown_sweep_is_rejected_with_the_existing_names(
    outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for older, newer in (("first", "second"), ("second", "first")):
        os.utime(outputs / older, (1, 1))
        os.utime(outputs / newer, (2, 2))
        for name in ("qqqq", "", "outputs/qqqq"):
            with pytest.raises(UsageError, match=rf"There are {newer}, {older} in outputs/\.$"):
                find_sweep(name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"There is none in outputs/ yet; `runmanager demo` makes one\.$"):
        find_sweep("qqqq")


def test_folder_without_a_sweep_is_rejected(outputs: Path) -> None:
    (outputs / "empty").mkdir()
    for name in ("empty", "outputs/empty"):
        with pytest.raises(UsageError, match="got a folder without them"):
            find_sweep(name)
    assert known_sweeps() == ["first", "second"]


@pytest.mark.parametrize(
    "name",
    [
        "outputs/first/runs/lr=0.1,seed=1-2dc67ffb",
        "outputs/first/runs/lr=0.1,seed=1",
        "outputs/first/lr=0.1,seed=1",
        "first/lr=0.1,seed=1-2d",
        "first/2d",
        "lr=0.1,seed=1",
        "2dc67ffb",
        "2d",
    ],
)
def test_any_unique_prefix_finds_the_run(name: str) -> None:
    assert find_run(name).name == "lr=0.1,seed=1-2dc67ffb"


def test_whole_name_without_digits_is_not_treated_as_a_prefix() -> None:
    assert find_run("first/lr=0.1").name == find_run("lr=0.1").name == "lr=0.1-7e000000"


@pytest.mark.parametrize(
    ("name", "found"), [("batch_size=100", "100,device=cpu"), ("batch_size=1000", "1000,device=cpu")]
)
def test_whole_values_come_before_beginnings_of_values(outputs: Path, name: str, found: str) -> None:
    for run in (
        "batch_size=100,device=cpu-31000000",
        "batch_size=1000,device=cpu-32000000",
        "batch_size=10000-33000000",
    ):
        (outputs / "third" / "runs" / run).mkdir(parents=True)
        (outputs / "third" / "runs" / run / "run.json").write_text("{}")
    assert find_run(f"third/{name}").name.startswith(f"batch_size={found}-")
    (outputs / "second").rename(outputs / "second.moved")
    shutil.rmtree(outputs / "second.moved")
    assert find_run(name).name.startswith(f"batch_size={found}-")
    with pytest.raises(UsageError, match="must name one run"):
        find_run("third/batch_size=10")


def test_sweep_with_one_run_denotes_that_run() -> None:
    for name in ("second", "outputs/second"):
        assert find_run(name).name == "batch_size=100-25ffffff"
    with pytest.raises(UsageError, match=r"must be one run, got a sweep of 3; add one of: lr=0\.1,seed=0-250ab410, "):
        find_run("first")


def test_several_matches_are_listed_in_one_line() -> None:
    with pytest.raises(UsageError) as refused:
        find_run("25")
    assert str(refused.value) == (
        "'25' must name one run, got 2: first/lr=0.1,seed=0-250ab410, second/batch_size=100-25ffffff; add a setting."
    )
    with pytest.raises(UsageError, match=r"got 2: lr=0\.1,seed=0-250ab410, lr=0\.1,seed=1-2dc67ffb"):
        find_run("first/lr=0.1,")


def test_a_run_is_found_by_settings_that_its_name_leaves_out(outputs: Path) -> None:
    for seed in (0, 1):
        config = {"seed": seed, "batch_size": 100, "model": {"name": "mlp"}, "top-k": 5}
        paths = SweepPaths(outputs / "third").run(f"seed={seed}-0000000{seed}")
        record = RunRecord(name=paths.name, signature="x", status=Status.FINISHED, config=config)
        paths.root.mkdir(parents=True)
        paths.record.write_bytes(encode_record(record))
    (outputs / "third" / "runs" / "seed=2-00000002").mkdir()
    (outputs / "third" / "runs" / "seed=2-00000002" / "run.json").write_text("{}")
    several = r"'third/batch_size=100' must name one run, got 2: seed=0-00000000, seed=1-00000001; add a setting\."
    with pytest.raises(UsageError, match=several):
        find_run("third/batch_size=100")
    for name in ("model.name=mlp", "top-k=5", "top_k=5"):
        assert find_run(f"third/{name},seed=1").name == "seed=1-00000001"
    for name in ("batch_size=10", "batch_size=100,lr=1"):
        with pytest.raises(UsageError, match="got none of: seed=0"):
            find_run(f"third/{name}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("batch_size=10O", r"got none; did you mean 'second/batch_size=100"),
        ("qqqq", r"got none; `runmanager table SWEEP` shows"),
        ("first/x", r"must be a run of outputs/first, got none of: lr"),
        ("third/x", r"must be a run's folder or SWEEP/RUN, got nothing there"),
    ],
)
def test_unknown_run_is_rejected_with_a_hint(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_run(name)


def test_known_runs_lists_the_runs_of_every_sweep() -> None:
    assert known_runs() == [f"{sweep}/{run}" for sweep, runs in RUNS.items() for run in sorted(runs)]
