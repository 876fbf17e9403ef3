"""The files of sweeps and runs have the names that docs/files.md promises."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.records.files.paths import (
    RunPaths,
    SweepPaths,
    cache_folder,
    device_peaks_file,
    folder_name,
    is_folder_name,
)


def test_files_of_a_run() -> None:
    run = RunPaths(Path("outputs/first/runs/lr=0.1-0badcafe"))
    names = {
        "record": "run.json",
        "reported": "reported.json",
        "epochs": "epochs.jsonl",
        "turns": "turns.jsonl",
        "config": "config.yaml",
        "log": "run.log",
        "error": "error.txt",
        "checkpoint": "checkpoint.pt",
        "best": "best.pt",
        "heartbeat": "heartbeat",
        "files": "files",
        "attempts": "attempts",
    }
    assert {name: str(getattr(run, name).relative_to(run.root)) for name in names} == names
    assert run.name == "lr=0.1-0badcafe" and run.sweep == SweepPaths(Path("outputs/first"))
    assert run.program_heartbeat == run.root / "heartbeat.program"
    assert (run.claim(2), run.reporter(3)) == (run.root / ".claim-2", run.root / ".reporter-3")


def test_event_file_of_a_run_is_the_first_one(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    assert run.events is None
    for name in ("events.out.tfevents.2.b", "events.out.tfevents.1.a", "events.txt"):
        (tmp_path / name).touch()
    assert run.events == tmp_path / "events.out.tfevents.1.a"


def test_files_of_a_sweep() -> None:
    sweep = SweepPaths(Path("outputs/first"))
    names = {
        "record": "sweep.json",
        "labels": "labels.json",
        "runs": "runs",
        "report": "report.html",
        "figures": "figures",
        "epochs_csv": "epochs.csv",
        "summaries": ".summaries",
        "sizes": ".sizes",
    }
    assert {name: str(getattr(sweep, name).relative_to(sweep.root)) for name in names} == names
    assert sweep.name == "first" and sweep.run("a") == RunPaths(Path("outputs/first/runs/a"))
    assert sweep.results("csv") == Path("outputs/first/results.csv")
    assert sweep.comparison("md") == Path("outputs/first/comparison.md")
    assert sweep.figure("speed", "svg") == Path("outputs/first/figures/speed.svg")


@pytest.mark.parametrize("name", ["", " ", ".hidden", "a/b", "a\nb", "..", "é" * 128, "a" * 256])
def test_names_that_are_not_of_one_folder(name: str) -> None:
    assert not is_folder_name(name)


@pytest.mark.parametrize("name", ["a", "lr=0.1,seed=2-0badcafe", "é" * 100, "with blank", "a" * 255])
def test_names_of_one_folder(name: str) -> None:
    assert is_folder_name(name)


def test_cache_is_where_the_user_keeps_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "runmanager"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own" / "runmanager"
    assert device_peaks_file() == tmp_path / "own" / "runmanager" / "ceilings.json"


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("lr=0.1,seed=0-3f2a1b2c", "lr_0.1-seed_0-3f2a1b2c"),
        ("lr=1e+30,batch_size=100-3f2a1b2c", "lr_1e+30-batch_size_100-3f2a1b2c"),
        ("+momentum=-1-3f2a1b2c", "momentum_-1-3f2a1b2c"),
        ("größe=ü,naïve=学-3f2a1b2c", "gro_e_u-naive_-3f2a1b2c"),
        ("学=1-3f2a1b2c", "1-3f2a1b2c"),
        ("学=学-3f2a1b2c", "run-3f2a1b2c"),
        ("run-3f2a1b2c", "run-3f2a1b2c"),
    ],
)
def test_new_folders_have_plain_names(name: str, folder: str) -> None:
    assert folder_name(name) == folder_name(folder) == folder


@given(st.text(max_size=150))
def test_any_name_has_a_plain_folder(settings: str) -> None:
    folder = folder_name(f"{settings}-3f2a1b2c")
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{,119}-3f2a1b2c", folder)
    assert folder_name(folder) == folder


def test_a_run_is_in_the_folder_of_its_name_or_in_the_plain_one(tmp_path: Path) -> None:
    sweep, name, plain = SweepPaths(tmp_path), "lr=0.1-3f2a1b2c", "lr_0.1-3f2a1b2c"
    assert sweep.run(name).name == name
    (sweep.runs / plain).mkdir(parents=True)
    assert sweep.run(name).name == sweep.run(plain).name == plain
    (sweep.runs / name).mkdir()
    assert (sweep.run(name).name, sweep.run(plain).name) == (name, plain)
