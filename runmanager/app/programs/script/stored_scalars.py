"""What `--scalar` of a command means for a sweep whose stored runs were given others."""

import shlex
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from runmanager.app.display.run_line import has_metric
from runmanager.app.driver.program import Storage
from runmanager.launching.plan import Cell, Resume
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.text import pluralize

__all__ = ["stored_scalar_notes"]

_OPTION = "--scalar"


def stored_scalar_notes(cells: Sequence[Cell], storage: Storage, names: Collection[str]) -> list[str]:
    """Say which values the runs of a named sweep will lack, where a command reads `names` and earlier ones others."""
    if storage.name is None or storage.resume is Resume.NEVER:
        return []
    sweep = SweepPaths(Path(storage.output_root) / storage.name)
    if not sweep.record.exists():
        return []
    stored = read_sweep(sweep, epochs_of=lambda record: not set(names) <= set(record.summary or ())).runs
    finished = {run.record.signature: run for run in stored if run.record.status is Status.FINISHED}
    kept = [finished[cell.signature] for cell in cells if cell.signature in finished]
    notes = [_lacking(name, kept) for name in names]
    if len(kept) < len(cells):
        earlier = {option.partition("=")[0]: option for run in finished.values() for option in _options(run.record)}
        left_out = [shlex.join([_OPTION, option]) for name, option in earlier.items() if name not in names]
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


def _options(record: RunRecord) -> Iterator[str]:
    """The values of `--scalar` by which a run was searched."""
    words = record.cell_command or ()
    return (value for option, value in pairwise(words) if option == _OPTION)
