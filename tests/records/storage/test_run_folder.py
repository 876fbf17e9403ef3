"""Run folders: new attempts keep the files of earlier ones, and epochs are cut to the checkpoint."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import read_epochs, read_record, read_run
from runmanager.records.storage.run_folder import RunFolder

from ..run_folders import left_by

MakeRecord = Callable[..., RunRecord]


def taken_over(folder: RunFolder, record: RunRecord) -> RunFolder:
    """Return the folder as `claim_run` gives it to its next owner."""
    return RunFolder(folder.paths, msgspec.structs.replace(record, attempt=folder.record.attempt + 1))


def filled(folder: RunFolder) -> RunPaths:
    paths = folder.paths
    for path in (paths.checkpoint, paths.log, paths.error, paths.config, paths.root / "events.out.tfevents.1"):
        path.write_text(path.name)
    return paths


def test_restart_moves_all_files_of_the_earlier_attempt(
    tmp_path: Path, record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = left_by(RunPaths(tmp_path / "runs" / "a"), record(status=Status.FAILED))
    paths = filled(old)
    before = paths.record.read_bytes()
    folder = taken_over(old, old.record)
    synced, sync = set(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.add(os.fstat(handle).st_ino), sync(handle)))
    folder.restart(record(status=Status.RUNNING))
    assert (paths.attempts / "1" / "run.json").stat().st_ino in synced, "it survives a power cut"
    assert {path.name for path in (paths.attempts / "1").iterdir()} == {
        *("run.json", "epochs.jsonl", "checkpoint.pt", "run.log", "error.txt", "config.yaml", "events.out.tfevents.1")
    }
    assert (paths.attempts / "1" / "run.json").read_bytes() == before
    assert (read_record(paths).status, read_record(paths).attempt) == (Status.RUNNING, 2)
    assert [path.name for path in sorted(paths.root.iterdir())] == ["attempts", "run.json"]
    folder.append(EpochRecord(epoch=1))
    taken_over(folder, folder.record).restart(record())  # the first attempt stays in its folder
    assert {path.name for path in paths.attempts.iterdir()} == {"1", "2"}
    assert (paths.attempts / "1" / "checkpoint.pt").read_text() == "checkpoint.pt"
    folder.close()


@pytest.mark.parametrize("moves", range(8))
def test_kill_during_restart_leaves_a_truthful_folder(
    tmp_path: Path, record: MakeRecord, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    old = left_by(RunPaths(tmp_path / "runs" / "a"), record(status=Status.FINISHED))
    paths = filled(old)
    before = read_run(paths)
    left = iter(range(moves))
    replace = os.replace

    def killed_after(source: Path, target: Path) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed_after)
    with pytest.raises(KeyboardInterrupt):
        taken_over(old, old.record).restart(record(status=Status.RUNNING))
    monkeypatch.undo()
    after = read_run(paths)
    if after.record.status is Status.FINISHED:
        assert after.epochs == before.epochs, "a run that reads finished has all its epochs"
    else:
        assert not paths.checkpoint.exists(), "no process can resume from the old checkpoint"


def epochs(*numbers: int) -> list[EpochRecord]:
    return [EpochRecord(epoch=number, loss=1 / (number + 1), samples=number) for number in numbers]


@pytest.mark.parametrize(
    ("there", "last", "kept"),
    [
        ((0, 1, 2, 3), 3, (0, 1, 2, 3)),
        ((0, 1, 2, 3), 2, (0, 1, 2)),  # epochs after the checkpoint run again
        ((1, 2), 3, (1, 2, 3)),  # killed between the checkpoint and its line
        ((), 1, (1,)),
        ((1, 2), None, ()),
    ],
)
def test_epochs_are_cut_to_the_checkpoint(
    tmp_path: Path,
    record: MakeRecord,
    there: tuple[int, ...],
    last: int | None,
    kept: tuple[int, ...],
) -> None:
    folder = claim_run(RunPaths(tmp_path / "a"), record())
    for epoch in epochs(*there):
        folder.append(epoch)
    with folder.paths.epochs.open("ab") as file:
        file.write(b'{"epoch": 9, "lo')
    checkpointed = None if last is None else epochs(last)[0]
    assert folder.cut_epochs(checkpointed) == epochs(*kept)
    folder.append(EpochRecord(epoch=7))
    folder.close()
    assert read_run(folder.paths).epochs == [*epochs(*kept), EpochRecord(epoch=7)]


@pytest.mark.parametrize("is_left", [False, True])
def test_a_folder_can_be_written_and_left_after_its_epochs_could_not_be_synced(
    tmp_path: Path, record: MakeRecord, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    folder = claim_run(RunPaths(tmp_path / "runs" / "a"), record(status=Status.RUNNING))
    first, second, third = epochs(1, 2, 3)
    folder.append(first)
    folder.append(second)

    def refuse(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output error"):
        patch.setattr(os, "fsync", refuse)
        if is_left:
            folder.leave()
        folder.replace_epochs([first, second])
    assert folder.is_ours is not is_left
    if not is_left:
        folder.keep_epochs([first, second])
        folder.append(third)
        folder.leave()
    assert [each.epoch for each in read_epochs(folder.paths)] == ([1, 2] if is_left else [1, 2, 3])
