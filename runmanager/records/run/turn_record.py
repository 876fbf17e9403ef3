"""A turn of a run that is measured side by side with others: what it may do, and the line that is kept of it."""

from dataclasses import dataclass

import msgspec

from runmanager.records.files.atomic_files import whole_lines
from runmanager.records.files.file_errors import UNREADABLE, damaged_file_error
from runmanager.records.files.paths import RunPaths

__all__ = ["Grant", "Turn", "read_turns"]


class Turn(msgspec.Struct, frozen=True):
    """One measured turn, a line of turns.jsonl: so many optimiser steps, with their samples, took so many seconds.

    Runs of one `session` took turns on one machine; those with the same `round`, counted from 1, belong together, and
    `place` is the order in which they came, from 1. A `warmup` turn does not count.
    """

    session: str
    round: int
    place: int
    steps: int
    samples: int
    seconds: float
    warmup: bool = False

    @property
    def samples_per_second(self) -> float | None:
        """Throughput of the turn; None where its clock did not advance."""
        return self.samples / self.seconds if self.samples and self.seconds > 0 else None


@dataclass(frozen=True)
class Grant:
    """The machine is the run's now; for a measured turn with its `round` and its `place` in it.

    `core` is the one on which all turns of a round begin.
    """

    round: int = 0
    place: int = 0
    warmup: bool = False
    core: int | None = None


_DECODER = msgspec.json.Decoder(Turn)


def read_turns(paths: RunPaths) -> list[Turn]:
    """The run's measured turns in order; a torn last line is left out. Raises `RecordError` for a damaged line."""
    try:
        return _DECODER.decode_lines(whole_lines(paths.turns))
    except UNREADABLE as error:
        raise damaged_file_error(paths.turns, error) from error
