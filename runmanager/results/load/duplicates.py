"""Duplicates of a cell in one sweep: a copied folder is not a second measurement."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from runmanager.records.files.paths import SweepPaths, folder_name
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import Damage

__all__ = ["drop_duplicates"]


class _Run(Protocol):
    """A stored run or its summary."""

    @property
    def folder(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def signature(self) -> str: ...

    @property
    def status(self) -> str: ...

    @property
    def own_settings(self) -> Mapping[str, Any] | None: ...  # None where the sweep's plan has them by the signature


_R = TypeVar("_R", bound=_Run)


def drop_duplicates(paths: SweepPaths, runs: Sequence[_R]) -> tuple[Sequence[_R], list[Damage]]:
    """Keep one run of each cell, in their order, and report the others as damage.

    Finished runs are preferred, then runs in the folder that they were made in. Runs that differ in a setting are
    different cells, even if their records have the same signature.
    """
    of_signature: dict[str, list[_R]] = {}
    for run in runs:
        of_signature.setdefault(run.signature, []).append(run)
    if len(of_signature) == len(runs):
        return runs, []
    cells = [same for alike in of_signature.values() for same in _split_cells(alike)]
    chosen = {run.folder: min(same, key=_rank) for same in cells for run in same}
    others = [run for run in runs if run is not chosen[run.folder]]
    damage = [_duplicate_damage(paths, run, chosen[run.folder]) for run in others]
    return [run for run in runs if run is chosen[run.folder]], damage


def _split_cells(alike: Sequence[_R]) -> Iterator[list[_R]]:
    """Group runs of one signature by cell."""
    left = list(alike)
    while left:
        same = [run for run in left if run.own_settings == left[0].own_settings]
        yield same
        left = [run for run in left if run.own_settings != same[0].own_settings]


def _rank(run: _Run) -> tuple[bool, bool, str]:
    return run.status != Status.FINISHED, run.folder not in (run.name, folder_name(run.name)), run.folder


def _duplicate_damage(paths: SweepPaths, run: _Run, chosen: _Run) -> Damage:
    folder = paths.runs / run.folder
    message = f"{folder} holds the same cell as {chosen.folder}, and a cell counts once; move one away."
    return Damage(folder, message, is_duplicate=True)
