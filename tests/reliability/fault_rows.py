"""Try the faults of a machine on sweeps and custom loops, and write what came of them to docs/reliability.md.

python tests/reliability/fault_rows.py --write docs/reliability.md
python tests/reliability/fault_rows.py "power cut" --tries 30
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from faults.clock import jump
from faults.disturbed import disturb, share
from faults.limits import limit
from faults.power_cut import cut_power
from faults.refused_writes import refuse
from faults.stopped import stop
from faults.trial import Tally
from page import write_row

Try = Callable[[Path, int, int], Tally]
"""Tries a fault so many times in a folder, by a seed."""


@dataclass(frozen=True)
class Fault:
    """A row of the page: what is done, how often by default, and how it is told."""

    what: str
    tries: int
    carry_out: Try
    told: str


_ROOM = "one line names file and disk; the run is `failed` or `crashed`"
_MOVED = "one line: the folder must stay in its place; status 1"
FAULTS: Mapping[str, Fault] = {
    "power cut": Fault(
        "A power cut during a sweep, its resumption or a custom loop: what was not synced is cut anywhere or gone",
        150,
        cut_power,
        "the run reads `crashed (vanished)`",
    ),
    "full disk, loop": Fault(
        "A full disk at any write of a custom loop, once and for ever",
        0,
        partial(refuse, program="loop", kind="full"),
        _ROOM,
    ),
    "full disk, sweep": Fault(
        "A full disk at any write of a sweep, once and for ever",
        0,
        partial(refuse, program="sweep", kind="full"),
        _ROOM,
    ),
    "quota": Fault("A quota that is used up", 20, partial(refuse, program="loop", kind="quota"), _ROOM),
    "inodes": Fault("No inode for a new file or folder", 40, partial(refuse, program="loop", kind="inodes"), _ROOM),
    "read-only": Fault(
        "A file system that turns read-only",
        40,
        partial(refuse, program="loop", kind="read-only"),
        "one line names the file; the run is `failed` or `crashed`",
    ),
    "failing disk": Fault(
        "A disk that fails (EIO)",
        40,
        partial(refuse, program="loop", kind="failing"),
        "one line names the file; the run is `failed` or `crashed`",
    ),
    "deleted": Fault("The sweep's folder deleted while it runs", 6, partial(disturb, kind="deleted"), _MOVED),
    "moved": Fault("The sweep's folder moved while it runs", 10, partial(disturb, kind="moved"), _MOVED),
    "run deleted": Fault(
        "A run's folder deleted while it runs",
        6,
        partial(disturb, kind="run deleted"),
        "the run is `failed`: its folder must exist",
    ),
    "loop moved": Fault(
        "The folder of a custom loop moved while it runs",
        20,
        partial(disturb, kind="loop moved"),
        "`RecordError`: the folder must exist",
    ),
    "descriptors": Fault(
        "4 to 24 file descriptors", 25, partial(limit, kind="descriptors"), "one line: too many or too few open files"
    ),
    "processes": Fault("1 to 8 processes and threads", 15, partial(limit, kind="processes"), "one line; status 1 or 2"),
    "shared memory": Fault(
        "4 to 128 KiB of `/dev/shm`, with loader workers",
        8,
        partial(limit, kind="shared memory"),
        "one line: no space left, or no room for a batch in shared memory; status 1",
    ),
    "clock": Fault(
        "The clock jumps by 90 s, 2 h or 400 days, back or forward", 12, jump, "not at all: no state depends on it"
    ),
    "stopped run": Fault("SIGSTOP of a run, then SIGCONT", 6, partial(stop, target="run"), "it stays `running`"),
    "stopped driver": Fault("SIGSTOP of the driver", 6, partial(stop, target="driver"), "its runs stay `running`"),
    "stopped group": Fault(
        "SIGSTOP of the driver's process group", 6, partial(stop, target="group"), "its runs stay `running`"
    ),
    "stopped family": Fault(
        "SIGSTOP of the driver and all that it started", 6, partial(stop, target="family"), "its runs stay `running`"
    ),
    "forkserver": Fault(
        "SIGKILL of the server that runs are forked from",
        10,
        partial(disturb, kind="server"),
        "the run is `crashed`: the process that had started it was killed",
    ),
    "sharing": Fault(
        "Two drivers and three readers of one sweep, every other time with one driver killed",
        10,
        share,
        "both show complete tables",
    ),
}


def row(fault: Fault, tally: Tally) -> str:
    """Return the row of docs/reliability.md."""
    counts = {"lost": tally.lost, "untrue": tally.untrue, "not recovered": tally.unrecovered}
    faults = ", ".join(f"{len(found)} {name}" for name, found in counts.items() if found) or "none"
    return f"| {fault.what} | {tally.tried:,} | {faults} | {fault.told} |"


def write(page: Path, fault: Fault, line: str) -> None:
    """Replace the fault's row in the page; a new one stands where FAULTS has it."""
    text = page.read_text()
    if _row(text, fault) is None:
        faults = list(FAULTS.values())
        later = [_row(text, each) for each in faults[faults.index(fault) + 1 :]]
        table = re.search(r"^\| fault \| times tried .*\n(?:\|.*\n)+", text, re.M)
        assert table is not None
        at = next((found.start() for found in later if found is not None), table.end())
        page.write_text(f"{text[:at]}| {fault.what} |\n{text[at:]}")
    write_row(page, f"{re.escape(fault.what)} \\|", line)


def _row(text: str, fault: Fault) -> re.Match[str] | None:
    return re.search(rf"^\| {re.escape(fault.what)} \|", text, re.M)


def main() -> int:
    """Run the command line; return 1 if anything came of a fault that should not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"default: all of {', '.join(FAULTS)}")
    parser.add_argument("--tries", type=int, help="default: a number of its own for each fault")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="page whose rows are replaced by the results")
    options = parser.parse_args()
    if unknown := set(options.faults) - FAULTS.keys():
        parser.error(f"FAULT must be one of {', '.join(FAULTS)}, got {', '.join(sorted(unknown))}")
    is_clean = True
    for name in options.faults or FAULTS:
        fault = FAULTS[name]
        tries = fault.tries if options.tries is None else options.tries
        with tempfile.TemporaryDirectory() as folder:
            tally = fault.carry_out(Path(folder), tries, options.seed)
        line = row(fault, tally)
        print(line)
        for told, count in tally.told.most_common(5):
            print(f"  told {count} times: {told[:200]}")
        for each in tally.faults():
            print(f"  {each}")
        is_clean = is_clean and tally.is_clean
        if options.write is not None:
            write(options.write, fault, line)
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
