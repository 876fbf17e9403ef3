"""A parser as a target of fuzzing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Read", "Target"]

Read = Callable[[bytes], object]
"""Reads one input, and does with it what commands do; raises errors for users only."""


@dataclass(frozen=True)
class Target:
    """What is read, as the table of docs/security.md says it, and how.

    `prepare` makes the reader, in an empty folder of its own; `seeds` are valid inputs, given such a folder. `is_json`:
    the inputs are JSON documents, or lines of them. `share` is the part of the time that the target gets, in shares.
    """

    parser: str
    prepare: Callable[[Path], Read]
    seeds: Callable[[Path], Sequence[bytes]]
    is_json: bool = False
    share: float = 1.0
