"""What `--scalar` of a command means for a sweep whose stored runs were given others."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from runmanager.app.display.run_line import has_metric
from runmanager.app.driver.program import Storage
from runmanager.app.request.command_reader import read_words
from runmanager.errors import ConfigurationError
from runmanager.launching.plan import Cell, Resume
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.text import pluralize, shell_join

__all__ = ["stored_scalar_notes"]

_OPTION = "--scalar"


def stored_scalar_notes(cells: Sequence[Cell], storage: Storage, names: Collection[str]) -> list[str]:
    """Say which values the runs of a named sweep will lack, where a command reads `names` and earlier ones others.

    Raises `ConfigurationError` where an earlier one has read a name by another expression: the values would be ranked
    together.
    """
    if storage.name is None:
        return []
    sweep = SweepPaths(Path(storage.output_root) / storage.name)
    if not sweep.record.exists():
        return []
    stored = read_sweep(sweep, epochs_of=lambda record: not set(names) <= set(record.summary or ())).runs
    again = {cell.signature for cell in cells} if storage.resume is Resume.NEVER else ()
    finished = {
        run.record.signature: run
        for run in stored
        if run.record.status is Status.FINISHED and run.record.signature not in again
    }
    now = _options(cells[0].command)
    if faults := dict.fromkeys(line for run in finished.values() for line in _other_expressions(run, now)):
        raise ConfigurationError(faults)
    kept = [finished[cell.signature] for cell in cells if cell.signature in finished]
    notes = [_lacking(name, kept) for name in names if storage.resume is not Resume.NEVER]
    if len(kept) < len(cells):
        earlier = {name: option for run in finished.values() for name, option in _stored_options(run).items()}
        left_out = [shell_join([_OPTION, option]) for name, option in earlier.items() if name not in names]
        if left_out:
            notes.append(
                f"Earlier runs of {sweep.root} were given {' '.join(left_out)}, new ones are not and may lack these "
                "values; add the same words to this command."
            )
    return [note for note in notes if note]


def _lacking(name: str, kept: Sequence[StoredRun]) -> str:
    if not (number := sum(not has_metric(name, run) for run in kept)):
        return ""
    them, which = ("it", "that run") if number == 1 else ("them", "those runs")
    return (
        f"{pluralize(number, 'finished run has', 'finished runs have')} no {name}, and what was printed is not "
        f"searched again; to run {them} again, give the settings of {which} with `--resume never`."
    )


def _other_expressions(run: StoredRun, now: Mapping[str, str]) -> Iterator[str]:
    """A fault for each metric that a run has by another expression than a command, whose options are `now`."""
    for name, option in _stored_options(run).items():
        if now.get(name, option) != option and has_metric(name, run):
            yield (
                f"`{_OPTION} {now[name]}` must have the expression that finished runs of this sweep were given, "
                f"`{option}`, got another; another name for the metric or for the sweep keeps the two apart."
            )


def _stored_options(run: StoredRun) -> dict[str, str]:
    return _options(run.record.cell_command or ())


def _options(command: Sequence[str]) -> dict[str, str]:
    """The values of `--scalar` in the command of a cell, by the name of the metric."""
    return {value.partition("=")[0].strip(): value for value in read_words(command[2:]).request.scalar}
