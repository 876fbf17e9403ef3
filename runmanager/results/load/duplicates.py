"""Folders of one sweep that hold the same cell: which of them counts, as a copy is no second measurement."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import Damage

__all__ = ["drop_duplicates"]


class _Run(Protocol):
    """A run as it was read, whole or in short."""

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
    """The runs in their order, of each cell one, and what is to be said of the others.

    Of several a finished run counts, and before others one in the folder that it was made in. Runs that differ in a
    setting are several cells, whatever signature somebody wrote into their records.
    """
    of_signature: dict[str, list[_R]] = {}
    for run in runs:
        of_signature.setdefault(run.signature, []).append(run)
    if len(of_signature) == len(runs):
        return runs, []
    counted = {
        run.folder: min(same, key=_rank) for alike in of_signature.values() for same in _cells(alike) for run in same
    }
    others = [run for run in runs if run is not counted[run.folder]]
    said = [_said(paths, run, counted[run.folder]) for run in others]
    return [run for run in runs if run is counted[run.folder]], said


def _cells(alike: Sequence[_R]) -> Iterator[list[_R]]:
    """Runs of one signature, those of each cell together."""
    left = list(alike)
    while left:
        same = [run for run in left if run.own_settings == left[0].own_settings]
        yield same
        left = [run for run in left if run.own_settings != same[0].own_settings]


def _rank(run: _Run) -> tuple[bool, bool, str]:
    return run.status != Status.FINISHED, run.folder != run.name, run.folder


def _said(paths: SweepPaths, run: _Run, counted: _Run) -> Damage:
    folder = paths.runs / run.folder
    return Damage(folder, f"{folder} holds the same cell as {counted.folder}, and a cell counts once; move one away.")
