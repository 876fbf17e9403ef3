"""Download of a dataset: one process downloads while others wait, and complete files are moved into place."""

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
from runmanager.records.host.standard_streams import print_line
from runmanager.training.datasets.torchvision_files import SOURCES, VisionSource, missing_files
from runmanager.training.models.torchvision_models import import_torchvision

__all__ = ["download", "report_missing", "unwritable_folder"]

_TIMEOUT_SECONDS = 60  # without data; a network that drops packets must not hang the command
_FAILURES = (OSError, RuntimeError, EOFError, http.client.HTTPException, tarfile.TarError, zlib.error)


def download(name: str, *, data_root: Path) -> None:
    """Download the dataset `name` if any of its files is missing in `data_root`; write nothing otherwise.

    Progress goes to stderr. Raises `DatasetError` if the folder cannot be written or the files cannot be downloaded.
    """
    source = SOURCES[name]
    if not missing_files(source, data_root):
        return
    folder = data_root.absolute() / source.folder
    with _download_lock(data_root, name):
        if not missing_files(source, data_root):
            return  # another process has downloaded it in the meantime
        try:
            _fetch(name, source, data_root)
        except _FAILURES as error:
            raise DatasetError(
                f"Dataset '{name}' must be in {folder}, and could not be downloaded: {_one_line(error)}; "
                f"run it again with a network connection, copy the files there, or use `dataset=digits`."
            ) from error


def report_missing(name: str, *, data_root: Path) -> None:
    """Report on stderr that the first run downloads the dataset `name`, which a dry run does not try."""
    folder = data_root.absolute() / SOURCES[name].folder
    size = f"about {SOURCES[name].megabytes} MB"
    _report(f"{name} is not in {folder}: a run downloads it first ({size}), and checks the cells with it only then.")


def unwritable_folder(name: str, data_root: Path, problem: str) -> DatasetError:
    """Return the error of a data folder that a download cannot be written to."""
    return DatasetError(
        f"Dataset '{name}' must be downloaded, but {data_root.absolute()} cannot be written ({problem}); "
        "choose another folder with `data_root=…` or RUNMANAGER_DATA."
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _fetch(name: str, source: VisionSource, data_root: Path) -> None:
    _report(f"Downloading {name} to {data_root.absolute() / source.folder} (about {source.megabytes} MB, once).")
    staging = data_root / f".download-{name}"
    shutil.rmtree(staging, ignore_errors=True)  # left behind by a killed download
    try:
        with _network_timeout():
            getattr(import_torchvision().datasets, source.class_name)(root=staging, train=True, download=True)
        (data_root / source.folder).mkdir(parents=True, exist_ok=True)
        for file in source.files:
            os.replace(staging / source.folder / file, data_root / source.folder / file)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _download_lock(data_root: Path, name: str) -> Iterator[None]:
    """Hold the folder's lock; the operating system releases it when the process dies."""
    try:
        data_root.mkdir(parents=True, exist_ok=True)
        file = (data_root / ".download.lock").open("w")
    except OSError as error:
        raise unwritable_folder(name, data_root, _one_line(error)) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _report(f"Waiting for another process to download to {data_root.absolute()}.")
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


def _report(line: str) -> None:
    print_line(line, sys.stderr)
