"""Errors of files: a full disk is named, with the file."""

import errno
import os
from pathlib import Path

import pytest

from runmanager.errors import NoRoomError, UsageError
from runmanager.records.files.atomic_files import replace_file, replacement
from runmanager.records.files.file_errors import explain_disk_full, require_writable, was_refused
from runmanager.tracking.tensorboard.event_writer import EventWriter


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (errno.ENOSPC, r"No space left on device \([\d,]+ bytes free\); make room there\.$"),
        (errno.EDQUOT, r"Disk quota exceeded \([\d,]+ bytes free\); make room there\.$"),
        (errno.EFBIG, r"File too large; raise that limit\.$"),
    ],
)
def test_full_disk_is_named_even_if_a_library_hides_the_error(tmp_path: Path, number: int, cause: str) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_text("the one before")
    with pytest.raises(NoRoomError, match=rf"^{path} must .*, got {cause}"), replacement(path):
        try:
            raise OSError(number, os.strerror(number))
        finally:
            raise RuntimeError("unexpected pos 2304 vs 2198")  # like torch, which closes its archive
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert path.read_text() == "the one before"


@pytest.mark.parametrize(("inodes", "counts"), [((10, 0), True), ((10, 3), False), ((0, 0), False)])
def test_a_disk_with_room_but_without_inodes_says_so(
    inodes: tuple[int, int], counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = list(os.statvfs(tmp_path))
    now[5], now[7] = inodes  # how many there are, and how many are available
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(now))
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(NoRoomError) as raised, explain_disk_full(tmp_path / "run.json"):
        raise full
    assert ("inode" in str(raised.value), "bytes free" in str(raised.value)) == (counts, not counts)
    with pytest.raises(UsageError) as refused, require_writable("ROOT", tmp_path / "new", way_out="give another one"):
        raise full
    assert ("none of 10 free" in str(refused.value)) is counts


def test_another_refusal_that_a_library_hides_is_shown(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Read-only file system") as raised, replacement(tmp_path / "checkpoint.pt"):
        try:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        finally:
            raise RuntimeError("unexpected pos 2304 vs 2198")
    assert was_refused(f"{type(raised.value).__name__}: {raised.value}")


def test_an_error_that_is_its_own_cause_is_unchanged(tmp_path: Path) -> None:
    error = RuntimeError("unexpected pos 2304 vs 2198")
    error.__cause__ = error
    with pytest.raises(RuntimeError, match="unexpected pos"), explain_disk_full(tmp_path):
        raise error


@pytest.mark.parametrize(
    "said",
    [
        "can't start new thread",
        "unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)",
        "Too many open files. Communication with the workers is no longer possible.",
        "Caught RuntimeError in DataLoader worker process 0: it must be able to send its batch, got unable to open "
        "shared memory object </torch_1> in read-write mode: Too many open files (24).",
    ],
)
def test_what_the_machine_refuses_is_known_by_what_libraries_say_of_it(said: str) -> None:
    assert was_refused(f"RuntimeError: {said}")
    assert not was_refused(f"ValueError: {said}")


def test_other_errors_are_unchanged(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), explain_disk_full(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_a_missing_folder_is_named_once_where_it_must_be_writable(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    said = (
        f"^SWEEP must be a folder that can be written, got '{folder}': No such file or directory; give another one\\.$"
    )
    with pytest.raises(UsageError, match=said), require_writable("SWEEP", folder, way_out="give another one"):
        replace_file(folder / "labels.json", "{}")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a device that is always full")
def test_event_file_on_a_full_disk_is_named() -> None:
    full = Path("/dev/full")
    writer = EventWriter(full.parent, existing=full)
    for step in (writer.flush, writer.close):
        with pytest.raises(NoRoomError, match=r"^/dev/full must find room on the disk at "):
            step()
