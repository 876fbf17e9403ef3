"""The gate on the truth: how often `--fail-if slower` fails equal commits, and finds commits that are truly slower.

python -m benchmarks.gate_truth --write

Resampled: a pool of real runs with equal settings is measured once. Each trial draws two sweeps from it, without
replacement, as two equal commits with five seeds; a slower commit has longer epochs by a known share. Sweeps either
took turns or ran one after the other. Duels: real commits of a small repository, of which the second is equal, or
slower by a known share in every step, as `runmanager duel --baseline-rev` measures them. All of them take an hour.
"""

import argparse
import datetime
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from benchmarks.in_process_sweep import run_sweep_in_process
from benchmarks.page import MEASUREMENT, describe_machine, load_average, source_line, write_section
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.results.compare.comparison_table import ComparisonRow
from runmanager.results.gate.fail_if import GateStatus, judge_condition, parse_condition
from runmanager.results.gate.sweep_pairs import TwoSweeps
from runmanager.results.load.loader import read_results
from runmanager.results.metrics.metric import THROUGHPUT

__all__ = ["Resampled", "resampled_lines"]

ROOT = Path(__file__).resolve().parents[1]

_SETTINGS = (
    *("device=cpu", "batch_size=100", "tensorboard.enabled=false", "dataset=fake", "dataset.val_size=100"),
    *("loader=resident", "model=custom"),
)
_POOL = ("model._target_=benchmarks.slowed_network.Slowed", "dataset.size=5000", "epochs=8")
_SEEDS = 5
_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_ALIKE = 0.005  # spread of process pairs up to which 3% must be found
_DUEL_SECONDS = {0.0: (17.0, 0.01), 0.03: (50.0, 0.005), 0.10: (50.0, 0.02)}
"""By slowdown: the seconds that a duel may take, and the half width at which it stops."""

_CLI = "import sys; from runmanager.cli.main import main; sys.exit(main())"
_NET = """
from benchmarks.slowed_network import Slowed

class Net(Slowed):
    def __init__(self, in_shape, num_classes):
        super().__init__(in_shape, num_classes, slowdown={slowdown})
"""


@dataclass(frozen=True)
class Resampled:
    """Kind of resampled trial: how much slower the candidate is, and whether the sweeps took turns."""

    slowdown: float
    in_turns: bool
    condition: str
    wanted: str

    @property
    def what(self) -> str:
        sides = f"a commit slower by {self.slowdown:.0%}" if self.slowdown else "equal commits"
        order = "in turns" if self.in_turns else "one sweep after the other"
        return f"resampled: {sides}, {_SEEDS} seeds, {order}: `{self.condition}`"


KINDS = (
    Resampled(0.0, True, "slower", "at most 5% fail"),
    Resampled(0.0, False, "slower", "at most 5% fail, the rest is not known"),
    Resampled(0.03, False, "slower", "not known"),
    Resampled(0.03, True, "slower:20%", "passes"),
    Resampled(0.10, True, "slower", "as many fail as possible"),
    Resampled(0.30, False, "slower", "as many fail as possible"),
)


def measure_pool(folder: Path, count: int) -> list[StoredRun]:
    """Run `count` runs that differ in the seed alone, one after the other."""
    seeds = ",".join(map(str, range(count)))
    paths = run_sweep_in_process(folder, *_SETTINGS, *_POOL, f"seed={seeds}")
    return list(read_results(paths)[0].runs)


def resampled_lines(pool: Sequence[StoredRun], trials: int, *, seed: int) -> Iterator[str]:
    """Yield a table row for each kind of resampled trial."""
    for kind in KINDS:
        draws = random.Random(f"{seed} {kind.what}")
        found = Counter(_resample(pool, kind, draws) for _ in range(trials))
        yield f"| {kind.what} | {trials} | {_counts(found)} | {kind.wanted} |"


def _counts(found: Counter[GateStatus]) -> str:
    names = {GateStatus.FAILED: "fail", GateStatus.PASSED: "pass", GateStatus.NOT_KNOWN: "not known"}
    return ", ".join(f"{found[status]} {name}" for status, name in names.items())


def _resample(pool: Sequence[StoredRun], kind: Resampled, draws: random.Random) -> GateStatus:
    drawn = draws.sample(list(pool), 2 * _SEEDS)
    sides: list[SweepContents] = []
    for side in range(2):
        runs = []
        for number in range(_SEEDS):
            # Which side comes first in a pair is drawn too.
            minute = 2 * number + (side + number) % 2 if kind.in_turns else side * _SEEDS + number
            slowdown = kind.slowdown if side else 0.0
            runs.append(_as_run(drawn[side * _SEEDS + number], number, minute, slowdown))
        runs.sort(key=lambda run: run.record.started_at or "")
        sides.append(SweepContents(SweepPaths(Path(("baseline", "candidate")[side])), runs))
    both = TwoSweeps(("baseline", "candidate"), (sides[0], sides[1]), (None, None))
    return judge_condition(parse_condition(kind.condition), both.compare(), THROUGHPUT).status


def _as_run(run: StoredRun, seed: int, minute: int, slowdown: float) -> StoredRun:
    """Return a measured run as that of another seed and time, with longer epochs."""
    start = _START + datetime.timedelta(minutes=minute)
    epochs = [
        msgspec.structs.replace(each, epoch_seconds=(each.epoch_seconds or 0.0) * (1 + slowdown)) for each in run.epochs
    ]
    record = msgspec.structs.replace(
        run.record,
        config={**run.record.config, "seed": seed},
        started_at=start.isoformat(),
        ended_at=(start + datetime.timedelta(seconds=30)).isoformat(),
    )
    return replace(run, record=record, epochs=epochs)


