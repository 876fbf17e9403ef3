"""A table of TensorBoard's event files, whoever wrote them: one row for each folder that holds some."""

import datetime
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.settings.values import differing_settings
from runmanager.results.model.columns import MISSING, Row, Table, column_of, prefers_larger
from runmanager.results.tfevents.reader import EventFolder, Series, is_event_file, read_event_files

__all__ = ["event_rows", "read_event_folders"]

LEGEND = (
    f"{MISSING}, and null of a hyperparameter, is not logged. A tag's column is its value at the highest step, `best` "
    "its largest or smallest, where its name says which is better."
)
_OWN_COLUMNS = ("run", "steps", "seconds", "started_at")
_MAX_NAMED = 5


def read_event_folders(root: Path) -> dict[str, EventFolder]:
    """What the event files in and below `root` hold, by their folder's path from there, in its order.

    Raises `UsageError` where there is no such folder, or no event file in it.
    """
    if not root.is_dir():
        raise UsageError(
            f"SWEEP must be a folder with `--events`, got '{root}', which is none; name that of the event files."
        )
    found: dict[str, EventFolder] = {}
    unread: list[OSError] = []
    for folder, below, names in os.walk(root, onerror=unread.append):
        below.sort()
        files = [Path(folder, name) for name in sorted(names) if is_event_file(name)]
        if files:
            found[os.path.relpath(folder, root)] = read_event_files(files)
    for error in unread:
        line = f"{error.filename} cannot be read: {error.strerror}"
        found[os.path.relpath(error.filename, root)] = EventFolder(damage=[line])
    if not found:
        raise UsageError(f"SWEEP must be a folder of TensorBoard's event files with `--events`, got none in '{root}'.")
    return dict(sorted(found.items()))


def event_rows(folders: Mapping[str, EventFolder]) -> Table:
    """One row a folder with scalars or hyperparameters: the last and the best value of each tag.

    `steps` is the highest step of any tag, `seconds` the time from the first value to the last. A hyperparameter has a
    column under its name, or under `settings.` where a tag has that name.
    """
    kept = {name: each for name, each in folders.items() if each.scalars or each.hparams}
    tags = list(dict.fromkeys(tag for each in kept.values() for tag in each.scalars))
    best = {
        tag: larger
        for tag in tags
        if (larger := prefers_larger(tag)) is not None and _best_column(tag) not in tags  # which may log it itself
    }
    taken = {*_OWN_COLUMNS, *tags, *map(_best_column, best)}
    settings = {
        name: f"settings.{name}" if name in taken else column_of(name)
        for name in sorted({name for each in kept.values() for name in each.hparams})  # they are stored in no order
    }
    varying = differing_settings([each.hparams for each in kept.values()])
    columns = {tag: f"value.{tag}" if tag in _OWN_COLUMNS else tag for tag in tags}
    foreign = (*columns.values(), *map(_best_column, best))
    rows = [_row(name, each, settings=settings, tags=columns, best=best) for name, each in kept.items()]
    return Table(
        columns=["run", *settings.values(), "steps", *foreign, "seconds", "started_at"],
        rows=rows,
        settings=tuple(settings.values()),
        foreign=foreign,
        shown=("run", *(settings[name] for name in varying), "steps", *foreign),
        notes=(*_empty_notes(folders), *(f"Not read: {line}" for each in folders.values() for line in each.damage)),
        legend=LEGEND,
    )


def _best_column(tag: str) -> str:
    return f"best {tag}"


def _row(
    name: str, folder: EventFolder, *, settings: Mapping[str, str], tags: Mapping[str, str], best: Mapping[str, bool]
) -> Row:
    series = folder.scalars
    times = [time for each in series.values() for time in (min(each.times), max(each.times))]
    values: dict[str, Any] = {"run": name}
    values |= {column: folder.hparams.get(setting) for setting, column in settings.items()}
    values["steps"] = max((max(each.steps) for each in series.values()), default=None)
    values |= {column: _last(series[tag]) if tag in series else None for tag, column in tags.items()}
    values |= {_best_column(tag): _best(series[tag], larger) if tag in series else None for tag, larger in best.items()}
    values["seconds"] = max(times) - min(times) if times else None
    values["started_at"] = _in_iso(min(times)) if times else None
    return Row(values)


def _last(series: Series) -> float:
    """The value of the highest step; of several the one that was written last."""
    highest = max(series.steps)
    at = max(at for at, step in enumerate(series.steps) if step == highest)
    return series.values[at]


def _best(series: Series, larger: bool) -> float | None:
    known = [value for value in series.values if not math.isnan(value)]
    return (max(known) if larger else min(known)) if known else None


def _in_iso(seconds: float) -> str | None:
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None  # the clock of whoever wrote it was none


def _empty_notes(folders: Mapping[str, EventFolder]) -> Iterable[str]:
    empty = [name for name, each in folders.items() if not each.scalars and not each.hparams]
    if not empty:
        return []
    more = f" and {len(empty) - _MAX_NAMED} more" if len(empty) > _MAX_NAMED else ""
    return [f"Without scalars or hyperparameters: {', '.join(empty[:_MAX_NAMED])}{more}."]
