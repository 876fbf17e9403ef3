"""The files of sweeps and runs have the names that docs/files.md promises."""

from pathlib import Path

import pytest

from runmanager.records.files.paths import RunPaths, SweepPaths, cache_folder, device_peaks_file, is_folder_name


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
        "slurm": "slurm",
        "slurm_jobs": "slurm/jobs.json",
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
