"""What a cell writes outside its run folder, below the working folder: its event files, and files that others share.

Event files name the host and the process that wrote them, and when. Those of the cell's own processes are linked into
its run folder, where they count as its metrics. Of every other file it is only seen that it changed while the cell ran:
`results/findings` compares that with the other runs of the sweep.
"""

import contextlib
import os
import re
import shutil
import socket
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import OutsideFiles
from runmanager.text import encodable, pluralize

_LOOKING_SHARE, _LAST_LOOK_SHARE = 0.0025, 0.005  # of the cell's time; all looks before the last, and that one
_SHORTEST_LOOK_SECONDS = 0.002
_LONGEST_LOOK_SECONDS = 2.0
_TICK_NS = 50_000_000  # a file's time is that of the kernel's last tick, so it may be this much too early
_MAX_ENTRIES = 200_000
_ENTRIES_AT_ONCE = 64  # between two looks at the clock
_FOREIGN = ("pyvenv.cfg", "sweep.json")  # folders with such a file: virtual environments, sweeps
_UNSEARCHED = frozenset(("__pycache__", "node_modules", "site-packages"))
_SOURCES = (".py", ".pyc", ".ipynb")  # what people edit meanwhile
_MAX_FILES = 100
_MAX_NAMED = 3
_EVENTS = re.compile(
    rf"events\.out\.tfevents\.(?P<time>\d+)\.{re.escape(socket.gethostname())}(\.(?P<process>\d+)\.\d+)?"
)


class OutsideWatch:
    """Watches the present working folder from now on, for less than a hundredth of the time.

    `look` may be called at any time; `finish` when the program has ended. What is hidden, other sweeps, virtual
    environments and source files are left out, and so is what the driver or its neighbours in a pipe write.
    """

    def __init__(self, run: RunPaths) -> None:
        self._run = run
        self._folder = Path.cwd()
        self._began, self._began_ns = time.monotonic(), time.time_ns() - _TICK_NS
        self._own_processes = {os.getpid()}
        self._changed: dict[str, tuple[float, ...]] = {}
        self._unknown: dict[str, os.stat_result] = {}
        self._spent = 0.0
        self._last_seconds = _SHORTEST_LOOK_SECONDS
        self._is_whole = True

    def look(self) -> None:
        """Note the cell's processes, and what has changed by now if there is time for it."""
        self._own_processes |= set(_descendants(os.getpid()))
        left = _LOOKING_SHARE * (time.monotonic() - self._began) - self._spent
        if left > self._last_seconds:
            self._search(min(left, _LONGEST_LOOK_SECONDS))

    def finish(self, child: int | None = None, *, argument: str = "") -> list[str]:
        """Look a last time, and return lines about what could not be seen; `child` is a process that has ended.

        `argument` as of `files`.
        """
        self._own_processes |= {child} if child is not None else set()
        seconds = _LAST_LOOK_SHARE * (time.monotonic() - self._began)
        self._unknown.clear()
        self._search(max(_SHORTEST_LOOK_SECONDS, min(seconds, _LONGEST_LOOK_SECONDS)), is_last=True)
        notes = []
        if not self._is_whole:
            notes.append(
                f"not all files below {self._folder} were looked at, as that would have taken over 1% of the run: "
                "event files there may be missing, and files that several runs write are not seen"
            )
        if names := [name for name, status in self._unknown.items() if _is_of_nobody(name, status)]:
            shown = ", ".join(names[:_MAX_NAMED]) + ("…" if len(names) > _MAX_NAMED else "")
            files = pluralize(len(names), "event file")
            notes.append(
                f"{files} below {self._folder} may be of another program, and not used: {shown}; with "
                f"{f'{argument} or ' if argument else ''}--chdir each cell writes into its own folder"
            )
        return notes

    def files(self, earlier: OutsideFiles | None, *, argument: str) -> OutsideFiles | None:
        """Return what has changed in this attempt and `earlier` ones; None if that is nothing.

        `argument` is a setting with which the program writes into the run folder, if one is known.
        """
        changed = {} if earlier is None else dict(earlier.files)
        if self._changed:
            held = _held_around()
            for name, times in self._changed.items():
                with contextlib.suppress(OSError):
                    status = (self._folder / name).lstat()
                    if (status.st_dev, status.st_ino) in held:
                        continue
                changed[encodable(name)] = (*changed.get(name, ()), *times)
        if not changed:
            return None
        first = sorted(changed, key=lambda name: (name.count("/"), name))[:_MAX_FILES]  # the same ones in each run
        return OutsideFiles(
            folder=encodable(str(self._folder)), files={name: changed[name] for name in first}, argument=argument
        )

    def _search(self, seconds: float, *, is_last: bool = False) -> None:
        began = time.monotonic()
        for entry in self._entries(began + seconds):
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if status.st_mtime_ns >= self._began_ns and stat.S_ISREG(status.st_mode):
                    self._take(entry, status, is_last=is_last)
        self._last_seconds = time.monotonic() - began
        self._spent += self._last_seconds

    def _entries(self, deadline: float) -> Iterator["os.DirEntry[str]"]:
        """Yield the files below the folder, those of upper folders first, until the deadline."""
        pending, count = deque([str(self._folder)]), 0
        own = str(self._run.sweep.root.absolute())
        while pending:
            folder = pending.popleft()
            is_foreign = folder != str(self._folder) and any(os.path.lexists(f"{folder}/{name}") for name in _FOREIGN)
            if folder == own or is_foreign:
                continue
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    count += 1
                    if count % _ENTRIES_AT_ONCE == 0 and (count > _MAX_ENTRIES or time.monotonic() > deadline):
                        self._is_whole = False
                        return
                    if entry.name.startswith(".") or entry.name in _UNSEARCHED:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        yield entry
        self._is_whole = True

    def _take(self, entry: "os.DirEntry[str]", status: os.stat_result, *, is_last: bool) -> None:
        name = os.path.relpath(entry.path, self._folder)
        if "tfevents" in entry.name:
            if self._is_own(entry.name):
                self._link(entry.path, name, is_last=is_last)
            else:
                self._unknown[name] = status
        elif not entry.name.endswith(_SOURCES):
            times = self._changed.get(name, ())
            if status.st_mtime not in times:
                self._changed[name] = (*times[:1], status.st_mtime)  # the first one seen, and the last

    def _is_own(self, name: str) -> bool:
        """Whether a process of this cell has written an event file of this name."""
        found = _EVENTS.match(name)
        if found is None or found["process"] is None:
            return False
        is_new = int(found["time"]) >= self._began_ns // 10**9
        return is_new and int(found["process"]) in self._own_processes

    def _link(self, path: str, name: str, *, is_last: bool) -> None:
        """Link the file, or copy it where that is impossible and it is complete."""
        place = self._run.elsewhere / name
        with contextlib.suppress(OSError):  # it is found again; at the end the disk is full
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():
                return
            try:
                os.link(path, place)
            except OSError:
                if is_last:
                    shutil.copyfile(path, place)


