"""Fuzz every parser for a share of the time, and write what came of it to the table of a page.

python -m tests.fuzzing.fuzz --seconds 3600 --write docs/security.md

Needs atheris (`make test-fuzz` installs it). An input that breaks a promise is kept in corpus/, which the tests read
again. What the fuzzer learned about the parsers stays in a folder, so a later command goes on from there.
"""

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..reliability.page import write_row
from .corpus import corpus_folder
from .one_target import fuzz_target
from .target import Target
from .targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE = 40  # times the processor time that a target may take on a busy machine, and five minutes
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Fuzzed:
    """What came of a target: inputs tried, processor seconds, findings of this time, and old ones that are not mended.

    `died`: whether the process ended before its time, as of an error of code that is not Python's.
    """

    executions: int
    seconds: float
    new: int
    open: int
    died: bool


def fuzz(name: str, seconds: float, learned: Path) -> Fuzzed:
    """Fuzz a target in a process of its own, forked from this one, which has the parsers in memory."""
    with tempfile.TemporaryDirectory() as folder, Path(folder, "errors").open("w+") as errors:
        report = Path(folder, "report.json")
        pid = os.fork()
        if pid == 0:
            os.dup2(errors.fileno(), 2)
            try:
                fuzz_target(name, seconds=seconds, learned=learned / name, report=report)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        status = _end_of(pid, until=time.monotonic() + _PATIENCE * seconds + 300)
        if status != 0:
            errors.seek(0)
            print(errors.read()[-4000:], file=sys.stderr)
        figures = json.loads(report.read_text()) if report.exists() else dict.fromkeys(("executions", "new", "open"), 0)
    return Fuzzed(**{"seconds": 0.0, **figures}, died=status != 0)


def _end_of(pid: int, *, until: float) -> int:
    """Return the status of a process, which is killed if it takes too long."""
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def row(name: str, target: Target, found: Fuzzed) -> str:
    """Return a target's row of the table."""
    total = len(list(corpus_folder(name).glob("*")))
    mended = total - found.open - found.new
    return f"| {target.parser} | {found.executions:,} | {total if mended == total else f'{total}, {mended} mended'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="by default all", default=list(TARGETS))
    parser.add_argument("--seconds", type=float, default=3600, help="processor time of all targets together")
    parser.add_argument("--learned", type=Path, default=ROOT / ".venv" / "fuzzing")
    parser.add_argument("--write", type=Path, help="the page whose rows are written")
    args = parser.parse_args()
    chosen: Mapping[str, Target] = {name: TARGETS[name] for name in args.targets}
    whole = sum(target.share for target in chosen.values())
    done: list[Fuzzed] = []
    for name, target in chosen.items():
        found = fuzz(name, args.seconds * target.share / whole, args.learned)
        done.append(found)
        line = row(name, target, found)
        print(line, flush=True)
        if args.write is not None:
            write_row(args.write, rf"{re.escape(target.parser)} \|", line)
    bad = sum(each.new + each.open + each.died for each in done)
    print(f"{sum(each.executions for each in done):,} inputs in {sum(each.seconds for each in done):.0f} s, {bad} bad")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
