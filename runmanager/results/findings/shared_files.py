"""Files outside the run folders that several runs have written, so that one may have read what another left there.

Nothing on disk says who wrote a file: only when it changed last, and which runs lived then. No single run lived at all
changes of a file: then several have written it. Where one did, and others beside it, each of them may have.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from runmanager.records.run.attempts import process_spans
from runmanager.records.run.program_report import ProgramKind, kind_of_program
from runmanager.records.run.run_record import RunRecord
from runmanager.records.settings.values import differing_settings
from runmanager.records.storage.reader import StoredRun
from runmanager.text import format_value, in_backticks, printable_line

_MAX_TIMES = 8  # of one file that are compared with the runs
_MAX_NAMED = 5


@dataclass
class _Changes:
    """When a file changed, and the places of the runs that saw it, in the list of all."""

    times: set[float] = field(default_factory=set)
    seen_by: list[int] = field(default_factory=list)


def shared_file_lines(runs: Sequence[StoredRun], *, of: StoredRun | None = None) -> list[str]:
    """Return a line for the files of each folder that several runs have written, and one for those that they may have.

    `of`: only files that this run saw change.
    """
    folders: dict[str, dict[str, _Changes]] = {}
    for place, run in enumerate(runs):
        if outside := run.record.outside:
            for name, times in outside.files.items():
                changes = folders.setdefault(outside.folder, {}).setdefault(name, _Changes())
                changes.times.update(times)
                changes.seen_by.append(place)
    own = of.record.outside if of is not None else None
    lines: list[str] = []
    for folder, files in folders.items():
        several = {
            name: each for name, each in files.items() if len(each.seen_by) > 1 and (not own or name in own.files)
        }
        if several:
            lines += _lines_of_folder(folder, several, runs, numbered=_one_of_each(files))
    return lines


def _lines_of_folder(
    folder: str, files: Mapping[str, _Changes], runs: Sequence[StoredRun], *, numbered: Collection[str]
) -> Iterator[str]:
    spans = [_spans(run) for run in runs]
    certain, possible = [], []
    for name, changes in files.items():
        times = sorted(changes.times)
        times = times[:: -(-len(times) // _MAX_TIMES)] + times[-1:]
        living = [{place for place, lives in enumerate(spans) if _lived(lives, time)} for time in times]
        living = [each for each in living if each]  # else just before the first of them began
        if living and not set.intersection(*living):
            certain.append(name)
        elif any(len(each) > 1 for each in living):
            possible.append(name)
    settings = [run.record.settings for run in runs]
    values = {format_value(each.get(name)) for name in differing_settings(settings) for each in settings}
    shared = [name for name in possible if _pattern(name) not in numbered and not _has_a_value(name, values)]
    record = runs[next(iter(files.values())).seen_by[-1]].record
    if certain:
        yield f"Several runs wrote {_listed(certain, folder)}: one may have read what another left. {_way_out(record)}"
    if shared:
        yield f"Runs that ran together may all have written {_listed(shared, folder)}. {_way_out(record)}"


def _spans(run: StoredRun) -> list[tuple[float, float]]:
    """When a run's processes may have lived; of attempts whose files were moved aside only the end is known."""
    spans = [(start, end) for _, start, end in process_spans(run.record, run.epochs, run.beat)]
    return [(-math.inf, spans[0][0]), *spans] if spans and run.record.attempt > len(spans) else spans


def _lived(lives: Sequence[tuple[float, float]], time: float) -> bool:
    return any(start <= time <= end for start, end in lives)


def _has_a_value(name: str, values: Collection[str]) -> bool:
    """Whether a path has a swept value, and so says which run it is of."""
    return any(re.search(rf"(?<![\d.]){re.escape(value)}(?!\.?\d)", name) for value in values if value)


def _one_of_each(files: Mapping[str, _Changes]) -> set[str]:
    """The patterns of names with a number of which there is a file for each run that saw one change."""
    names: Counter[str] = Counter(map(_pattern, files))
    seen_by: dict[str, set[int]] = {}
    for name, changes in files.items():
        seen_by.setdefault(_pattern(name), set()).update(changes.seen_by)
    return {pattern for pattern, number in names.items() if number >= len(seen_by[pattern]) > 1 and "#" in pattern}


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _listed(names: Sequence[str], folder: str) -> str:
    shown = ", ".join(printable_line(name) for name in sorted(names)[:_MAX_NAMED])
    more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    return f"{shown}{more} in {printable_line(folder)}"


def _way_out(record: RunRecord) -> str:
    """How a program is told to write into its run folder, as far as it is known."""
    words = record.cell_command or ()
    ways = [in_backticks(record.outside.argument)] if record.outside and record.outside.argument else []
    if not any(word == "--chdir" or word.startswith("hydra.job.chdir=") for word in words):
        is_script = kind_of_program(record) is ProgramKind.SCRIPT
        ways.insert(0, "`--chdir`" if is_script else "`--chdir` (`hydra.job.chdir=true`)")
    way = f"With {' or '.join(ways)}" if ways else "With paths that hold `{run_dir}`"
    return f"{way}, in a new sweep, each writes into its run folder."
