"""Interleaved benchmarks whose sides live in separate processes, for instance as epochs of one training.

Sides in one process would share its memory allocator, threads and settings. While one side works, the others wait on a
pipe.
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

from benchmarks.interleaving import StoppingRule, run_interleaved, run_parts_interleaved, should_stop
from benchmarks.processes import clean_environment

__all__ = ["ROUNDS_PER_PROCESS", "Side", "Turns", "run_sides_interleaved"]

ROUNDS_PER_PROCESS = 3
"""Number of rounds after which each side gets a new process."""

_REST_SECONDS = 0.02
"""Pause before each turn: OpenMP threads keep spinning for some milliseconds and would occupy the next side's core."""

_TIMEOUT_SECONDS = 600.0
_EXIT_TIMEOUT_SECONDS = 60.0


class Side:
    """A process `python ARGS` that uses `Turns`; each call gives it one turn and returns the seconds it reports.

    Raises `RuntimeError` with the output of the process if it dies or takes longer than `timeout_seconds`.
    """

    def __init__(self, *args: str, folder: Path, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self._args = args
        self._timeout_seconds = timeout_seconds
        self._output = Path(tempfile.mkdtemp(dir=folder)) / "output"
        with self._output.open("w") as stream:
            self._process = subprocess.Popen(
                [sys.executable, *args],
                cwd=self._output.parent,
                env=clean_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                bufsize=0,
            )

    def __call__(self) -> float:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"\n")
        except BrokenPipeError:
            raise self._failure("has ended") from None
        return float(self._read_line())

    def _read_line(self) -> bytes:
        assert self._process.stdout is not None
        deadline, line = time.monotonic() + self._timeout_seconds, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(deadline - time.monotonic()):
                    raise self._failure(f"has reported nothing for {self._timeout_seconds:g} s")
                part = self._process.stdout.read(1024)
                if not part:
                    raise self._failure("has ended")
                line += part
        return line

    def _failure(self, what: str) -> RuntimeError:
        output = self._output.read_text(errors="replace")
        return RuntimeError(f"python {' '.join(self._args)} {what}:\n{output}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the turns and wait for the process to exit; kill it after an error or a timeout."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_EXIT_TIMEOUT_SECONDS if error is None else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def run_sides_interleaved(
    sides: Mapping[str, Sequence[str]],
    *,
    folder: Path,
    stopping_rule: StoppingRule,
    seed: int,
    parts: int = 1,
    rounds_per_process: int = ROUNDS_PER_PROCESS,
) -> dict[str, list[float]]:
    """Call `run_interleaved` on sides given by their arguments to `python`; all run concurrently.

    After `rounds_per_process` rounds each side gets a new process. Processes differ, for instance in their memory
    layout, and an interval covers that only with several of them. The first round of a process is a warm-up and is not
    counted. If a side divides its work into `parts`, a round has that many turns of each side, interleaved; their
    seconds, measured in this process, are added up.
    """
    samples: dict[str, list[float]] = {name: [] for name in sides}
    start, num_rounds = time.monotonic(), 0
    while not should_stop(samples, stopping_rule, spent=time.monotonic() - start):
        rounds = min(rounds_per_process, stopping_rule.max_rounds - num_rounds)
        rule = replace(stopping_rule, min_rounds=rounds, max_rounds=rounds)
        for name, seconds in _run_in_new_processes(sides, folder, rule, seed=seed + num_rounds, parts=parts).items():
            samples[name] += seconds
        num_rounds += rounds
    return samples


def _run_in_new_processes(
    sides: Mapping[str, Sequence[str]], folder: Path, stopping_rule: StoppingRule, *, seed: int, parts: int
) -> dict[str, list[float]]:
    with contextlib.ExitStack() as stack:
        contenders = {name: stack.enter_context(Side(*args, folder=folder)) for name, args in sides.items()}
        if parts == 1:
            return run_interleaved(contenders, stopping_rule=stopping_rule, seed=seed, rest=_rest)
        in_parts = {name: partial(_parts, side, parts) for name, side in contenders.items()}
        return run_parts_interleaved(in_parts, stopping_rule=stopping_rule, seed=seed, rest=_rest)


def _rest() -> None:
    time.sleep(_REST_SECONDS)


def _parts(side: Side, count: int) -> Iterator[bool]:
    for _ in range(count):
        side()
        yield True


class Turns:
    """The side's end of the protocol: `wait` for a turn, work, `report` the seconds. Redirects stdout to stderr.

    ```
    turns = Turns()
    while turns.wait():
        turns.report(seconds)
    ```
    """

    def __init__(self) -> None:
        self._report_fd = os.dup(1)
        os.dup2(2, 1)  # keep printed text out of the reports

    def wait(self) -> bool:
        """Wait for the next turn. Return False if no more turns follow."""
        return os.read(0, 1) == b"\n"

    def report(self, seconds: float) -> None:
        """End the turn and report its seconds."""
        os.write(self._report_fd, f"{seconds!r}\n".encode())

    def serve(self, work: Callable[[], float]) -> None:
        """Call `work` in each turn and report the seconds it returns."""
        while self.wait():
            self.report(work())
