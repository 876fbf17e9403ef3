"""Paths of all files in sweep folders, in run folders and in the user's cache, and the making of folders."""

import datetime
import errno
import os
import re
import unicodedata
import weakref
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from runmanager.errors import RecordError
from runmanager.text import hidden_character
from runmanager.validation import fault

RECORD = "run.json"
"""File name of a run's record, for readers of so many runs that a `Path` for each takes too long."""

EPOCHS = "epochs.jsonl"
"""File name of a run's epochs."""

ELSEWHERE = "elsewhere"
"""The folder in a run's folder with the event files that its processes wrote elsewhere."""

EVENT_WRITER = "runmanager"
"""What event files name as their writer, by which they are told from those of the user's program."""


_NAME_BYTES = 255  # maximum of one folder, on Linux and macOS
_SHOWN = 40  # characters of a name that is too long


def is_folder_name(name: str) -> bool:
    """Whether a folder of this name lies directly in another one, is not hidden, and can be printed."""
    if not name.strip() or name.startswith(".") or "/" in name or not name.isprintable():
        return False
    return len(name.encode()) <= _NAME_BYTES


_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.+-]+")
_PLAIN_LENGTH = 120  # in letters of ASCII: as long as a run's name in bytes


def folder_name(name: str) -> str:
    """Return the name of a new folder for the run of this name: `lr_0.1-seed_0-3f2a1b2c` for `lr=0.1,seed=0-3f2a1b2c`.

    It begins with a letter or a digit, and has these in ASCII, `.`, `_`, `+` and `-` only, which no shell and no parser
    of arguments takes for anything else. It ends with the digits of the signature, as the run's name does.
    """
    settings, _, digits = name.rpartition("-")
    letters = "".join(each for each in unicodedata.normalize("NFKD", settings) if not unicodedata.combining(each))
    plain = _NOT_PLAIN.sub("_", letters.replace(",", "-"))
    return f"{plain.lstrip('._+-')[:_PLAIN_LENGTH] or 'run'}-{digits}"


def folder_name_fault(key: str, name: str, way_out: str = "") -> str:
    """Say what of `is_folder_name` a name lacks."""
    if hidden := hidden_character(name):
        return fault(key, "be of visible characters", f"{name!r} with {hidden}", "leave it out")
    return name_length_fault(key, name) or fault(key, "be the name of one folder", repr(name), way_out)


def name_length_fault(key: str, path: str | Path) -> str:
    """Return the fault of a path with a name that is too long for a file or folder; empty without one."""
    for name in Path(path).parts:
        if (size := len(os.fsencode(name))) > _NAME_BYTES:
            return fault(key, f"be at most {_NAME_BYTES} bytes long", f"{size} in {name[:_SHOWN]!r}…", "shorten it")
    return ""


def dated_name(kind: str = "", *, now: datetime.datetime | None = None) -> str:
    """Return a name for a new folder of this `kind`, such as `duel-2026-11-22_21-36-42`; the time alone without one."""
    stamp = (now or datetime.datetime.now()).strftime("%Y-%m-%d_%H-%M-%S")
    return f"{kind}-{stamp}" if kind else stamp


def storage_faults(name: str | None, output_root: str, key: Callable[[str], str] = str) -> list[str]:
    """Faults of where a sweep is to be stored; `key` is how the user names a setting. None stands for a new name."""
    faults = []
    if name is not None and not is_folder_name(name):
        way_out = f"`{key('output_root')}` sets where it is"
        faults.append(folder_name_fault(key("name"), name, way_out))
    if not output_root.strip() or not output_root.isprintable():
        faults.append(fault(key("output_root"), "be a folder", repr(output_root), "leave it out for outputs/"))
    elif too_long := name_length_fault(key("output_root"), output_root):
        faults.append(too_long)
    return faults


