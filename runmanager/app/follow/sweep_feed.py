"""The feed of every display: what has happened in a sweep since the last look at its files."""

import contextlib
import datetime
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from runmanager.app.follow.sweep_state import CellState, SweepReader, SweepState
from runmanager.launching.job_registry import QUEUE_NAME
from runmanager.records.files.atomic_files import FileStamp, file_stamp
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.sweep.lookup import Message, Messages, read_messages
from runmanager.text import pluralize


@dataclass(frozen=True)
class Began:
    """A run is running."""

    cell: CellState


@dataclass(frozen=True)
class Ended:
    """A run has ended; `is_earlier`: before the first look."""

    cell: CellState
    is_earlier: bool = False


@dataclass(frozen=True)
class Said:
    """A driver's sentence. With `retried` it tells the end of this run, which is tried again."""

    line: str
    retried: RunPaths | None = None


@dataclass(frozen=True)
class Waits:
    """What the cells wait for, empty for nothing; `is_new`: it is not only their number that has changed."""

    line: str
    is_new: bool


Change = Began | Ended | Said | Waits


class SweepFeed:
    """Tells what has happened in a sweep since the last look.

    A driver knows before the files do that a run begins, and when its end is recorded (`begin`, `end`); of others it
    looks at those that it names. All other followers look at every run, and hear what the drivers `say`.
    """

    def __init__(self, reader: SweepReader) -> None:
        self.state = SweepState((), None)
        self._reader = reader
        self._sweep = reader.paths
        self._running: set[str] = set()
        self._ended: dict[str, RunRecord | None] = {}
        self._retried: dict[str, float] = {}  # when a sentence has told the last end
        self._doubted: set[tuple[str, int]] = set()
        self._is_held = False
        self._superseded: set[str] = set()
        self._messages = Messages(reader.paths)
        self._num_heard = 0
        self._seen: FileStamp | None = None
        self._waits_for: set[bool | None] = set()

    def first_look(self, *, since: float) -> list[Change]:
        """Return what drivers at work have said, or others `since` then, and the earlier ends."""
        self.state = self._reader.read()
        messages = self._new_messages()
        at_work = self._reader.drivers_at_work
        said = [Said(each.line) for each in messages if each.driver in at_work or each.at.timestamp() >= since]
        earlier = []
        for cell in self.state.cells:
            is_crashed = cell.record is not None and cell.record.status is Status.CRASHED
            if cell.is_ended and not _ended_since(cell, since) and not (is_crashed and self.state.is_attended(cell)):
                self._ended[cell.paths.name] = cell.record
                earlier.append(Ended(cell, is_earlier=True))
        return [*said, *earlier]

    def poll(self, runs: Collection[RunPaths] | None = None) -> list[Change]:
        """Look again, with `runs` at these alone, and without what drivers say."""
        self.state = self._reader.read(runs)
        return [*(self._heard() if runs is None else ()), *self._changes(self.state.cells)]

    def begin(self, run: RunPaths, record: RunRecord) -> list[Change]:
        """A process of this driver makes the run, whose `record` says so before the file does."""
        return self._changes([CellState(run, record)])

    def end(self, run: RunPaths) -> list[Change]:
        """No process of this driver makes the run any more, and its end is recorded, as far as that was possible."""
        (cell,) = self._reader.read([run]).cells
        return [self._end(cell)]

    def say(self, line: str, *, here: str = "", retried: RunPaths | None = None) -> list[Change]:
        """Tell all followers a sentence of this driver, with `retried` in place of the last end of this run.

        `here` is how it is put for the driver's own user.
        """
        self._messages.say(line, retried=retried.name if retried else "")
        if retried is not None:
            self._running.discard(retried.name)
        return [Said(here or line, retried)]

    def waiting(self) -> list[Change]:
        """While no run and no driver is at work, return what the waiting cells wait for."""
        is_idle = self.state.is_driven is False and not self._running
        waiting = Counter(cell.is_queued for cell in self.state.cells if cell.is_waiting and is_idle)
        line = "; ".join(pluralize(number, *_WAITS_FOR[reason]) for reason, number in waiting.items())
        is_new, self._waits_for = waiting.keys() != self._waits_for, set(waiting)
        return [Waits(f"{line}; Ctrl-C leaves." if line else "", is_new)]

    def _heard(self) -> list[Change]:
        messages = self._new_messages()
        known = {cell.paths.name: cell.paths for cell in self.state.cells} if messages else {}
        for each in messages:
            if each.retried:
                self._running.discard(each.retried)
                self._retried[each.retried] = each.at.timestamp()
        return [Said(each.line, known.get(each.retried)) for each in messages]

    def _new_messages(self) -> list[Message]:
        stamp, messages = self._seen, []
        with contextlib.suppress(OSError):
            self._seen = file_stamp(self._sweep.messages)
            messages = read_messages(self._sweep)[self._num_heard :] if stamp != self._seen else []
        self._num_heard += len(messages)
        return messages

    def _changes(self, cells: Collection[CellState]) -> list[Change]:
        ended = self._without_doubt([cell for cell in cells if cell.is_ended and not self._is_told(cell)])
        changes: list[Change] = []
        for cell in cells:
            name = cell.paths.name
            if cell.is_running and name not in self._running:
                self._superseded |= {each.paths.name for each in self.state.cells if each.is_ended}
                self._running.add(name)
                self._ended.pop(name, None)
                changes.append(Began(cell))
            elif name in ended:
                changes.append(self._end(cell))
        return changes

    def _end(self, cell: CellState) -> Ended:
        self._running.discard(cell.paths.name)
        self._ended[cell.paths.name] = cell.record
        return Ended(cell)

    def _is_told(self, cell: CellState) -> bool:
        name = cell.paths.name
        is_retried = name in self._retried and not _ended_since(cell, self._retried[name])
        return is_retried or (name in self._ended and self._ended[name] == cell.record)

    def _without_doubt(self, ended: Sequence[CellState]) -> set[str]:
        """The ends that stay as they are. A paired run may begin again as long as its driver has begun no other one.

        How a run ended badly its driver may still record otherwise, or try it again: so these wait for another look,
        and all others with them, in their order, unless the last look was such a one.
        """
        doubted, paired = set(), set()
        for cell in ended:
            record, name = cell.record, cell.paths.name
            if record is None or not self.state.is_attended(cell):
                continue
            if not record.status.is_success:
                doubted.add((name, record.attempt))
            elif record.status is Status.FINISHED and cell.measure_seconds > 0 and name not in self._superseded:
                paired.add(name)
        new, self._doubted = doubted - self._doubted, self._doubted | doubted
        self._is_held = bool(new) and not self._is_held
        left = {cell.paths.name for cell in ended} - paired - {name for name, _ in new}
        return set() if self._is_held else left


_SUBMITTED = f"handed to {QUEUE_NAME}, which cannot be queried from here"
_WAITS_FOR = {
    True: (f"cell waits in {QUEUE_NAME}'s queue", f"cells wait in {QUEUE_NAME}'s queue"),
    False: ("cell waits for a driver", "cells wait for a driver"),
    None: (f"cell was {_SUBMITTED}", f"cells were {_SUBMITTED}"),
}


def _ended_since(cell: CellState, since: float) -> bool:
    ended_at = None if cell.record is None else cell.record.ended_at
    return ended_at is not None and datetime.datetime.fromisoformat(ended_at).timestamp() >= since
