"""A table of TensorBoard event files, with one row per folder."""

import datetime
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.run.metric_names import prefers_larger
from runmanager.records.settings.values import differing_settings
from runmanager.results.table_model.columns import MISSING, Row, Table, column_of
from runmanager.results.tfevents.reader import EventFolder, Series, is_event_file, read_event_files
from runmanager.text import pluralize

LEGEND = (
    f"{MISSING}, or null for a hyperparameter, is not logged. A tag's column is its value at the highest step; `best` "
    "is its largest or smallest value, if its name says which is better."
)
_OWN_COLUMNS = ("run", "steps", "seconds", "started_at")
_MAX_NAMED = 5


def read_event_folders(root: Path) -> dict[str, EventFolder]:
    """Read the event files in and below `root`; the contents of each folder by its path relative to `root`, sorted.

    Raises `UsageError` if `root` is not a folder or contains no event files.
    """
    if not root.is_dir():
        raise UsageError(f"SWEEP must be a folder with `--events`, got '{root}'; give the folder of the event files.")
    found: dict[str, EventFolder] = {}
    errors: list[OSError] = []
    for folder, subfolders, names in os.walk(root, onerror=errors.append):
        subfolders.sort()
        files = [Path(folder, name) for name in sorted(names) if is_event_file(name)]
        if files:
            found[os.path.relpath(folder, root)] = read_event_files(files)
    for error in errors:
        line = f"{error.filename} cannot be read: {error.strerror}"
        found[os.path.relpath(error.filename, root)] = EventFolder(damage=[line])
    if not found:
        raise UsageError(f"SWEEP must contain TensorBoard event files with `--events`, got none in '{root}'.")
    return dict(sorted(found.items()))


def event_rows(folders: Mapping[str, EventFolder]) -> Table:
    """One row per folder with scalars or hyperparameters: the last and the best value of each tag.

    `steps` is the highest step of any tag, `seconds` the time from the first value to the last. The column of a
    hyperparameter has its name, prefixed by `settings.` if a tag has the same name.
    """
    used = {name: folder for name, folder in folders.items() if folder.scalars or folder.hparams}
    tags = list(dict.fromkeys(tag for folder in used.values() for tag in folder.scalars))
    best = {
        tag: larger
        for tag in tags
        if (larger := prefers_larger(tag)) is not None and _best_column(tag) not in tags  # unless the program logs it
    }
    reserved = {*_OWN_COLUMNS, *tags, *map(_best_column, best)}
    settings = {
        name: f"settings.{name}" if name in reserved else column_of(name)
        for name in sorted({name for folder in used.values() for name in folder.hparams})  # files have no fixed order
    }
    varying = differing_settings([folder.hparams for folder in used.values()])
    columns = {tag: f"value.{tag}" if tag in _OWN_COLUMNS else tag for tag in tags}
    foreign = (*columns.values(), *map(_best_column, best))
    rows = [_row(name, each, settings=settings, tags=columns, best=best) for name, each in used.items()]
    return Table(
        columns=["run", *settings.values(), "steps", *foreign, "seconds", "started_at"],
        rows=rows,
        settings=tuple(settings.values()),
        foreign=foreign,
        shown=("run", *(settings[name] for name in varying), "steps", *foreign),
        notes=(
            *_empty_notes(folders),
            *_replaced_notes(folders),
            *(f"Not read: {line}" for each in folders.values() for line in each.damage),
        ),
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
    """The value at the highest step, the one written last if there are several."""
    highest = max(series.steps)
    index = max(index for index, step in enumerate(series.steps) if step == highest)
    return series.values[index]


def _best(series: Series, larger: bool) -> float | None:
    known = [value for value in series.values if not math.isnan(value)]
    return (max(known) if larger else min(known)) if known else None


def _in_iso(seconds: float) -> str | None:
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None  # an invalid time in the file


def _empty_notes(folders: Mapping[str, EventFolder]) -> Iterable[str]:
    empty = [name for name, each in folders.items() if not each.scalars and not each.hparams]
    if not empty:
        return []
    more = f" and {len(empty) - _MAX_NAMED} more" if len(empty) > _MAX_NAMED else ""
    return [f"Without scalars or hyperparameters: {', '.join(empty[:_MAX_NAMED])}{more}."]


def _replaced_notes(folders: Mapping[str, EventFolder]) -> Iterable[str]:
    """Say where TensorBoard may show more than is counted here."""
    for name, folder in folders.items():
        if folder.replaced:
            tags = list(folder.replaced)
            more = f" and {len(tags) - _MAX_NAMED} more tags" if len(tags) > _MAX_NAMED else ""
            num_values = pluralize(sum(folder.replaced.values()), "value")
            yield (
                f"Not counted in {name}: {num_values} of {', '.join(tags[:_MAX_NAMED])}{more} from steps that a later "
                "process wrote again; TensorBoard may show them, unless the writer was given `purge_step`."
            )
