"""Whether paired measurement tells the truth: the same settings on both sides, and a slowdown of known size on one.

python -m benchmarks.paired_truth --trials 200 --write

takes half an hour. Each trial is a paired sweep of two cells, as `runmanager sweep measure=paired` runs it: its turns
have the length that users get, and its answer is the row of comparison.csv. With the same settings on both sides the
machine is made busy: `--burners` processes work and rest in turns of random length. Each run has one thread, as several
that wait for each other crawl where another process takes one of their cores: turns would be too few for an interval.
"""

import argparse
import datetime
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.application import run_in_process
from benchmarks.page import MEASUREMENT, described_machine, write_section
from runmanager.results.comparison import compare
from runmanager.results.reading import read_results
from runmanager.results.statistics import Estimate

_SAME_SECONDS = 5.0  # of turns, so that a trial with its processes' start and its tables stays within ten seconds
_SLOWED_SECONDS = 50.0  # and within a minute
_SLOWDOWNS = {0.03: 0.005, 0.10: 0.02}  # each with the half width to stop at: small beside what is to be found
_SETTINGS = (
    *("measure=paired", "device=cpu", "epochs=1", "batch_size=100", "checkpoint.every=0", "tensorboard.enabled=false"),
    *("dataset=fake", "dataset.size=10000", "dataset.val_size=100", "loader=resident"),
    *("model=custom", "model._target_=benchmarks.slowed.Slowed"),
)
_BURNER = """
import random, time
while True:
    until = time.monotonic() + random.expovariate(5)
    while time.monotonic() < until:
        pass
    time.sleep(random.expovariate(5))
"""


@dataclass(frozen=True)
class Trial:
    """What one trial came to; `seconds` are those of the whole trial."""

    estimate: Estimate | None
    verdict: str
    rounds: int
    seconds: float

    @property
    def covers_one(self) -> bool:
        return self.estimate is not None and self.estimate.low <= 1 <= self.estimate.high


def run_trial(folder: Path, *, slowdown: float, max_seconds: float, half_width: float, seed: int) -> Trial:
    """Two runs of the same network take turns, one of them slower by the share `slowdown`; each in a fresh process."""
    began = time.monotonic()
    sides = f"+model.slowdown=0,{slowdown}" if slowdown else "+model.side=1,2"
    limits = (f"measure.max_seconds={max_seconds}", f"measure.half_width={half_width}")
    paths = run_in_process(folder, *_SETTINGS, sides, *limits, f"seed={seed}")
    seconds = time.monotonic() - began
    (row,) = compare(*read_results(paths)).rows
    known = row["speedup"] is not None
    estimate = Estimate(row["speedup"], row["ci_low"], row["ci_high"]) if known else None
    return Trial(estimate, row["verdict"], row["candidate_epochs"], seconds)


def run_trials(count: int, *, slowdown: float, max_seconds: float, half_width: float, seed: int) -> list[Trial]:
    """`count` trials, each in a folder that goes with it, said as they end."""
    trials = []
    for number in range(count):
        with tempfile.TemporaryDirectory(prefix="paired-truth-") as folder:
            trial = run_trial(
                Path(folder),
                slowdown=slowdown,
                max_seconds=max_seconds,
                half_width=half_width,
                seed=random.Random(f"{seed} {slowdown} {number}").getrandbits(32),
            )
        trials.append(trial)
        print(f"{number + 1}/{count}  slowdown {slowdown:.0%}  {_said(trial)}", flush=True)
    return trials


def _said(trial: Trial) -> str:
    estimate = trial.estimate
    ratio = "no interval" if estimate is None else f"{estimate.value:.4f} [{estimate.low:.4f}, {estimate.high:.4f}]"
    covers = ", covers 1" if trial.covers_one else ""
    return f"{ratio}  {trial.verdict}{covers}  {trial.rounds} rounds, {trial.seconds:.1f} s"


@contextmanager
def burners(count: int) -> Iterator[None]:
    """So many processes that burn a core for a fifth of a second, then rest as long, on average."""
    started = [subprocess.Popen([sys.executable, "-c", _BURNER]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def report(same: Sequence[Trial], slowed: dict[float, list[Trial]], *, num_burners: int, command: str) -> str:
    """The figures as a table in Markdown."""
    lines = [
        "| what | trials | seen | wanted |",
        "| --- | --- | --- | --- |",
    ]
    if same:
        covering, least, most = sum(trial.covers_one for trial in same), *_accepted(len(same))
        lines.append(
            f"| same settings on both sides, {num_burners} burners, {_longest(same):.0f} s a trial at most: the 95% "
            f"interval covers 1 "
            f"| {len(same)} | {covering} | {least} to {most} |"
        )
        verdicts = Counter(trial.verdict for trial in same)
        wrong = verdicts["faster"] + verdicts["slower"]
        lines.append(f"| the same: the verdict `faster` or `slower` | {len(same)} | {wrong} | as few as can be |")
        if unknown := verdicts["not measured"]:
            lines.append(f"| the same: too few rounds for an interval | {len(same)} | {unknown} | as few as can be |")
    for share, trials in slowed.items():
        found = sum(trial.verdict == "slower" for trial in trials)
        wanted = math.ceil(0.9 * len(trials)) if share < 0.1 else len(trials)
        lines.append(
            f"| one side slowed by {share:.0%}, {_longest(trials):.0f} s a trial at most: the verdict `slower` "
            f"| {len(trials)} | {found} | {wanted} at least |"
        )
    load = f"load {os.getloadavg()[1]:.1f} in the last five minutes"
    day = datetime.date.today().isoformat()
    return "\n".join([*lines, "", f"`{command}`, a thread a run, {day}, {load}, on {described_machine()}.", ""])


def _accepted(count: int) -> tuple[int, int]:
    """How many of `count` intervals may cover the truth: as 181 to 197 of 200."""
    return math.ceil(count * 181 / 200), math.floor(count * 197 / 200)


def _longest(trials: Sequence[Trial]) -> float:
    return max(trial.seconds for trial in trials)


def main() -> int:
    """Run the trials that the command line asks for, and say what they came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200, help="with the same settings on both sides")
    parser.add_argument("--slowed", type=int, default=10, help="trials for each slowdown, of a minute each")
    parser.add_argument("--burners", type=int, default=2, help="what makes the machine busy meanwhile")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurement.md")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="paired-truth-") as folder:  # reads the packages from the disk: not counted
        run_trial(Path(folder), slowdown=0.0, max_seconds=1.0, half_width=0.01, seed=options.seed)
    trials = partial(run_trials, seed=options.seed)
    with burners(options.burners):
        same = trials(options.trials, slowdown=0.0, max_seconds=_SAME_SECONDS, half_width=0.01)
    others = {
        share: trials(options.slowed, slowdown=share, max_seconds=_SLOWED_SECONDS, half_width=half_width)
        for share, half_width in _SLOWDOWNS.items()
        if options.slowed
    }
    command = f"python -m benchmarks.paired_truth --trials {options.trials} --slowed {options.slowed}"
    command += f" --burners {options.burners} --seed {options.seed}"
    text = report(same, others, num_burners=options.burners, command=command)
    print(text)
    if options.write:
        write_section(MEASUREMENT, "paired_truth", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
