"""How the programs of a stored sweep continue it under another name."""

from runmanager.app.request.override_quoting import format_override
from runmanager.errors import RecordError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.program_kind import ProgramKind, kind_of_program
from runmanager.records.storage.reader import read_record, run_names
from runmanager.text import shell_join

__all__ = ["continued_with"]


def continued_with(sweep: SweepPaths) -> str:
    """Return how the programs of a sweep's runs continue it, as the end of a sentence; empty where nothing does."""
    kinds, name = _kinds_of_sweep(sweep), sweep.root.name
    words = {
        ProgramKind.BUILT_IN: [format_override("name", name)],
        ProgramKind.SCRIPT: ["--name", name],
        ProgramKind.APPLICATION: [format_override("hydra.sweeper.name", name)],
    }
    commands = [shell_join(found) for kind, found in words.items() if kind in kinds]
    ways = [f"its command continues it with {' or '.join(commands)}"] if commands else []
    if ProgramKind.LOOP in kinds:
        ways.append(f"its program continues it where `RunManager` or `start_run` is given the folder {sweep.root}")
    return ", and ".join(ways)


def _kinds_of_sweep(sweep: SweepPaths) -> set[ProgramKind]:
    """The kinds of program that made those runs of a sweep that can be read."""
    kinds = set()
    for name in run_names(sweep):
        try:
            kinds.add(kind_of_program(read_record(sweep.run(name))))
        except RecordError:
            continue
    return kinds
