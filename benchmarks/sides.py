"""A side of a comparison that lives in a process of its own and works when it is its turn, as epochs of one training.

A process each, because sides that share one share its memory allocator, its threads and its settings. While one works
the others wait on a pipe.
"""

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.interleaving import Patience, in_small_turns, in_turns, is_enough
from benchmarks.processes import clean_environment

__all__ = ["ROUNDS_A_LIFE", "Side", "Turns", "sides_in_turns"]

ROUNDS_A_LIFE = 3
"""After so many rounds each side gets a process of its own anew."""

_REST_SECONDS = 0.02
"""Before each turn: OpenMP's threads look for more work for some milliseconds, and take the next side's core."""

_MOST_SECONDS = 600.0
_SECONDS_TO_LEAVE = 60.0


class Side:
    """`python WORDS`, which must take its turns by `Turns`; to call it is to give it one, for the seconds it tells.

    Raises `RuntimeError` with what the process said where it dies, or takes longer than `most_seconds`.
    """

    def __init__(self, *words: str, folder: Path, most_seconds: float = _MOST_SECONDS) -> None:
        self._words = words
        self._most_seconds = most_seconds
        self._said = Path(tempfile.mkdtemp(dir=folder)) / "said"
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self._said.parent,
                env=clean_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                bufsize=0,
            )

    def __call__(self) -> float:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"\n")
        except BrokenPipeError:
            raise self._failure("has ended") from None
        return float(self._line())

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        until, line = time.monotonic() + self._most_seconds, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(until - time.monotonic()):
                    raise self._failure(f"has told nothing for {self._most_seconds:g} s")
                part = self._process.stdout.read(1024)
                if not part:
                    raise self._failure("has ended")
                line += part
        return line

    def _failure(self, what: str) -> RuntimeError:
        said = self._said.read_text(errors="replace")
        return RuntimeError(f"python {' '.join(self._words)} {what}:\n{said}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """There are no more turns: the process is to end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_SECONDS_TO_LEAVE if error is None else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def sides_in_turns(
    sides: Mapping[str, Sequence[str]],
    *,
    folder: Path,
    patience: Patience,
    seed: int,
    parts: int = 1,
    rounds_a_life: int = ROUNDS_A_LIFE,
) -> dict[str, list[float]]:
    """`in_turns` of sides, each given by the words after `python`; all live at a time, for `rounds_a_life` rounds.

    Then each is begun anew: what differs from one process to the next, as the place of its memory, is in an interval
    only where there were several. The first round of a life counts nowhere. Where a turn is one of several `parts` of
    a side's work, a round has as many, between those of the others; their seconds, as seen from here, are added up.
    """
    seen: dict[str, list[float]] = {name: [] for name in sides}
    began, num_rounds = time.monotonic(), 0
    while not is_enough(seen, patience, spent=time.monotonic() - began):
        rounds = min(rounds_a_life, patience.max_rounds - num_rounds)
        life = replace(patience, min_rounds=rounds, max_rounds=rounds)
        for name, seconds in _one_life(sides, folder, life, seed=seed + num_rounds, parts=parts).items():
            seen[name] += seconds
        num_rounds += rounds
    return seen


def _one_life(
    sides: Mapping[str, Sequence[str]], folder: Path, patience: Patience, *, seed: int, parts: int
) -> dict[str, list[float]]:
    with contextlib.ExitStack() as stack:
        contenders = {name: stack.enter_context(Side(*words, folder=folder)) for name, words in sides.items()}
        if parts == 1:
            return in_turns(contenders, patience=patience, seed=seed, rest=_rest)
        pausing = {name: partial(_parts, side, parts) for name, side in contenders.items()}
        return in_small_turns(pausing, patience=patience, seed=seed, rest=_rest)


def _rest() -> None:
    time.sleep(_REST_SECONDS)


def _parts(side: Side, count: int) -> Iterator[bool]:
    for _ in range(count):
        side()
        yield True


class Turns:
    """A side's own end of it: `wait` for each turn, work, `tell` how long it took. Standard output becomes the error's.

    ```
    turns = Turns()
    while turns.wait():
        turns.tell(seconds)
    ```
    """

    def __init__(self) -> None:
        self._told = os.dup(1)
        os.dup2(2, 1)  # nobody who prints shall be taken for a figure

    def wait(self) -> bool:
        """Whether there is a turn; it has begun when this returns."""
        return os.read(0, 1) == b"\n"

    def tell(self, seconds: float) -> None:
        """The turn is over."""
        os.write(self._told, f"{seconds!r}\n".encode())

    def serve(self, work: Callable[[], float]) -> None:
        """Do `work` in each turn, and tell the seconds that it returns."""
        while self.wait():
            self.tell(work())
