"""Short names for the runs of a sweep: what tells each from the others, and nothing else."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from runmanager.records.settings.grid import differing, readable_name

__all__ = ["short_names"]


def short_names(cells: Mapping[str, Mapping[str, Any]], *, lone: str) -> dict[str, str]:
    """A name for each run (keys: names of run folders; values: flat settings), fit for a folder and unique among them.

    Of the settings only those in which the runs differ, each by the last part of its name where that is clear
    (`depth=8` for `model.depth`). Where that still leaves runs alike, the digits of the folder's name follow. `lone` is
    the name of a run that has no others.
    """
    if len(cells) == 1:
        return dict.fromkeys(cells, lone)
    varying = differing(list(cells.values()))
    labels = _labels(varying)
    plain = {
        run: readable_name({labels[name]: settings[name] for name in varying if name in settings})
        for run, settings in cells.items()
    }
    # Some file systems take Net and net for one name.
    number = Counter(name.casefold() for name in plain.values())
    return {
        run: name if number[name.casefold()] == 1 else f"{name}-{run.rpartition('-')[2]}" for run, name in plain.items()
    }


def _labels(names: list[str]) -> dict[str, str]:
    whole = {name: name.removesuffix(".name") for name in names}
    last = {name: text.rpartition(".")[2] for name, text in whole.items()}
    number = Counter(last.values())
    return {name: last[name] if number[last[name]] == 1 else whole[name] for name in names}
