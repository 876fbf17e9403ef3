"""What `--scalar` of a command means for a sweep whose stored runs were given others.

The logs of finished cells of the command are searched again. What other runs have by another expression is refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from runmanager.app.display.run_line import has_metric
from runmanager.app.driver.program import Storage
from runmanager.app.programs.cell_metrics import FoundMetrics, logged_only, merged_metrics
from runmanager.app.programs.script.output.printed_metrics import PrintedMetrics
from runmanager.app.programs.script.script_cell import ScriptCall
from runmanager.app.request.command_reader import read_words
from runmanager.errors import ConfigurationError
from runmanager.launching.plan import Cell, Resume
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.storage.ownership import claim_next_attempt
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.records.storage.run_folder import RunFolder
from runmanager.text import pluralize, shell_join

_OPTION = "--scalar"


def stored_scalar_notes(cells: Sequence[Cell], storage: Storage) -> list[str]:
    """Say which finished runs of a named sweep are read again, and which values new runs of a command will lack.

    Raises `ConfigurationError` where a run that is not read again has a value by another expression: the values would
    be ranked together.
    """
    finished = _finished(cells, storage)
    outdated = _outdated(cells, finished)
    now = _options(cells[0].command)
    others = (run for signature, run in finished.items() if signature not in outdated)
    if faults := dict.fromkeys(line for run in others for line in _other_expressions(run, now)):
        raise ConfigurationError(faults)
    notes = []
    if outdated:
        runs = pluralize(len(outdated), "finished run's output is", "finished runs' output is")
        notes.append(f"{runs} searched again for what {_OPTION} names; nothing trains again.")
    if any(cell.signature not in finished for cell in cells):
        earlier = {name: option for run in finished.values() for name, option in _stored_options(run).items()}
        if left_out := [shell_join([_OPTION, option]) for name, option in earlier.items() if name not in now]:
            notes.append(
                f"Earlier runs of {_sweep(storage)} were given {' '.join(left_out)}, new ones are not and may lack "
                "these values; add the same words to this command."
            )
    return notes


def read_stored_logs(cells: Sequence[Cell], storage: Storage, call_of: Callable[[Cell], ScriptCall]) -> None:
    """Search run.log of finished runs for what `cells` ask for and their commands did not, and record what is found.

    Raises `RunBusyError` if another process begins one of the runs.
    """
    outdated = _outdated(cells, _finished(cells, storage))
    for cell in cells:
        if (run := outdated.pop(cell.signature, None)) is not None:
            _read_again(run, cell, call_of(cell))


def _read_again(run: StoredRun, cell: Cell, call: ScriptCall) -> None:
    record, changed = run.record, _changed(run, cell)
    claim = claim_next_attempt(run.paths, record, ProcessIdentity.current(), HeartbeatObserver())
    folder = RunFolder(run.paths, record, claim=claim)
    try:
        printed = PrintedMetrics(
            call.scalars,
            run.paths,
            settings=call.names_of_numbers,
            metric=call.metric,
            logs_itself=call.logs_itself,
            replaces=changed,
        )
        printed.read_log()
        found = FoundMetrics(printed=printed.metrics(), unasked=printed.unasked(), notes=printed.notes())
        _, changes = merged_metrics(run.paths, logged_only(record), found)
        notes = [each for each in changes["notes"] if not each.startswith(_OPTION) or each in found.notes]
        folder.write(**changes | {"notes": tuple(notes), "cell_command": cell.command})
    finally:
        folder.release()


def _finished(cells: Sequence[Cell], storage: Storage) -> dict[str, StoredRun]:
    """The finished runs of a named sweep by their signatures, without those that the command runs again."""
    if storage.name is None or not (sweep := SweepPaths(_sweep(storage))).record.exists():
        return {}
    again = {cell.signature for cell in cells} if storage.resume is Resume.NEVER else ()
    return {
        run.record.signature: run
        for run in read_sweep(sweep).runs
        if run.is_complete and run.record.signature not in again
    }


def _sweep(storage: Storage) -> Path:
    return Path(storage.output_root, storage.name or "")


def _outdated(cells: Sequence[Cell], finished: Mapping[str, StoredRun]) -> dict[str, StoredRun]:
    """The finished runs of `cells` whose output is there, and was searched for something else."""
    runs = ((cell, finished[cell.signature]) for cell in cells if cell.signature in finished)
    return {cell.signature: run for cell, run in runs if _changed(run, cell) and run.paths.log.exists()}


def _changed(run: StoredRun, cell: Cell) -> list[str]:
    """The metrics for which the command has another expression than that of a stored run, or the run none."""
    stored = _stored_options(run)
    return [name for name, option in _options(cell.command).items() if stored.get(name) != option]


def _other_expressions(run: StoredRun, now: Mapping[str, str]) -> Iterator[str]:
    """A fault for each metric that a run has by another expression than a command, whose options are `now`."""
    for name, option in _stored_options(run).items():
        if now.get(name, option) != option and has_metric(name, run):
            yield (
                f"`{_OPTION} {now[name]}` must have the expression that finished runs of this sweep were given, "
                f"`{option}`, got another; give the settings of those runs too, whose output is then searched again, "
                "or another name for the metric."
            )


def _stored_options(run: StoredRun) -> dict[str, str]:
    return _options(run.record.cell_command or ())


def _options(command: Sequence[str]) -> dict[str, str]:
    """The values of `--scalar` in the command of a cell, by the name of the metric."""
    return {value.partition("=")[0].strip(): value for value in read_words(command[2:]).request.scalar}
