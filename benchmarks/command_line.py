"""The command line shared by all benchmarks: options, printed table and section of the page."""

import argparse
import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.interleaving import StoppingRule
from benchmarks.page import BENCHMARKS, describe_machine, section, write_section
from benchmarks.rows import HEADING, Row, table_line

__all__ = ["Settings", "run_benchmark"]


@dataclass(frozen=True)
class Settings:
    """Parsed command line: when to stop, the seed of the order, the device, and whether to write the page."""

    stopping_rule: StoppingRule
    seed: int
    writes: bool
    command: str
    device: str = "cpu"


def run_benchmark(
    name: str,
    measure: Callable[[Settings], Sequence[Row]],
    *,
    summary: str | None,
    stopping_rule: StoppingRule,
    has_device: bool = False,
    argv: Sequence[str] | None = None,
) -> None:
    """Run `measure`, print its rows and, with --write, write them to the page.

    `has_device` adds the option --device, for benchmarks that also run on devices other than the CPU.
    """
    settings = _parse_settings(name, summary, stopping_rule, has_device, argv)
    rows = measure(settings)
    print(table_line(HEADING))
    for row in rows:
        print(table_line(row.fields))
    if settings.writes:
        machine, day = describe_machine(settings.device), datetime.date.today()
        text = section(rows, machine=machine, command=settings.command, day=day)
        write_section(BENCHMARKS, name, text)


def _parse_settings(
    name: str, summary: str | None, stopping_rule: StoppingRule, has_device: bool, argv: Sequence[str] | None
) -> Settings:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=summary)
    parser.add_argument("--rounds", type=int, help=f"maximum number of rounds (default: {stopping_rule.max_rounds})")
    parser.add_argument(
        "--seconds", type=float, help=f"start no round after this time (default: {stopping_rule.max_seconds:g})"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the order within each round")
    if has_device:
        parser.add_argument("--device", default="cpu", help="device to train on (default: cpu)")
    parser.add_argument("--write", action="store_true", help="write the rows to the documents")
    options = parser.parse_args(argv)
    args = [f"python -m benchmarks.{name}"]
    if options.rounds is not None:
        stopping_rule = replace(
            stopping_rule, max_rounds=options.rounds, min_rounds=min(stopping_rule.min_rounds, options.rounds)
        )
        args.append(f"--rounds {options.rounds}")
    if options.seconds is not None:
        stopping_rule = replace(stopping_rule, max_seconds=options.seconds)
        args.append(f"--seconds {options.seconds:g}")
    if options.seed:
        args.append(f"--seed {options.seed}")
    device = options.device if has_device else "cpu"
    if device != "cpu":
        args.append(f"--device {device}")
    return Settings(stopping_rule, options.seed, options.write, " ".join(args), device)
