"""How to get a metric from a program whose runs recorded none, by its kind."""

from collections.abc import Sequence

from runmanager.app.programs.script.output.scalar_example import scalar_example
from runmanager.app.request.command_reader import read_words
from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.program_kind import ProgramKind, kind_of_program
from runmanager.records.storage.reader import StoredRun, read_record

__all__ = ["advice_without_metrics", "metric_advice"]

_LOGGED = "No metric was found: runmanager.log(NAME=value) logs one."
_OF_APPLICATION = (
    "No metric was found: the task may return numbers by name, or log them with runmanager.log(NAME=value)."
)
_WITHOUT_MATCHES = (
    "No metric was found: what the runs printed matched no --scalar expression that they were given. Finished runs are "
    "kept as they are, and not searched again; another --name, or --resume never, runs them again."
)


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
