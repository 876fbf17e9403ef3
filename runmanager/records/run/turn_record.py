"""Turns of paired measurements: the stored record, and the grant that starts one."""

from dataclasses import dataclass

import msgspec

from runmanager.records.files.atomic_files import whole_lines
from runmanager.records.files.file_errors import UNREADABLE, damaged_file_error
from runmanager.records.files.paths import RunPaths
from runmanager.records.files.whole_numbers import Int64

__all__ = ["WARMUP_TURNS", "Grant", "Turn", "read_turns"]

WARMUP_TURNS = 3
"""Turns of each process in which it finds, unless the machine is busy, how many steps a turn should have."""


class Turn(msgspec.Struct, frozen=True):
    """One measured turn, a line of turns.jsonl: the `seconds` that `steps` optimiser steps over `samples` samples took.

    Runs of one `session` took turns on one machine. Turns of the same `round`, counted from 1, belong together; `place`
    is their order in it, from 1. A `warmup` turn does not count.
    """

    session: str
    round: Int64
    place: Int64
    steps: Int64
    samples: Int64
    seconds: float
    warmup: bool = False

    @property
    def samples_per_second(self) -> float | None:
        """Throughput of the turn; None if it had no samples or its clock did not advance."""
        return self.samples / self.seconds if self.samples and self.seconds > 0 else None


@dataclass(frozen=True)
class Grant:
    """Permission for a run to use the machine; for a measured turn, with its `round` and its `place` in the round.

    `core` is the CPU core on which all turns of a round begin.
    """

    round: int = 0
    place: int = 0
    warmup: bool = False
    core: int | None = None


_DECODER = msgspec.json.Decoder(Turn)


def read_turns(paths: RunPaths) -> list[Turn]:
    """Read the run's measured turns in order, without a torn last line. Raises `RecordError` for a damaged line."""
    try:
        return _DECODER.decode_lines(whole_lines(paths.turns))
    except UNREADABLE as error:
        raise damaged_file_error(paths.turns, error) from error
