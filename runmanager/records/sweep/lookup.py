"""Finding the sweep or the run that somebody names: by its folder, or by a part of its name under outputs/."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from runmanager.errors import RecordError, UsageError
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.storage.reader import run_names
from runmanager.records.sweep.record import open_sweep
from runmanager.validation import did_you_mean

__all__ = ["OUTPUT_ROOT", "find_run", "find_sweep", "known_runs", "known_sweeps"]

OUTPUT_ROOT = Path("outputs")
"""Where sweeps lie if nobody says otherwise."""

_MAX_NAMED = 5


def find_sweep(name: str) -> SweepPaths:
    """The sweep in the folder `name`, else the one of that name under `outputs/`.

    Raises `UsageError`, with the nearest names there are, where neither is a sweep; `RecordError` where the sweep's
    own record is damaged.
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
        raise UsageError(f"{error} {_sweeps_there(folder.name)}") from None


def find_run(name: str) -> RunPaths:
    """The run that `name` means.

    A run's folder; `SWEEP/RUN`, where SWEEP is a folder or a name under `outputs/`; RUN alone, looked for in every
    sweep under `outputs/`; or a sweep that has one run only. RUN is the beginning of a run's name, or of the
    signature's eight digits that end it.
    Raises `UsageError` where nothing, or more than one run, is meant.
    """
    folder = Path(name)
    if RunPaths(folder).record.exists():
        return RunPaths(folder)
    for sweep in _as_sweeps(folder):
        if names := run_names(sweep):
            return sweep.run(_the_only(names, name))
    if folder.name != name:
        return _run_of_sweep(folder)
    return _run_anywhere(name)


def _sweeps_there(asked: str) -> str:
    """The sweeps that could have been meant: the nearest names, else the newest."""
    there = known_sweeps()
    if not there:
        return f"There is none in {OUTPUT_ROOT}/ yet; `runmanager demo` makes one."
    if hint := did_you_mean(asked, there):
        return hint.replace("did", "Did", 1)
    newest = sorted(there, key=lambda name: SweepPaths(OUTPUT_ROOT / name).root.stat().st_mtime, reverse=True)
    return f"There {'is' if len(there) == 1 else 'are'} {_listed(newest)} in {OUTPUT_ROOT}/."


def _as_sweeps(folder: Path) -> Iterator[SweepPaths]:
    """The sweeps that a path may mean, its `runs/` too."""
    for each in (folder, OUTPUT_ROOT / folder):
        yield SweepPaths(each.parent if each.name == "runs" else each)


def _the_only(names: Sequence[str], asked: str) -> str:
    if len(names) > 1:
        raise UsageError(f"'{asked}' must be one run, got a sweep of {len(names)}; add one of: {_listed(names)}.")
    return names[0]


def _run_of_sweep(asked: Path) -> RunPaths:
    for sweep in _as_sweeps(asked.parent):
        if not (names := run_names(sweep)):
            continue
        found = _meant(asked.name, names)
        if len(found) == 1:
            return sweep.run(found[0])
        if found:
            raise UsageError(f"'{asked}' must be the beginning of one run's name, got that of {_listed(found)}.")
        raise UsageError(f"'{asked}' must be a run of {sweep.root}, got none of: {_listed(names)}.")
    raise UsageError(f"'{asked}' must be a run's folder or SWEEP/RUN, got nothing there.")


def _run_anywhere(asked: str) -> RunPaths:
    found: list[RunPaths] = []
    for sweep in known_sweeps():
        paths = SweepPaths(OUTPUT_ROOT / sweep)
        found += [paths.run(name) for name in _meant(asked, run_names(paths))]
    if len(found) == 1:
        return found[0]
    if found:
        named = _listed([_with_sweep(run) for run in found])
        raise UsageError(f"'{asked}' must be the beginning of one run's name, got that of {named}.")
    hint = did_you_mean(asked, known_runs(), max_names=2) or "`runmanager table SWEEP` shows a sweep's runs."
    raise UsageError(f"'{asked}' must be a run's folder, SWEEP/RUN or the beginning of a run's name, got none; {hint}")


def _meant(asked: str, names: Sequence[str]) -> list[str]:
    """The run of exactly that name, with or without its digits; else those whose name or digits begin so."""
    exact = [name for name in names if asked in (name, name.rpartition("-")[0])]
    return exact or [name for name in names if name.startswith(asked) or name.rpartition("-")[2].startswith(asked)]


def known_sweeps() -> list[str]:
    """The names of the sweeps under `outputs/`, sorted."""
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
    """Every run under `outputs/` as SWEEP/RUN, sorted by sweep, then by name."""
    sweeps = (SweepPaths(OUTPUT_ROOT / sweep) for sweep in known_sweeps())
    return [_with_sweep(sweep.run(name)) for sweep in sweeps for name in run_names(sweep)]


def _with_sweep(run: RunPaths) -> str:
    return f"{run.root.parent.parent.name}/{run.name}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
