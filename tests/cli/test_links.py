"""Tests that links which lead out of a sweep are named and not followed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runmanager.errors import RecordError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.sweep.sweep_record import SweepCommand, read_sweep_record, write_cells

MARK = "text-of-another-folder"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder like that of a run, next to the sweeps."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in ("run.json", "epochs.jsonl", "error.txt", "run.log", "events.out.tfevents.1", "config.yaml"):
        (folder / name).write_text(f"{MARK} {name}")
    return folder


@pytest.mark.parametrize("name", ["run.json", "epochs.jsonl", "error.txt", "run.log", "events.out.tfevents.1"])
def test_a_link_in_a_run_folder_shows_nothing_of_what_it_leads_to(
    command: Callable, sweep: SweepPaths, outside: Path, name: str
) -> None:
    run = sorted(sweep.runs.iterdir())[0]
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside / name)
    shown = [
        command(*words) for words in (("table", "grid"), ("report", "grid"), ("show", f"outputs/grid/runs/{run.name}"))
    ]
    texts = [text for done in shown for text in (done.out, done.err)]
    texts.append(sweep.report.read_text())
    assert all(MARK not in text for text in texts)
    if name in ("run.json", "epochs.jsonl"):
        damage = f"{run.name}/{name} is damaged: it must be a regular file, got a link, which is not followed"
        assert any(damage in " ".join(text.split()) for text in texts)
    assert (outside / name).read_text() == f"{MARK} {name}"


def test_a_run_folder_that_is_a_link_is_named_and_left_alone(
    command: Callable, sweep: SweepPaths, tmp_path: Path
) -> None:
    run = sorted(sweep.runs.iterdir())[0]
    moved = tmp_path / "elsewhere" / run.name
    moved.parent.mkdir()
    run.rename(moved)
    run.symlink_to(moved)
    before = {path: path.read_bytes() for path in moved.iterdir()}
    named = f"outputs/grid/runs/{run.name} must be a folder, got a link, which is not followed."
    for words in (("table", "grid"), ("compare", "grid"), ("report", "grid"), ("ls",)):
        done = command(*words)
        assert done.status == 0
        text = " ".join((done.out + done.err + (sweep.report.read_text() if words[0] == "report" else "")).split())
        assert named in text, words
    assert "got a link" in command("rm", f"outputs/grid/runs/{run.name}", "--yes").err
    assert {path: path.read_bytes() for path in moved.iterdir()} == before


def test_a_linked_folder_of_runs_is_neither_read_nor_written(sweep: SweepPaths, tmp_path: Path) -> None:
    sweep.runs.rename(tmp_path / "elsewhere")
    sweep.runs.symlink_to(tmp_path / "elsewhere")
    record = read_sweep_record(sweep)
    assert record is not None
    with pytest.raises(RecordError, match="runs must be a folder, got a link"):
        write_cells(sweep, record.planned, SweepCommand(["again"]))
