"""Accuracy of paired measurement: simulated, and in real trials with equal sides and with one side slowed down.

python -m benchmarks.paired_truth --write

It takes half an hour. The simulation has known process offsets and noise (`benchmarks/paired_simulation.py`). Each real
trial is a paired sweep of two cells, as `runmanager sweep measure=paired` runs it, with the default turn length and
process restarts; its result is the row of comparison.csv. `--burners` adds load to the trials with equal sides: that
many processes alternately compute and sleep for random times. Each run has one thread, since several threads that wait
for each other slow down badly when another process takes one of their cores.
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
from runmanager.results.stats.paired_speedup import log_ratios_by_session, paired_speedup

_SAME_SECONDS = 17.0  # turns and restarts; a whole trial with start-up and tables takes 20 seconds
_SLOWED_SECONDS = 50.0  # a whole trial takes up to a minute
_SLOWDOWNS = {0.03: 0.005, 0.10: 0.02}  # with the half width to stop at, small compared with the slowdown
_ALIKE = 0.005  # spread of process pairs up to which 3% must be found
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
    """Result of one trial; `seconds` cover the whole trial."""

    estimate: Estimate | None
    verdict: str
    rounds: int
    seconds: float
    spread: float | None = None  # between pairs of processes

    @property
    def covers_one(self) -> bool:
        return self.estimate is not None and self.estimate.low <= 1 <= self.estimate.high


def run_trial(
    folder: Path, *, slowdown: float, max_seconds: float, half_width: float, seed: int, offset: float = 0.0
) -> Trial:
    """Compare two runs of the same network, one of them slower by the share `slowdown`.

    Each process is slower by a further random share with standard deviation `offset`.
    """
    start = time.monotonic()
    sides = f"+model.slowdown=0,{slowdown}" if slowdown else "+model.side=1,2"
    limits = (f"measure.max_seconds={max_seconds}", f"measure.half_width={half_width}")
    paths = run_sweep_in_process(folder, *_SETTINGS, sides, f"+model.offset={offset}", *limits, f"seed={seed}")
    seconds = time.monotonic() - start
    results = read_results(paths)
    (row,) = compare(*results).rows
    first, second = results[0].runs
    found = paired_speedup(log_ratios_by_session([first], [second]))
    known = row["speedup"] is not None
    estimate = Estimate(row["speedup"], row["ci_low"], row["ci_high"]) if known else None
    return Trial(estimate, row["verdict"], row["candidate_epochs"], seconds, found.spread if found else None)


def run_trials(
    count: int, *, slowdown: float, max_seconds: float, half_width: float, seed: int, offset: float = 0.0
) -> list[Trial]:
    """Run `count` trials, each in a temporary folder, and print each result."""
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
        print(f"{number + 1}/{count}  slowdown {slowdown:.0%}  {_format_trial(trial)}", flush=True)
    return trials


def _format_trial(trial: Trial) -> str:
    estimate = trial.estimate
    ratio = "no interval" if estimate is None else f"{estimate.value:.4f} [{estimate.low:.4f}, {estimate.high:.4f}]"
    covers = ", covers 1" if trial.covers_one else ""
    spread = "" if trial.spread is None else f", spread {trial.spread:.2%}"
    return f"{ratio}  {trial.verdict}{covers}  {trial.rounds} rounds{spread}, {trial.seconds:.1f} s"


@contextmanager
def burners(count: int) -> Iterator[None]:
    """Run `count` processes that alternately compute and sleep for 0.2 s on average."""
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
    """Format the results as a Markdown table."""
    lines = [
        "| what | trials | seen | wanted |",
        "| --- | --- | --- | --- |",
    ]
    if same:
        num_covering, minimum = sum(trial.covers_one for trial in same), math.ceil(0.92 * len(same))
        conditions = f", {num_burners} burners" if num_burners else ""
        conditions += f", processes {offset:.1%} apart" if offset else ""
        lines.append(
            f"| same settings on both sides{conditions}, at most {_longest(same):.0f} s per trial: "
            f"the 95% interval covers 1 | {len(same)} | {num_covering} | at least {minimum} |"
        )
        verdicts = Counter(trial.verdict for trial in same)
        wrong = verdicts["faster"] + verdicts["slower"]
        lines.append(f"| the same: the verdict `faster` or `slower` | {len(same)} | {wrong} | as few as possible |")
        if unknown := verdicts["not measured"]:
            lines.append(f"| the same: too few rounds for an interval | {len(same)} | {unknown} | as few as possible |")
    for share, trials in slowed.items():
        alike = [trial for trial in trials if share >= 0.1 or (trial.spread is not None and trial.spread <= _ALIKE)]
        condition = "" if share >= 0.1 else f", pairs at most {_ALIKE:.1%} apart"
        lines.append(
            f"| one side slowed by {share:.0%}{condition}, at most {_longest(trials):.0f} s per trial: "
            f"the verdict `slower` | {len(alike)} | {_num_slower(alike)} | at least {math.ceil(0.9 * len(alike))} |"
        )
        apart = len(trials) - len(alike)
        if apart:
            lines.append(f"| the same, pairs further apart | {apart} | {_num_slower(trials) - _num_slower(alike)} | |")
    source = source_line(command, "one thread per run", load_average(), machine=describe_machine())
    return "\n".join([*lines, "", source, ""])


def _num_slower(trials: Sequence[Trial]) -> int:
    return sum(trial.verdict == "slower" for trial in trials)


def _longest(trials: Sequence[Trial]) -> float:
    return max(trial.seconds for trial in trials)


def _real_trials(options: argparse.Namespace, command: str) -> str:
    with tempfile.TemporaryDirectory(prefix="paired-truth-") as folder:  # warm-up: reads the packages from disk
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
    """Run the trials given by the command line and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--simulated", type=int, default=2000, help="simulated trials of each kind (default: %(default)s)"
    )
    parser.add_argument("--trials", type=int, default=40, help="real trials with the same settings on both sides")
    parser.add_argument("--slowed", type=int, default=10, help="real trials per slowdown, a minute each")
    parser.add_argument("--burners", type=int, default=0, help="number of processes that load the machine")
    parser.add_argument(
        "--offset", type=float, default=0.0, help="standard deviation between processes with equal settings"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write the table to docs/measurement_evidence.md")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    command = f"python -m benchmarks.paired_truth --simulated {options.simulated} --trials {options.trials}"
    command += f" --slowed {options.slowed} --burners {options.burners} --offset {options.offset:g}"
    command += f" --seed {options.seed}"
    text = simulated_table(trials=options.simulated, seed=options.seed) if options.simulated else ""
    if options.trials or options.slowed:
        text += "\n" * bool(text) + _real_trials(options, command)
    else:
        text += f"\n`{command}`, {datetime.date.today().isoformat()}.\n"
    print(text)
    if options.write:
        write_section(MEASUREMENT, "paired_truth", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
