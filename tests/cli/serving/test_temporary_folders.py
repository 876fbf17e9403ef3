"""Tests of the temporary folders of commands."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from runmanager.cli.serving import local_server
from runmanager.cli.serving.local_server import temporary_folder

HOLD = """
import sys
from runmanager.cli.serving.local_server import temporary_folder
with temporary_folder("tensorboard") as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_the_folder_of_a_killed_command_goes_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    living, killed = (
        subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    )
    assert living.stdout is not None and killed.stdout is not None
    held, abandoned = (Path(each.stdout.readline().strip()) for each in (living, killed))
    killed.kill()
    killed.communicate()
    others = [tmp_path / "runmanager-tensorboard-1-1", tmp_path / "runmanager-tensorboard-999999999-1-x"]
    others[0].mkdir()
    others[1].symlink_to(held)
    with temporary_folder("tensorboard") as folder:
        assert sorted(tmp_path.iterdir()) == sorted([held, folder, *others])
        assert (held / "file").exists() and not abandoned.exists() and list(folder.iterdir()) == []
    living.communicate("")
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_the_folder_is_in_memory_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, memory = tmp_path / "disk", tmp_path / "memory"
    memory.mkdir()
    disk.mkdir()
    abandoned = disk / "runmanager-tensorboard-999999999-1-x"
    abandoned.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    monkeypatch.setattr(local_server, "_IN_MEMORY", str(memory))
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)

    def parent() -> Path:
        with temporary_folder("tensorboard") as folder:
            return folder.parent

    monkeypatch.setattr(local_server, "_LEAST_FREE_BYTES", 1)
    assert parent() == memory and not abandoned.exists()
    monkeypatch.setattr(local_server, "_LEAST_FREE_BYTES", 1 << 60)
    assert parent() == disk
    monkeypatch.setattr(local_server, "_LEAST_FREE_BYTES", 1)
    monkeypatch.setenv("TMPDIR", str(disk))
    assert parent() == disk
    monkeypatch.delenv("TMPDIR")
    memory.rmdir()
    assert parent() == disk
