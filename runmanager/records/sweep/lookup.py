"""Finding sweeps and runs by folder or by name under outputs/."""

import contextlib
import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from runmanager.errors import RecordError, UsageError
from runmanager.records.files.atomic_files import whole_lines
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.settings.secrets import redacted
from runmanager.records.storage.reader import read_record, run_name, run_names
from runmanager.records.sweep.sweep_record import open_sweep, read_sweep_record
from runmanager.text import encodable, format_value, shell_join
from runmanager.validation import did_you_mean

OUTPUT_ROOT = Path("outputs")
"""The default folder of sweeps."""

_MAX_NAMED = 5
_SWEEP_AND_RUN = 2  # parts of SWEEP/RUN


def find_sweep(name: str) -> SweepPaths:
    """Return the sweep in the folder `name`, else the one of that name under `outputs/`.

    Raises `UsageError`, with the closest existing names, if neither is a sweep; `RecordError` if the sweep's record is
    damaged.
    """
    folder = Path(name)
    try:
        try:
            return open_sweep(folder)
        except UsageError:
            if len(folder.parts) != 1 or not (OUTPUT_ROOT / name).is_dir():
                raise
        return open_sweep(OUTPUT_ROOT / name)
    except UsageError as error:
        raise UsageError(f"{error} {_existing_sweeps_hint(folder.name)}") from None


def typed_name(sweep: SweepPaths) -> str:
    """Return the name by which `find_sweep` finds a sweep here: that of its folder under `outputs/`, else its path."""
    root = sweep.root.absolute()
    is_hidden = root.name.startswith("-") or Path(root.name).exists()  # an option; another folder, which comes first
    is_named = root.parent == OUTPUT_ROOT.absolute() and not is_hidden
    return root.name if is_named else str(sweep.root)


def command_on(sweep: SweepPaths, name: str, *options: str) -> str:
    """Return a command on the sweep as it is typed here: `runmanager table first`."""
    return shell_join(["runmanager", name, typed_name(sweep), *options])


def find_run(name: str) -> RunPaths:
    """Return the run that `name` identifies.

    `name` is a run's folder; `SWEEP/RUN`, where SWEEP is a folder or a name under `outputs/`; RUN alone, searched in
    every sweep under `outputs/`; or a sweep with only one run. RUN is the beginning of the name of a run or of its
    folder or of the eight digits of the signature at their end, or some of its settings, as in `first/lr=0.1`. Whole
    values come first:
    `batch_size=100` is not the beginning of `batch_size=1000` where a run has 100.
    Raises `UsageError` if no run or more than one matches.
    """
    folder = Path(name)
    if RunPaths(folder).record.exists():
        return RunPaths(folder)
    for sweep in _candidate_sweeps(folder):
        if runs := _named_runs(sweep):
            return _only_run(runs, name)
    if folder.name != name:
        return _find_run_in_sweep(folder)
    return _find_run_anywhere(name)


def find_sweep_or_run(name: str) -> SweepPaths | RunPaths:
    """Return the sweep that `name` identifies, else the run. Raises `UsageError` if neither does, or several runs."""
    if RunPaths(Path(name)).record.exists():
        return RunPaths(Path(name))
    try:
        return find_sweep(name)
    except UsageError as no_sweep:
        try:
            return find_run(name)
        except UsageError as no_run:
            raise (no_sweep if Path(name).name == name and did_you_mean(name, known_sweeps()) else no_run) from None


def _existing_sweeps_hint(name: str) -> str:
    """Suggest existing sweeps: those with the closest names, else the newest."""
    hint = did_you_mean(name, known_sweeps())
    return hint.replace("did", "Did", 1) if hint else newest_sweeps()


def newest_sweeps() -> str:
    """Say in a sentence which sweeps there are under `outputs/`, the newest first."""
    there = known_sweeps()
    if not there:
        return f"There is none in {OUTPUT_ROOT}/ yet; `runmanager demo` makes one."
    newest = sorted(there, key=lambda name: SweepPaths(OUTPUT_ROOT / name).root.stat().st_mtime, reverse=True)
    return f"There {'is' if len(there) == 1 else 'are'} {_join_names(newest)} in {OUTPUT_ROOT}/."


def _candidate_sweeps(folder: Path) -> Iterator[SweepPaths]:
    """Yield the sweeps that a path may denote; it may also be a `runs/` folder."""
    for each in (folder, OUTPUT_ROOT / folder):
        yield SweepPaths(each.parent if each.name == "runs" else each)


def _named_runs(sweep: SweepPaths) -> dict[RunPaths, str]:
    """Return the runs of a sweep, each with its name: by the plan, or by its own record if it is not planned."""
    try:
        plan = read_sweep_record(sweep)
    except RecordError:
        plan = None
    planned = {cell.run: cell.name for cell in plan.planned} if plan else {}
    runs = (sweep.run(folder) for folder in run_names(sweep))
    return {run: planned.get(run.name) or run_name(run) for run in runs}


def _only_run(runs: Mapping[RunPaths, str], sweep: str) -> RunPaths:
    if len(runs) > 1:
        names = _join_names(list(runs.values()))
        raise UsageError(f"'{sweep}' must be one run, got a sweep of {len(runs)}; add one of: {names}.")
    return next(iter(runs))