def cache_folder() -> Path | None:
    """Return the user's cache folder; None if the user has no home folder."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "runmanager"
    except RuntimeError:
        return None


def device_peaks_file() -> Path | None:
    """Return the file with the measured peak rates of this machine's devices; None without a home folder."""
    folder = cache_folder()
    return None if folder is None else folder / "ceilings.json"


@dataclass(frozen=True, slots=True)  # a sweep has thousands
class RunPaths:
    """The files of one run, in `root` = `<sweep>/runs/<name>`."""

    root: Path

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def sweep(self) -> "SweepPaths":
        """The sweep that the run is of."""
        return SweepPaths(self.root.parent.parent)

    @property
    def record(self) -> Path:
        return self.root / RECORD

    @property
    def reported(self) -> Path:
        """What the program of a cell reports, where its supervisor writes the record."""
        return self.root / "reported.json"

    @property
    def epochs(self) -> Path:
        return self.root / EPOCHS

    @property
    def turns(self) -> Path:
        """The measured turns of a run of a paired measurement (`measure=paired`)."""
        return self.root / "turns.jsonl"

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def log(self) -> Path:
        return self.root / "run.log"

    @property
    def error(self) -> Path:
        return self.root / "error.txt"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint.pt"

    @property
    def best(self) -> Path:
        """The weights of the best epoch by `checkpoint.keep_best`."""
        return self.root / "best.pt"

    @property
    def replaced(self) -> tuple[Path, ...]:
        """The files that are replaced as a whole, each by a temporary one next to it."""
        return self.record, self.reported, self.epochs, self.config, self.error, self.checkpoint, self.best

    @property
    def heartbeat(self) -> Path:
        return self.root / "heartbeat"

    @property
    def files(self) -> Path:
        """The folder for the program's own files."""
        return self.root / "files"

    @property
    def program_heartbeat(self) -> Path:
        """A file that the program of a cell rewrites every few seconds if it has proceeded."""
        return self.root / "heartbeat.program"

    @property
    def elsewhere(self) -> Path:
        """The event files that the run's processes wrote below the working folder, as hard links or copies."""
        return self.root / ELSEWHERE

    @property
    def attempts(self) -> Path:
        return self.root / "attempts"

    @property
    def holds_run(self) -> bool:
        """Whether the folder is that of a run, even if its record was lost; so is a link in the folder's place."""
        return self.root.is_symlink() or any(each.exists() for each in (self.record, self.epochs, self.checkpoint))

    def claim(self, attempt: int) -> Path:
        """The folder that gives the process named in it the right to this attempt (counted from 1)."""
        return self.root / f".claim-{attempt}"

    def reporter(self, attempt: int) -> Path:
        """The file that makes one process of a cell report what its program does in this attempt."""
        return self.root / f".reporter-{attempt}"

    def stop(self, attempt: int) -> Path:
        """The file that says that this attempt was asked to stop."""
        return self.root / f".stop-{attempt}"

    @property
    def events(self) -> Path | None:
        """The run's TensorBoard event file; None before it exists."""
        return min(self.root.glob("events.out.tfevents.*"), default=None)