def _is_of_nobody(name: str, status: os.stat_result) -> bool:
    """Whether an event file, not this cell's own, is not known to be another's: no other cell, no living process."""
    found = _EVENTS.match(os.path.basename(name))  # noqa: PTH119  # a text, of many
    if found is None or status.st_nlink > 1:
        return False  # of another host, or of a cell that has linked it
    return found["process"] is None or not psutil.pid_exists(int(found["process"]))


def _descendants(process: int) -> Iterator[int]:
    """Yield the living processes that descend from this one; on Linux only."""
    pending = [process]
    while pending:
        tasks = f"/proc/{pending.pop()}/task"
        with contextlib.suppress(OSError):
            for task in os.listdir(tasks):
                children = [int(word) for word in Path(tasks, task, "children").read_text().split()]
                yield from children
                pending += children


def _held_around() -> frozenset[tuple[int, int]]:
    """The files, by device and inode, that this cell's driver and what runs beside it have open: the command's logs."""
    groups = {_group_of(each.pid) for each in psutil.Process().parents()} - {os.getpgrp(), None}
    return frozenset(_open_files(pid for pid in psutil.pids() if _group_of(pid) in groups))


def _group_of(process: int) -> int | None:
    try:
        return os.getpgid(process)
    except OSError:
        return None


def _open_files(processes: Iterable[int]) -> Iterator[tuple[int, int]]:
    for process in processes:
        handles = f"/proc/{process}/fd"
        with contextlib.suppress(OSError):
            for handle in os.listdir(handles):
                with contextlib.suppress(OSError):
                    status = os.stat(f"{handles}/{handle}")  # noqa: PTH116  # a text, of many
                    yield status.st_dev, status.st_ino
