"""Fetching a dataset once: one process downloads, the others wait; a half download is never taken for a whole one."""

import fcntl
import http.client
import os
import shutil
import socket
import sys
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runmanager.errors import DatasetError
from runmanager.training.data.torchvision_files import SOURCES, VisionSource, missing_files
from runmanager.training.models.torchvision_models import import_torchvision

__all__ = ["download"]

_TIMEOUT_SECONDS = 60  # without bytes; a network that swallows packets must not hang the command
_FAILURES = (OSError, RuntimeError, EOFError, http.client.HTTPException, tarfile.TarError, zlib.error)


def download(name: str, *, data_root: Path) -> None:
    """Fetch the files of the dataset `name` that `data_root` lacks; nothing is written where none is missing.

    Progress goes to stderr. Raises `DatasetError` when the folder cannot be written or the files cannot be fetched.
    """
    source = SOURCES[name]
    if not missing_files(source, data_root):
        return
    folder = data_root.absolute() / source.folder
    with _only_one(data_root, name):
        if not missing_files(source, data_root):
            return  # the process that was waited for has done it
        try:
            _fetch(name, source, data_root)
        except _FAILURES as error:
            raise DatasetError(
                f"Dataset '{name}' must be in {folder}, and could not be downloaded: {_one_line(error)}; "
                f"run it again with a network, put the files there by hand, or use `dataset=digits`."
            ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _fetch(name: str, source: VisionSource, data_root: Path) -> None:
    _say(f"Downloading {name} to {data_root.absolute() / source.folder} (about {source.megabytes} MB, once).")
    beside = data_root / f".download-{name}"
    shutil.rmtree(beside, ignore_errors=True)  # left by a download that was killed
    try:
        with _network_timeout():
            getattr(import_torchvision().datasets, source.class_name)(root=beside, train=True, download=True)
        (data_root / source.folder).mkdir(parents=True, exist_ok=True)
        for file in source.files:
            os.replace(beside / source.folder / file, data_root / source.folder / file)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def _only_one(data_root: Path, name: str) -> Iterator[None]:
    """Hold the folder's lock; the system lets go of it when the process dies."""
    try:
        data_root.mkdir(parents=True, exist_ok=True)
        file = (data_root / ".download.lock").open("w")
    except OSError as error:
        raise DatasetError(
            f"Dataset '{name}' is to be downloaded, but {data_root.absolute()} cannot be written ({_one_line(error)}); "
            "choose another folder with `data_root=…` or RUNMANAGER_DATA."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"Waiting for another process that downloads to {data_root.absolute()}.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _network_timeout() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