@dataclass(frozen=True)
class SweepPaths:
    """The files of a sweep, in `root` = `<output_root>/<sweep>`."""

    root: Path

    @property
    def name(self) -> str:
        return self.root.resolve().name

    @property
    def record(self) -> Path:
        return self.root / "sweep.json"

    @property
    def labels(self) -> Path:
        """The tags and notes that people gave to the sweep and its runs."""
        return self.root / "labels.json"

    @property
    def messages(self) -> Path:
        """What the drivers of the sweep have said."""
        return self.root / "messages.jsonl"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def figures(self) -> Path:
        """The report's figures as files, written on request."""
        return self.root / "figures"

    @property
    def epochs_csv(self) -> Path:
        return self.root / "epochs.csv"

    @property
    def inference_csv(self) -> Path:
        return self.root / "inference.csv"

    @property
    def summaries(self) -> Path:
        """The cached summaries of ended runs; may be deleted at any time."""
        return self.root / ".summaries"

    @property
    def sizes(self) -> Path:
        """The cached sizes of the folders of ended runs; may be deleted at any time."""
        return self.root / ".sizes"

    def results(self, kind: str) -> Path:
        """The results table as file of `kind` csv, json, md or html."""
        return self.root / f"results.{kind}"

    def comparison(self, kind: str) -> Path:
        """The comparison table as file of `kind` csv, json or md."""
        return self.root / f"comparison.{kind}"

    def figure(self, name: str, kind: str) -> Path:
        """A figure of the report as file of `kind` svg or png."""
        return self.figures / f"{name}.{kind}"

    def run(self, name: str) -> RunPaths:
        """The run in the folder of this name, which need not exist; else that of the run of this name, if it does."""
        folder = self.runs / name
        if _NOT_PLAIN.search(name) and not os.path.lexists(folder):
            of_run = self.runs / folder_name(name)
            folder = of_run if os.path.lexists(of_run) else folder
        return RunPaths(folder)


_MAX_ENTRIES = 200_000


def refuse_linked_run(paths: RunPaths) -> None:
    """Raise `RecordError` if the run's folder is a link: it may lead into another sweep, whose run would be changed."""
    if paths.root.is_symlink():
        raise RecordError(f"{paths.root} must be a folder, got a link, which is not followed; move it away.")


def refuse_linked_runs(paths: SweepPaths) -> None:
    """Raise `RecordError` if the sweep's `runs` is a link, through which its runs would be written elsewhere."""
    if paths.runs.is_symlink():
        raise RecordError(f"{paths.runs} must be a folder, got a link; move what it leads to in its place.")


class FolderIdentity:
    """A folder as it is now, held open so that no other folder can get its inode."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loss = ""
        self._handle = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._handle)

    @property
    def loss(self) -> str:
        """How the folder was lost, as first seen, in words; empty while it exists or cannot be checked."""
        self._loss = self._loss or self._find_loss()
        return self._loss

    def _find_loss(self) -> str:
        try:
            now, then = os.stat(self._path), os.fstat(self._handle)  # noqa: PTH116  # five times a second
        except OSError as error:
            is_gone = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
            return "it deleted or moved" if is_gone else ""
        return "" if os.path.samestat(now, then) else "another in its place"


def folder_entries(folder: str) -> list["os.DirEntry[str]"]:
    """Return what is directly in a folder; nothing if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def folders_below(
    root: Path, notes: list[str], *, max_entries: int = _MAX_ENTRIES
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield `root` and the folders below it, each with the names of its folders and files, sorted.

    A caller may remove folders from the list, which are then not searched. Hidden folders and links to folders are not
    searched either. `notes` gets a line for what cannot be read, and one if there are more than `max_entries` files and
    folders, after which the search ends. Only names are looked at: a file may be a pipe.
    """
    seen = 0
    for folder, subfolders, names in os.walk(root, onerror=lambda error: notes.append(_unread(error))):
        seen += len(subfolders) + len(names)
        if seen > max_entries:
            notes.append(f"{root} must hold at most {max_entries:,} files, got more; the rest of them was not searched")
            return
        subfolders[:] = sorted(each for each in subfolders if not each.startswith("."))
        yield Path(folder), subfolders, sorted(names)


def files_below(
    root: Path, is_wanted: Callable[[str], bool], notes: list[str], *, without: Container[str] = ()
) -> list[Path]:
    """Find the files below `root` with a wanted name, sorted by folder and name, as `folders_below` searches.

    `without` are names of folders directly in `root` that are left out.
    """
    found: list[Path] = []
    for folder, subfolders, names in folders_below(root, notes):
        if folder == root:
            subfolders[:] = [each for each in subfolders if each not in without]
        found += (folder / name for name in names if is_wanted(name))
    return found


def _unread(error: OSError) -> str:
    return f"{error.filename} cannot be read: {error.strerror}"
