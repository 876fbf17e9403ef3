"""What it costs to find metrics in the output of a script: megabytes a second of one core, by the kind of its lines."""

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_interleaved, timed
from benchmarks.rows import Budget, Row, measurement_row
from runmanager.app.programs.script.output.named_numbers import NamedNumbers
from runmanager.app.programs.script.output.printed_metrics import StreamScanner
from runmanager.app.programs.script.output.scalar_pattern import parse_scalars

__all__ = ["measure"]

_NUM_BYTES = 4_000_000
_CHUNK_BYTES = 2**16
_STOPPING_RULE = StoppingRule(min_rounds=3, max_rounds=5, max_seconds=60)
_PATTERNS = parse_scalars([r"loss=loss\W+([\d.]+)"])
_BUDGET = Budget(5, is_minimum=True, format="{:.3g} MB/s".format)  # 200 MB in at most 40 s of one core


def measure(settings: Settings) -> list[Row]:
    """Return two rows per kind of lines: what is printed unasked, and one `--scalar` alone."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for kind, lines in _KINDS.items():
            log = Path(name, "run.log")
            _write(log, lines)
            contenders = {
                "unasked": timed(partial(_scan, log, is_unasked=True), clock=time.process_time),
                "one --scalar": timed(partial(_scan, log, is_unasked=False), clock=time.process_time),
            }
            seconds = run_interleaved(contenders, stopping_rule=settings.stopping_rule, seed=settings.seed)
            size = log.stat().st_size / 1e6
            rows += [
                measurement_row(f"{kind}: {way}", [size / each for each in values], budget=_BUDGET)
                for way, values in seconds.items()
            ]
    return rows


def _scan(log: Path, *, is_unasked: bool) -> None:
    last: dict[str, float] = {}
    scanner = StreamScanner(
        [] if is_unasked else _PATTERNS,
        when_found=lambda point: last.__setitem__(point.name, point.value),
        when_odd=lambda *_: None,
        named=NamedNumbers() if is_unasked else None,
    )
    with log.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            scanner.feed(chunk)
    scanner.close()
    if not any("loss" in name for name in last):
        raise RuntimeError(f"The loss must be found, got {last}.")


def _write(log: Path, lines: Callable[[int], str]) -> None:
    def text() -> Iterator[str]:
        size = number = 0
        while size < _NUM_BYTES:
            line = lines(number)
            size, number = size + len(line), number + 1
            yield line

    log.write_text("".join(text()))


def _logged(number: int) -> str:
    return (
        f"2026-03-01 10:{number // 60 % 60:02}:{number % 60:02},125 INFO epoch {number // 1000} step {number} | "
        f"train loss: {1 / (number + 2):.4f} | lr 1.0e-03 | {number % 97 + 0.5} it/s\n"
    )


def _bar(number: int) -> str:
    done = number % 100
    bar = f"{'█' * (done // 4)}{' ' * (25 - done // 4)}"
    said = f"[00:{done:02}<00:10, 9.5it/s, loss={1 / (number + 2):.4f}]"
    return f"\rEpoch {number // 100}: {done:3}%|{bar}| {done}/100 {said}"


def _json(number: int) -> str:
    return f'{{"step": {number}, "train": {{"loss": {1 / (number + 2):.5f}}}, "lr": 0.001, "seconds": {number / 10}}}\n'


def _text(number: int) -> str:
    is_number = number % 100 == 0
    return f"loss: {1 / (number + 2):.4f}\n" if is_number else "a line of text that tells what a script does just now\n"


_KINDS = {"lines of logging": _logged, "a progress bar": _bar, "JSON lines": _json, "text": _text}


if __name__ == "__main__":
    run_benchmark("printed_output", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