def _find_run_in_sweep(path: Path) -> RunPaths:
    for sweep in _candidate_sweeps(path.parent):
        if not (runs := _named_runs(sweep)):
            continue
        found = _matching(path.name, runs) or _with_settings(path.name, runs)
        if len(found) == 1:
            return found[0]
        if found:
            names = _join_names([runs[run] for run in found])
            raise UsageError(f"'{path}' must name one run, got {len(found)}: {names}; add a setting.")
        raise UsageError(f"'{path}' must be a run of {sweep.root}, got none of: {_join_names(list(runs.values()))}.")
    hint = f" {_existing_sweeps_hint(path.parent.name)}" if len(path.parts) == _SWEEP_AND_RUN else ""
    raise UsageError(f"'{path}' must be a run's folder or SWEEP/RUN, got nothing there.{hint}")


def _find_run_anywhere(prefix: str) -> RunPaths:
    runs = _all_runs()
    found = _matching(prefix, runs)
    if len(found) == 1:
        return found[0]
    if found:
        named = _join_names([_with_sweep(run, runs[run]) for run in found])
        raise UsageError(f"'{prefix}' must name one run, got {len(found)}: {named}; add a setting.")
    hint = did_you_mean(prefix, known_runs(), max_names=2) or "`runmanager table SWEEP` shows a sweep's runs."
    raise UsageError(f"'{prefix}' must be a run's folder, SWEEP/RUN or the beginning of a run's name, got none; {hint}")


def _matching(prefix: str, runs: Mapping[RunPaths, str]) -> list[RunPaths]:
    """Return the runs named `prefix`, with or without digits; else those whose names begin so with whole values.

    Without any of these, those whose names begin, or whose digits begin, so; else those that have all of its settings.
    The name of a run's folder counts as its own.
    """
    exact, whole, begun, having = [], [], [], []
    wanted = set(prefix.split(","))
    for run, name in runs.items():
        settings, _, digits = name.rpartition("-")
        folder = run.name.rpartition("-")[0]
        if prefix in (name, settings, run.name, folder):
            exact.append(run)
        elif settings.startswith(f"{prefix},") or folder.startswith(f"{prefix}-"):
            whole.append(run)
        elif any(text.startswith(prefix) for text in (name, run.name, digits)):
            begun.append(run)
        elif wanted <= set(settings.split(",")):
            having.append(run)
    return exact or whole or begun or having


def _with_settings(wanted: str, runs: Mapping[RunPaths, str]) -> list[RunPaths]:
    """Return the runs that have all of these settings, also those that their names leave out."""
    pairs = [word.partition("=") for word in wanted.split(",")]
    if not all(sign for _, sign, _ in pairs):
        return []
    found = []
    for run in runs:
        with contextlib.suppress(RecordError):  # a run that cannot be read
            settings = read_record(run).settings
            spelled = {name.replace("-", "_"): value for name, value in settings.items()} | settings  # as tables do
            if all(key in spelled and format_value(spelled[key]) == value for key, _, value in pairs):
                found.append(run)
    return found


def known_sweeps() -> list[str]:
    """Return the names of the sweeps under `outputs/`, sorted."""
    if not OUTPUT_ROOT.is_dir():
        return []
    return sorted(folder.name for folder in OUTPUT_ROOT.iterdir() if _is_sweep(folder))


def _is_sweep(folder: Path) -> bool:
    try:
        open_sweep(folder)
    except UsageError:
        return False
    except RecordError:
        return True
    return True


def known_runs() -> list[str]:
    """Return every run under `outputs/` as SWEEP/RUN, sorted by sweep, then by name."""
    return [_with_sweep(run, name) for run, name in _all_runs().items()]


def _all_runs() -> dict[RunPaths, str]:
    sweeps = (SweepPaths(OUTPUT_ROOT / sweep) for sweep in known_sweeps())
    return {run: name for sweep in sweeps for run, name in _named_runs(sweep).items()}


def _with_sweep(run: RunPaths, name: str) -> str:
    return f"{run.sweep.root.name}/{name}"


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of a driver, and when it said it.

    `retried` is the folder of a run that is tried again, if the sentence tells its last end.
    """

    line: str
    at: Annotated[datetime.datetime, msgspec.Meta(tz=True)]
    driver: ProcessIdentity
    retried: str = ""


_DECODER = msgspec.json.Decoder(Message)
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # no link, no pipe


class Messages:
    """Appends what this process says. On a full disk a sentence is kept, and written with the next one."""

    def __init__(self, sweep: SweepPaths) -> None:
        self._path = sweep.messages
        self._driver = ProcessIdentity.current()
        self._unwritten = b""

    def say(self, line: str, *, retried: str = "") -> None:
        """Append a sentence; never raises."""
        now = datetime.datetime.now(datetime.UTC)
        message = Message(line=encodable(redacted(line)), at=now, driver=self._driver, retried=retried)
        self._unwritten += b"\n" + msgspec.json.encode(message) + b"\n"  # what is torn before costs itself alone
        with contextlib.suppress(OSError):
            handle = os.open(self._path, _APPENDING, 0o666)
            try:
                self._unwritten = self._unwritten[os.write(handle, self._unwritten) :]
            finally:
                os.close(handle)


def read_messages(sweep: SweepPaths) -> list[Message]:
    """Return what was said, in order, without what cannot be read."""
    messages = []
    with contextlib.suppress(*UNREADABLE):
        for line in filter(None, whole_lines(sweep.messages).split(b"\n")):
            with contextlib.suppress(*UNREADABLE):
                messages.append(_DECODER.decode(line))
    return messages
