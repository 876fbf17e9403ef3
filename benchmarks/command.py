"""What every benchmark's command line shares: its options, its table on the screen, and on the page."""

import argparse
import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.interleaving import Patience
from benchmarks.page import BENCHMARKS, described_machine, section, write_section
from benchmarks.rows import HEADING, Row, as_line

__all__ = ["Settings", "carry_out"]


@dataclass(frozen=True)
class Settings:
    """What the command line says: how long to measure, the seed of the order, where, and whether to write the page."""

    patience: Patience
    seed: int
    writes: bool
    command: str
    device: str = "cpu"


def carry_out(
    name: str,
    measure: Callable[[Settings], Sequence[Row]],
    *,
    summary: str | None,
    patience: Patience,
    has_device: bool = False,
    argv: Sequence[str] | None = None,
) -> None:
    """Measure as the command line says, show the rows, and with --write put them on the page.

    `has_device` is for what can be measured on another device than the CPU: it is then named by --device.
    """
    settings = _read(name, summary, patience, has_device, argv)
    began = time.monotonic()
    rows = measure(settings)
    seconds = time.monotonic() - began
    print(as_line(HEADING))
    for row in rows:
        print(as_line(row.fields))
    if settings.writes:
        machine, day = described_machine(settings.device), datetime.date.today()
        text = section(rows, machine=machine, command=settings.command, day=day, seconds=seconds)
        write_section(BENCHMARKS, name, text)


def _read(name: str, summary: str | None, patience: Patience, has_device: bool, argv: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=summary)
    parser.add_argument("--rounds", type=int, help=f"so many rounds at most, by default {patience.max_rounds}")
    parser.add_argument(
        "--seconds", type=float, help=f"after so many no round begins, by default {patience.max_seconds:g}"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order in each round")
    if has_device:
        parser.add_argument("--device", default="cpu", help="where to train, by default cpu")
    parser.add_argument("--write", action="store_true", help="write the rows into the documents")
    options = parser.parse_args(argv)
    words = [f"python -m benchmarks.{name}"]
    if options.rounds is not None:
        patience = replace(patience, max_rounds=options.rounds, min_rounds=min(patience.min_rounds, options.rounds))
        words.append(f"--rounds {options.rounds}")
    if options.seconds is not None:
        patience = replace(patience, max_seconds=options.seconds)
        words.append(f"--seconds {options.seconds:g}")
    if options.seed:
        words.append(f"--seed {options.seed}")
    device = options.device if has_device else "cpu"
    if device != "cpu":
        words.append(f"--device {device}")
    return Settings(patience, options.seed, options.write, " ".join(words), device)
