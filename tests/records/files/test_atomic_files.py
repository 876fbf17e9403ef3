"""Atomic files: they survive a kill at any moment."""

import errno
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runmanager.errors import NoRoomError
from runmanager.records.files.atomic_files import (
    LineAppender,
    file_stamp,
    locked_folder,
    read_bytes,
    remove_left_over,
    replace_file,
    replacement,
    whole_lines,
)

STEPS = ["open", "fdopen", "fsync", "replace"]


def refuse(*arguments: Any, **options: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_replace_file_creates_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    replace_file(path, "one é")
    assert path.read_bytes() == "one é".encode()
    replace_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_missing_or_goes_meanwhile_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    path = folder / "run.json"
    said = f"^The folder {folder} must exist while run.json is written, got "
    raised = []
    with pytest.raises(FileNotFoundError, match=f"{said}none") as error:
        replace_file(path, "new")
    raised.append(error.value)
    with pytest.raises(FileNotFoundError, match=f"{said}none") as error:
        LineAppender(path)
    raised.append(error.value)
    folder.mkdir()
    with pytest.raises(FileNotFoundError, match=f"{said}its files deleted or moved") as error, replacement(path):
        next(folder.iterdir()).unlink()
    raised.append(error.value)
    with pytest.raises(FileNotFoundError, match=f"{said}none") as error, replacement(path):
        shutil.rmtree(folder)
    raised.append(error.value)
    assert not folder.exists()
    sent = [pickle.loads(pickle.dumps(each)) for each in raised]
    assert [str(each) for each in sent] == [str(each) for each in raised]
    known = {(each.errno, each.strerror, each.filename) for each in [*raised, *sent]}
    assert known == {(errno.ENOENT, "No such file or directory", str(path))}


def test_a_file_that_cannot_be_made_in_its_folder_is_named_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "epochs.jsonl"
    said = f"^\\[Errno 2\\] No such file or directory: '{path}'$"

    def gone_for_a_moment(*arguments: Any, **options: Any) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", f"{tmp_path}/.epochs.jsonl.1234")

    with monkeypatch.context() as patch, pytest.raises(FileNotFoundError, match=said):
        patch.setattr(os, "open", gone_for_a_moment)
        replace_file(path, "new")
    path.symlink_to(tmp_path / "missing" / "epochs.jsonl")
    with pytest.raises(FileNotFoundError, match=said):
        LineAppender(path)


def test_an_appender_that_is_closed_is_not_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appender = LineAppender(tmp_path / "epochs.jsonl", clock=Clock())
    appender.append(b"first")
    assert appender.is_in_place()
    appender.append(b"second")
    with monkeypatch.context() as patch, pytest.raises(NoRoomError):
        patch.setattr(os, "fsync", refuse)
        appender.close()
    assert not appender.is_in_place()


@pytest.mark.parametrize("step", STEPS)
def test_failed_step_leaves_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "run.json"
    replace_file(path, "old")
    with monkeypatch.context() as patch:
        if step == "fdopen":
            original = os.fdopen

            def failing(handle: int, *arguments: Any) -> Any:
                os.close(handle)
                refuse()
                return original

            patch.setattr(os, step, failing)
        else:
            patch.setattr(os, step, refuse)
        with pytest.raises(OSError, match="No space"):
            replace_file(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


KILLED_AT = """
import os, signal, sys
from pathlib import Path
from runmanager.records.files.atomic_files import replace_file

def die(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)

step = sys.argv[1]
if step == "after":
    rename = os.replace
    os.replace = lambda *paths: (rename(*paths), die())
else:
    setattr(os, step, die)
replace_file(Path("run.json"), "new")
"""


@pytest.mark.parametrize(("step", "left"), [*((step, "old") for step in STEPS), ("after", "new")])
def test_kill_at_any_step_leaves_the_old_or_the_new_file_whole(tmp_path: Path, step: str, left: str) -> None:
    path = tmp_path / "run.json"
    replace_file(path, "old")
    killed = subprocess.run([sys.executable, "-c", KILLED_AT, step], cwd=tmp_path, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == left
    replace_file(path, "newer")  # the temporary file of the killed process does no harm
    assert path.read_text() == "newer"


def test_file_is_synced_before_the_rename_and_its_folder_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    sync, rename = os.fsync, os.replace

    def synced(handle: int) -> None:
        calls.append("folder" if Path(f"/proc/self/fd/{handle}").resolve() == tmp_path.resolve() else "file")
        sync(handle)

    def renamed(*paths: Any) -> None:
        calls.append("rename")
        rename(*paths)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    replace_file(tmp_path / "x", "y")
    assert calls == ["file", "rename", "folder"]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_lines_are_written_immediately_and_synced_once_a_second_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[float] = []
    clock = Clock()
    monkeypatch.setattr(os, "fsync", lambda handle: syncs.append(clock.now))
    path = tmp_path / "epochs.jsonl"
    path.touch()
    with LineAppender(path, sync_seconds=1.0, clock=clock) as appender:
        for number in range(30):
            clock.now = 100 + number / 10
            appender.append(b"%d" % number)
            assert path.read_bytes().splitlines()[-1] == b"%d" % number
        assert syncs == [100, 101, 102]
    assert syncs == [100, 101, 102, 102.9]
    appender.close()
    assert len(syncs) == 4  # a second close does nothing


class Waiting:
    """A timer that rings when it is told to."""

    def __init__(self, seconds: float, ring: Callable[[], None]) -> None:
        self.seconds, self.ring, self.is_started, self.is_cancelled = seconds, ring, False, False

    def start(self) -> None:
        self.is_started = True

    def cancel(self) -> None:
        self.is_cancelled = True


def test_a_line_after_which_none_comes_is_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[str] = []
    clock, timers = Clock(), list[Waiting]()
    monkeypatch.setattr(os, "fsync", lambda handle: syncs.append(Path(f"/proc/self/fd/{handle}").resolve().name))

    def timer(*arguments: Any) -> Any:
        timers.append(Waiting(*arguments))
        return timers[-1]

    appender = LineAppender(tmp_path / "epochs.jsonl", sync_seconds=1.0, clock=clock, timer=timer)
    appender.append(b"first")
    assert syncs == ["epochs.jsonl", tmp_path.name], "the new file's entry is synced too"
    for clock.now in (100.2, 100.5):
        appender.append(b"soon after")
    assert [(each.seconds, each.is_started) for each in timers] == [(pytest.approx(0.8), True)]
    timers[0].ring()
    assert syncs[2:] == ["epochs.jsonl"]
    appender.append(b"one more")
    monkeypatch.setattr(os, "fsync", refuse)
    timers[1].ring()
    with pytest.raises(NoRoomError, match="find room"):
        appender.append(b"what was not synced is told") or appender.sync()
    with pytest.raises(NoRoomError):
        appender.close()


def test_a_line_is_synced_at_once_if_no_thread_may_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(Waiting):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    syncs: list[int] = []
    timer: Any = Refused
    appender = LineAppender(tmp_path / "epochs.jsonl", clock=Clock(), timer=timer)
    appender.append(b"first")
    monkeypatch.setattr(os, "fsync", syncs.append)
    for line in (b"second", b"third"):
        appender.append(line)
    assert len(syncs) == 2
    appender.close()
    assert (tmp_path / "epochs.jsonl").read_bytes() == b"first\nsecond\nthird\n"


@pytest.mark.parametrize(
    ("there", "kept"), [(None, b""), (b"", b""), (b"a\n", b"a\n"), (b"a\nb", b"a\n"), (b"torn", b""), (b"\n{", b"\n")]
)
def test_torn_last_line_is_cut_before_the_next_one(tmp_path: Path, there: bytes | None, kept: bytes) -> None:
    path = tmp_path / "epochs.jsonl"
    if there is not None:
        path.write_bytes(there)
    with LineAppender(path) as appender:
        appender.append(b"next")
    assert path.read_bytes() == kept + b"next\n"


@settings(max_examples=30)
@given(
    lines=st.lists(
        st.binary(min_size=1, max_size=9).filter(lambda line: line.strip() and b"\n" not in line), max_size=5
    )
)
def test_whole_lines_before_any_cut_are_read(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    data = b"".join(line + b"\n" for line in lines)
    for end in range(len(data) + 1):
        path.write_bytes(data[:end])
        assert whole_lines(path) == b"".join(line + b"\n" for line in lines[: data[:end].count(b"\n")])


def test_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert whole_lines(tmp_path / "nothing") == b""


def test_replaced_file_has_another_stamp(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert file_stamp(path) is None
    path.write_bytes(b"one")
    stamp = file_stamp(path)
    assert file_stamp(path) == stamp
    times = path.stat()
    replace_file(path, b"two")  # same size and time
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file_stamp(path) != stamp


def test_folder_lock_excludes_other_threads_and_is_reentrant(tmp_path: Path) -> None:
    entered = threading.Event()

    def enter() -> None:
        with locked_folder(tmp_path):
            entered.set()

    other = threading.Thread(target=enter, daemon=True)
    with locked_folder(tmp_path):
        other.start()
        with locked_folder(tmp_path):
            assert not entered.is_set()
        assert not entered.is_set()
    other.join(60)
    assert entered.is_set()


def test_fork_made_under_a_lock_does_not_keep_it(tmp_path: Path) -> None:
    """A loader's workers, for example, may be forked by another thread, and inherit open files."""
    import fcntl

    ours, forks = os.pipe()
    with locked_folder(tmp_path):
        child = os.fork()
        if child == 0:
            os.close(forks)
            os.read(ours, 1)  # blocks until the other end is closed
            os._exit(0)
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)
        os.close(forks)
        os.waitpid(child, 0)


def test_line_without_room_raises_and_leaves_other_lines_intact(tmp_path: Path) -> None:
    path = tmp_path / "epochs.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with LineAppender(path) as appender:
        appender.append(b"a" * 50)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (80, limits[1]))  # room for half a line more
            with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
                appender.append(b"b" * 50)
            appender.append(b"c" * 10)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"a" * 50 + b"\n" + b"c" * 10 + b"\n"


def test_only_regular_files_are_read_and_none_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(content := b"x" * 200_000)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    for odd, message in (
        ("link", "it must be a regular file, got a link, which is not followed"),
        ("pipe", "it must be a regular file"),
        (".", "it must be a regular file"),
    ):
        with pytest.raises(OSError, match=f"^{message}$"):
            read_bytes(tmp_path / odd)
    before = next_handle(path)
    assert read_bytes(path) == content and next_handle(path) == before


def next_handle(path: Path) -> int:
    """Return the number that the next opened file gets: the smallest one that is free."""
    handle = os.open(path, os.O_RDONLY)
    os.close(handle)
    return handle


def test_only_what_replacements_of_these_files_left_is_removed(tmp_path: Path) -> None:
    kept = {"run.json", ".other.json.ab12", ".run.json", "run.json.ab12"}
    for name in (*kept, ".run.json.ab12", ".run.json.cd34"):
        (tmp_path / name).touch()
    (tmp_path / ".run.json.link").symlink_to(tmp_path / "run.json")
    (tmp_path / ".run.json.folder").mkdir()
    remove_left_over(tmp_path, ["run.json"])
    assert {path.name for path in tmp_path.iterdir()} == {*kept, ".run.json.link", ".run.json.folder"}


def test_what_another_process_removes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = Path.unlink

    def too_late(path: Path, missing_ok: bool = False) -> None:
        unlink(path)
        unlink(path, missing_ok=missing_ok)

    (tmp_path / ".run.json.ab12").touch()
    monkeypatch.setattr(Path, "unlink", too_late)
    remove_left_over(tmp_path, ["run.json"])
    assert list(tmp_path.iterdir()) == []
