"""Whether paired measurement tells the truth: simulated, and with real duels of equal and of slowed sides.

python -m benchmarks.paired_truth --write

takes half an hour. The simulated part has process offsets and noises of known size (`benchmarks/paired_simulation.py`).
Each real trial is a paired sweep of two cells, as `runmanager sweep measure=paired` runs it: its turns have the length
that users get, its processes are restarted as theirs, and its answer is the row of comparison.csv. With `--burners` the
machine is made busy for the equal sides: so many processes work and rest in turns of random length. Each run has one
thread, as several that wait for each other crawl where another process takes one of their cores.
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

from benchmarks.in_process_sweep import run_sweep_in_process
from benchmarks.page import MEASUREMENT, describe_machine, load_average, source_line, write_section
from benchmarks.paired_simulation import simulated_table
from runmanager.results.compare.comparison import compare
from runmanager.results.load.loader import read_results
from runmanager.results.stats.descriptive import Estimate
from runmanager.results.stats.paired_speedup import paired_speedup, ratios_of

_SAME_SECONDS = 17.0  # of turns and restarts, so that a trial with its first start and its tables takes 20 seconds
_SLOWED_SECONDS = 50.0  # and within a minute
_SLOWDOWNS = {0.03: 0.005, 0.10: 0.02}  # each with the half width to stop at: small beside what is to be found
_ALIKE = 0.005  # the spread of pairs of processes within which a 3% is to be found
_SETTINGS = (
    *("measure=paired", "device=cpu", "epochs=1", "batch_size=100", "tensorboard.enabled=false"),
    *("dataset=fake", "dataset.size=10000", "dataset.val_size=100", "loader=resident"),
    *("model=custom", "model._target_=benchmarks.slowed_network.Slowed"),
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
    spread: float | None = None  # of the pairs of processes

    @property
    def covers_one(self) -> bool:
        return self.estimate is not None and self.estimate.low <= 1 <= self.estimate.high


def run_trial(
    folder: Path, *, slowdown: float, max_seconds: float, half_width: float, seed: int, offset: float = 0.0
) -> Trial:
    """Two runs of the same network take turns, one of them slower by the share `slowdown`.

    Each of their processes is slower by a share of its own, with the standard deviation `offset`.
    """
    began = time.monotonic()
    sides = f"+model.slowdown=0,{slowdown}" if slowdown else "+model.side=1,2"
    limits = (f"measure.max_seconds={max_seconds}", f"measure.half_width={half_width}")
    paths = run_sweep_in_process(folder, *_SETTINGS, sides, f"+model.offset={offset}", *limits, f"seed={seed}")
    seconds = time.monotonic() - began
    results = read_results(paths)
    (row,) = compare(*results).rows
    first, second = results[0].runs
    found = paired_speedup(ratios_of([first], [second]))
    known = row["speedup"] is not None
    estimate = Estimate(row["speedup"], row["ci_low"], row["ci_high"]) if known else None
    return Trial(estimate, row["verdict"], row["candidate_epochs"], seconds, found.spread if found else None)


def run_trials(
    count: int, *, slowdown: float, max_seconds: float, half_width: float, seed: int, offset: float = 0.0
) -> list[Trial]:
    """`count` trials, each in a folder that goes with it, said as they end."""
    trials = []
    for number in range(count):
        with tempfile.TemporaryDirectory(prefix="paired-truth-") as folder:
            trial = run_trial(
                Path(folder),
                slowdown=slowdown,
                max_seconds=max_seconds,
                half_width=half_width,
                offset=offset,
                seed=random.Random(f"{seed} {slowdown} {number}").getrandbits(32),
            )
        trials.append(trial)
        print(f"{number + 1}/{count}  slowdown {slowdown:.0%}  {_said(trial)}", flush=True)
    return trials


def _said(trial: Trial) -> str:
    estimate = trial.estimate
    ratio = "no interval" if estimate is None else f"{estimate.value:.4f} [{estimate.low:.4f}, {estimate.high:.4f}]"
    covers = ", covers 1" if trial.covers_one else ""
    spread = "" if trial.spread is None else f", spread {trial.spread:.2%}"
    return f"{ratio}  {trial.verdict}{covers}  {trial.rounds} rounds{spread}, {trial.seconds:.1f} s"


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


def report(
    same: Sequence[Trial], slowed: dict[float, list[Trial]], *, num_burners: int, command: str, offset: float = 0.0
) -> str:
    """The figures as a table in Markdown."""
    lines = [
        "| what | trials | seen | wanted |",
        "| --- | --- | --- | --- |",
    ]
    if same:
        covering, least = sum(trial.covers_one for trial in same), math.ceil(0.92 * len(same))
        beside = f", {num_burners} burners" if num_burners else ""
        beside += f", processes {offset:.1%} apart" if offset else ""
        lines.append(
            f"| same settings on both sides{beside}, {_longest(same):.0f} s a trial at most: the 95% interval covers 1 "
            f"| {len(same)} | {covering} | {least} at least |"
        )
        verdicts = Counter(trial.verdict for trial in same)
        wrong = verdicts["faster"] + verdicts["slower"]
        lines.append(f"| the same: the verdict `faster` or `slower` | {len(same)} | {wrong} | as few as can be |")
        if unknown := verdicts["not measured"]:
            lines.append(f"| the same: too few rounds for an interval | {len(same)} | {unknown} | as few as can be |")
    for share, trials in slowed.items():
        alike = [trial for trial in trials if share >= 0.1 or (trial.spread is not None and trial.spread <= _ALIKE)]
        where = "" if share >= 0.1 else f", pairs that lie {_ALIKE:.1%} apart at most"
        lines.append(
            f"| one side slowed by {share:.0%}{where}, {_longest(trials):.0f} s a trial at most: the verdict `slower` "
            f"| {len(alike)} | {_num_slower(alike)} | {math.ceil(0.9 * len(alike))} at least |"
        )
        apart = len(trials) - len(alike)
        if apart:
            lines.append(f"| the same, pairs further apart | {apart} | {_num_slower(trials) - _num_slower(alike)} | |")
    conditions = ("one thread per run", load_average())
    return "\n".join([*lines, "", source_line(command, *conditions, machine=describe_machine()), ""])


def _num_slower(trials: Sequence[Trial]) -> int:
    return sum(trial.verdict == "slower" for trial in trials)


def _longest(trials: Sequence[Trial]) -> float:
    return max(trial.seconds for trial in trials)


def _real_duels(options: argparse.Namespace, command: str) -> str:
    with tempfile.TemporaryDirectory(prefix="paired-truth-") as folder:  # reads the packages from the disk: not counted
        run_trial(Path(folder), slowdown=0.0, max_seconds=1.0, half_width=0.01, seed=options.seed)
    trials = partial(run_trials, seed=options.seed)
    with burners(options.burners):
        same = trials(options.trials, slowdown=0.0, max_seconds=_SAME_SECONDS, half_width=0.01, offset=options.offset)
    others = {
        share: trials(options.slowed, slowdown=share, max_seconds=_SLOWED_SECONDS, half_width=half_width)
        for share, half_width in _SLOWDOWNS.items()
        if options.slowed
    }
    return report(same, others, num_burners=options.burners, command=command, offset=options.offset)


def main() -> int:
    """Run the trials that the command line asks for, and say what they came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulated", type=int, default=2000, help="simulated trials of each kind")
    parser.add_argument("--trials", type=int, default=40, help="with the same settings on both sides")
    parser.add_argument("--slowed", type=int, default=10, help="trials for each slowdown, of a minute each")
    parser.add_argument("--burners", type=int, default=0, help="what makes the machine busy meanwhile")
    parser.add_argument("--offset", type=float, default=0.0, help="how far processes of equal settings lie apart")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurement.md")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    command = f"python -m benchmarks.paired_truth --simulated {options.simulated} --trials {options.trials}"
    command += f" --slowed {options.slowed} --burners {options.burners} --offset {options.offset:g}"
    command += f" --seed {options.seed}"
    text = simulated_table(trials=options.simulated, seed=options.seed) if options.simulated else ""
    if options.trials or options.slowed:
        text += "\n" * bool(text) + _real_duels(options, command)
    else:
        text += f"\n`{command}`, {datetime.date.today().isoformat()}.\n"
    print(text)
    if options.write:
        write_section(MEASUREMENT, "paired_truth", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
