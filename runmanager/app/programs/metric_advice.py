"""How to get a metric from a program whose runs recorded none, by its kind: with an example from what was printed."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from runmanager.app.programs.script.output.scalar_pattern import parse_scalars
from runmanager.app.request.command_reader import read_words
from runmanager.errors import ConfigurationError, RecordError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.metric_direction import prefers_larger
from runmanager.records.run.program_kind import ProgramKind, kind_of_program
from runmanager.records.storage.reader import StoredRun, read_record
from runmanager.text import shell_quote

__all__ = ["advice_without_metrics", "metric_advice"]


_LOGGED = "No metric was found: runmanager.log(NAME=value) logs one."
_OF_APPLICATION = (
    "No metric was found: the task may return numbers by name, or log them with runmanager.log(NAME=value)."
)
_WITHOUT_MATCHES = (
    "No metric was found: what the runs printed matched no --scalar expression that they were given. Finished runs are "
    "kept as they are, and not searched again; another --name, or --resume never, runs them again."
)


_LOG_BYTES = 2**16
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
# A name begins where a word does: else a long line without spaces would be searched from each of its letters.
_SERIES = re.compile(
    r"(?<![\w./])(?P<name>[A-Za-z][\w./]*(?: [A-Za-z][\w./]*){0,3})(?P<sign>\s*[:=]\s*|\s+)"
    rf"(?P<value>{_NUMBER})(?![\w.])"
)
_GROUP = r"([-+.\deE]+)"


def scalar_example(log: Path) -> str:
    """Return `--scalar NAME=REGEX`, as it is typed, for the last named number in a log; empty if there is none.

    A name that tells whether larger values are better comes before others of its line.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
            text = file.read(_LOG_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
    for line in reversed(text.splitlines()):
        found = list(_SERIES.finditer(line))
        for each in sorted(found, key=lambda each: prefers_larger(each["name"]) is None):
            if (prefers_larger(each["name"]) is not None or each["sign"].strip()) and (example := _example(each)):
                return example
    return ""


def _example(found: re.Match[str]) -> str:
    """The option for one number; empty if no expression finds it alone in its line."""
    name, sign = found["name"], found["sign"]
    words = f"{name}{sign}".replace(".", r"\.")
    for expression in (f"{words}{_GROUP}", rf"\b{words}{_GROUP}"):
        option = f"{name.replace(' ', '_')}={expression}"
        try:
            (pattern,) = parse_scalars([option])
        except ConfigurationError:
            continue  # what was printed is no part of an expression
        if list(pattern.values(found.string)) == [float(found["value"])]:
            return f"--scalar {shell_quote(option)}"
    return ""


def metric_advice(run: RunPaths) -> str:
    """Return how to get a metric from the program of `run`, which has none; empty where nothing could be said."""
    try:
        record = read_record(run)
    except RecordError:
        return ""
    match kind_of_program(record):
        case ProgramKind.LOOP:
            return _LOGGED
        case ProgramKind.APPLICATION:
            return _OF_APPLICATION
        case ProgramKind.SCRIPT:
            given = read_words((record.cell_command or ())[2:]).request.scalar
            return _WITHOUT_MATCHES if given else _of_script(run)
    return ""


def advice_without_metrics(runs: Sequence[StoredRun]) -> list[str]:
    """Return how to get a metric, as a line, where runs finished and none of them has one; else nothing."""
    from runmanager.results.metrics.metric_lookup import finished_without_metrics  # late: drivers do not need it

    lacking = finished_without_metrics(runs)
    return [line] if lacking and (line := metric_advice(lacking[-1].paths)) else []


def _of_script(run: RunPaths) -> str:
    example = f", as {found}" if (found := scalar_example(run.log)) else ""
    return (
        f"No metric was found: --scalar NAME=REGEX reads one that the script prints{example}; "
        "runmanager.log(NAME=value) in the script logs one."
    )
