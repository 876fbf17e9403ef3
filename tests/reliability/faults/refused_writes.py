"""Disks that refuse: full at each single write of a run, by quota, without inodes, read-only, failing."""

import os
import random
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from programs import Sweep

from faults.small import ERRORS, TAKING_ROOM, SmallLoop, SmallSweep, seam_variables, untrue_states
from faults.trial import Tally, discard, finish, new_folder, note_telling, run_command, run_well, stored_epochs

__all__ = ["REFUSALS", "refuse"]

_FOR_EVER = 10**9
_NUM_EPOCHS = 3  # a first one, one between, and a last one: each write of a run is tried
_CHANGES = (*TAKING_ROOM[:4], "open", "truncate", "unlink", "rmdir")
_SAID = {
    "full": "No space left",
    "quota": "quota",
    "inodes": "No space left",
    "read-only": "Read-only",
    "failing": "Input/output",
}
REFUSALS: Mapping[str, tuple[int, Sequence[str]]] = {
    "full": (ERRORS["full"], TAKING_ROOM),
    "quota": (ERRORS["quota"], TAKING_ROOM),
    "inodes": (ERRORS["full"], TAKING_ROOM[:2]),
    "read-only": (ERRORS["read-only"], _CHANGES),
    "failing": (ERRORS["failing"], TAKING_ROOM),
}
"""The errors by which a disk refuses, and the operations that it refuses."""


def refuse(folder: Path, tries: int, seed: int, *, program: str, kind: str) -> Tally:
    """Refuse `tries` writes of a program, chosen by chance, once or for ever; 0: each one both ways.

    As many programs run at a time as there are cores, each in a folder of its own.
    """
    count = len(os.sched_getaffinity(0))
    refusers = [_Refuser(new_folder(folder, str(number)), program=program, kind=kind) for number in range(count)]
    moments = [(number, is_once) for number in range(1, refusers[0].num_writes + 1) for is_once in (True, False)]
    if tries:
        moments = sorted(random.Random(seed).sample(moments, min(tries, len(moments))))
    tally = Tally()
    with ThreadPoolExecutor(count) as pool:
        for found in pool.map(_Refuser.refuse_each, refusers, [moments[first::count] for first in range(count)]):
            tally.add(found)
    return tally


class _Refuser:
    """Refuses the writes of one program in turn, in `folder`: each once, or from there on for ever."""

    def __init__(self, folder: Path, *, program: str, kind: str) -> None:
        made: Any = SmallLoop if program == "loop" else SmallSweep
        self._variant = "generator" if program == "loop" else "one"
        self._reference: Sweep = made(new_folder(folder, "whole"), self._variant, "undisturbed", _NUM_EPOCHS)
        self._sweep = made(new_folder(folder, "tried"), self._variant, "refused", _NUM_EPOCHS)
        self._kind = kind
        self._tally = Tally()
        run_well(self._reference)
        self.num_writes = self._count()

    def _count(self) -> int:
        run_well(self._with(first=_FOR_EVER, last=0))
        number = self._state.stat().st_size
        self._clean()
        return number

    @property
    def _state(self) -> Path:
        return self._sweep.folder / "operations"

    def _with(self, *, first: int, last: int) -> Any:
        error, kinds = REFUSALS[self._kind]
        options = {"refuse": error, "kinds": list(kinds), "first": first, "last": last}
        return replace(self._sweep, variables=seam_variables(self._sweep.folder, self._state, **options))

    def _clean(self) -> None:
        discard(self._sweep)
        self._state.unlink(missing_ok=True)
        self._refused_log.unlink(missing_ok=True)

    @property
    def _refused_log(self) -> Path:
        return Path(f"{self._state}.refused")

    def refuse_each(self, moments: Iterable[tuple[int, bool]]) -> Tally:
        for number, is_once in moments:
            self._refuse(number, is_once=is_once)
        return self._tally

    def _refuse(self, number: int, *, is_once: bool) -> None:
        """Run the command with this write refused, and again without."""
        status = run_command(self._with(first=number, last=number if is_once else _FOR_EVER))
        if not self._refused_log.exists():
            self._clean()
            return  # this time the command made fewer writes
        refused = " ".join(self._refused_log.read_text().splitlines()[0].split())
        what = f"{self._kind} {'once' if is_once else 'for ever'} at {refused}"
        self._tally.tried += 1
        self._tally.untrue += [f"{what}: {line}" for line in untrue_states(self._sweep, status=status)]
        if status != 0:  # else the write was not needed
            note_telling(self._tally, self._sweep, _SAID[self._kind], what=what)
        else:
            self._tally.told["nothing, as it was not needed"] += 1
        finish(self._tally, self._sweep, self._reference, stored_epochs(self._sweep), what=what)
        self._clean()