@dataclass(frozen=True)
class Duel:
    """A real duel: its exit status, the spread of its pairs of processes, and the seconds that it took.

    `covers` is whether its interval covers the true ratio, None without one.
    """

    status: int
    spread: float | None
    seconds: float
    answer: str
    covers: bool | None = None


def run_duel(slowdown: float) -> Duel:
    """Duel two commits of a new repository, of which the second is slower by `slowdown`."""
    max_seconds, half_width = _DUEL_SECONDS[slowdown]
    with tempfile.TemporaryDirectory(prefix="gate-truth-") as name:
        folder = Path(name)
        _git(folder, "init", "-q", "-b", "main")
        (folder / ".gitignore").write_text("outputs\n__pycache__\n")
        for of_commit in (0.0, slowdown):
            (folder / "net.py").write_text(_NET.format(slowdown=of_commit))
            _git(folder, "add", "-A")
            _git(folder, "commit", "-q", "--allow-empty", "-m", f"slower by {of_commit:g}")
        limits = (f"measure.max_seconds={max_seconds}", f"measure.half_width={half_width}", "dataset.size=10000")
        words = ("--baseline-rev", "HEAD~1", "--candidate-rev", "HEAD", "--fail-if", "slower")
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", _CLI, "duel", *words, *_SETTINGS, "model._target_=net.Net", *limits, "name=d"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - start
        if done.returncode not in (0, 1, 3):
            raise SystemExit(f"the duel ended with status {done.returncode}: {done.stderr}")
        row = _row(folder)
        covers = None if row["ci_low"] is None else row["ci_low"] <= 1 / (1 + slowdown) <= row["ci_high"]
        return Duel(done.returncode, _spread(row), seconds, done.stdout.splitlines()[2], covers)


def _row(folder: Path) -> ComparisonRow:
    """Return the row that compares both sides of a duel."""
    first, second = (read_results(SweepPaths(folder / "outputs" / f"d-{role}")) for role in ("baseline", "candidate"))
    (row,) = TwoSweeps(("baseline", "candidate"), (first[0], second[0]), (first[1], second[1])).compare().rows
    return row


def _spread(row: ComparisonRow) -> float | None:
    """Return the spread of the duel's pairs of processes, as its reason says."""
    found = re.search(r"spread of pairs ([\d.e-]+)%", row["reason"] or "")
    return float(found[1]) / 100 if found else None


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words], cwd=folder, check=True)


def run_duels(count: int, slowdown: float) -> list[Duel]:
    """Run `count` duels, and print each."""
    found = []
    for number in range(count):
        duel = run_duel(slowdown)
        found.append(duel)
        spread = "" if duel.spread is None else f", spread {duel.spread:.2%}"
        print(f"{number + 1}/{count} slowdown {slowdown:.0%}: status {duel.status}{spread}, {duel.seconds:.0f} s")
        print(f"    {duel.answer}", flush=True)
    return found


def duel_lines(duels: dict[float, list[Duel]]) -> Iterator[str]:
    """Yield a table row for each kind of duel."""
    for slowdown, found in duels.items():
        longest = max(duel.seconds for duel in found)
        what = f"real duels, slower by {slowdown:.0%}" if slowdown else "real duels of equal commits"
        alike = [duel for duel in found if slowdown != 0.03 or (duel.spread is not None and duel.spread <= _ALIKE)]
        wanted = {0.0: "at most 5% fail", 0.03: "9 of 10 fail", 0.10: "all fail"}[slowdown]
        limit = f", pairs at most {_ALIKE:.1%} apart" if slowdown == 0.03 else ""
        if alike:
            counts = _counts(Counter(GateStatus(duel.status) for duel in alike))
            yield f"| {what}{limit}, at most {longest:.0f} s each: `slower` | {len(alike)} | {counts} | {wanted} |"
        if apart := [duel for duel in found if duel not in alike]:
            counts = _counts(Counter(GateStatus(duel.status) for duel in apart))
            what += f", pairs more than {_ALIKE:.1%} apart, at most {longest:.0f} s each"
            yield f"| {what}: `slower` | {len(apart)} | {counts} | as many fail as possible |"
    known = [duel.covers for found in duels.values() for duel in found if duel.covers is not None]
    if known:
        wanted = "at least 95%, but for chance"
        yield f"| all these duels: the interval covers the true ratio | {len(known)} | {sum(known)} do | {wanted} |"


def main() -> int:
    """Run the trials given by the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200, help="resampled trials of each kind (default: %(default)s)")
    parser.add_argument("--pool", type=int, default=60, help="real runs to resample (default: %(default)s)")
    parser.add_argument("--duels", type=int, default=40, help="real duels of equal commits, 20 seconds each")
    parser.add_argument("--slowed", type=int, default=10, help="real duels per slowdown, a minute each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write the table to docs/measurement_evidence.md")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    lines = ["| what | trials | exit status | wanted |", "| --- | ---: | --- | --- |"]
    if options.trials:
        with tempfile.TemporaryDirectory(prefix="gate-truth-") as folder:
            pool = measure_pool(Path(folder), options.pool)
        lines += resampled_lines(pool, options.trials, seed=options.seed)
        print("\n".join(lines), flush=True)
    wanted = {0.0: options.duels, 0.03: options.slowed, 0.10: options.slowed}
    lines += duel_lines({share: run_duels(count, share) for share, count in wanted.items() if count})
    command = f"python -m benchmarks.gate_truth --trials {options.trials} --pool {options.pool}"
    command += f" --duels {options.duels} --slowed {options.slowed} --seed {options.seed}"
    source = source_line(command, "one thread per run", load_average(), machine=describe_machine())
    text = "\n".join([*lines, "", source, ""])
    print(text)
    if options.write:
        write_section(MEASUREMENT, "gate_truth", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
