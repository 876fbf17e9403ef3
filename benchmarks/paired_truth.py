"""Whether paired measurement tells the truth: the same settings on both sides, and a slowdown of known size on one.

python -m benchmarks.paired_truth --trials 200 --write

takes half an hour. With the same settings on both sides the machine is made busy: `--burners` processes work and rest
in turns of random length.
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
from typing import Any

from benchmarks.page import MEASUREMENT, described_machine, write_section
from runmanager.launching.engine import LocalEngine
from runmanager.launching.jobs import Ending, Job, Listener
from runmanager.launching.turns import Round, TurnKeeper, own_seat
from runmanager.records.paths import RunPaths
from runmanager.records.store import read_run
from runmanager.results.judging import verdict
from runmanager.results.options import CompareOptions
from runmanager.results.paired import is_narrow, log_ratios, paired_speedup, rounds_of
from runmanager.results.statistics import Estimate

_PRELOAD = ("torch", "runmanager.training.job", "benchmarks.paired_truth")
_BLOCK_STEPS = 30  # of less than a millisecond each: short turns make many rounds of the few seconds
_SAME_SECONDS = 4.0  # of turns, so that a trial with its processes' start stays within ten seconds
_SLOWED_SECONDS = 50.0  # and within a minute
_SLOWDOWNS = {0.03: 0.005, 0.10: 0.02}  # each with the half width to stop at: small beside what is to be found
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
    rounds: int
    seconds: float

    @property
    def covers_one(self) -> bool:
        return self.estimate is not None and self.estimate.low <= 1 <= self.estimate.high

    @property
    def verdict(self) -> str:
        if self.estimate is None:
            return "not measured"
        return verdict(self.estimate.interval, tolerance=CompareOptions().paired_drift)


class _Endings(Listener):
    def __init__(self) -> None:
        self.bad: list[Ending] = []

    def ended(self, ending: Ending) -> None:
        if ending.exit_code != 0 or ending.answer is None:
            self.bad.append(ending)


def run_trial(folder: Path, *, slowdown: float, max_seconds: float, half_width: float, seed: int) -> Trial:
    """Two fresh processes train the same network in turns, one of them slower by the share `slowdown`."""
    began = time.monotonic()

    def enough(rounds: Sequence[Round]) -> bool:
        return is_narrow(log_ratios(rounds, [0], [1]), half_width)

    keeper = TurnKeeper(enough=enough, min_rounds=10, max_seconds=max_seconds, seed=seed)
    engine = LocalEngine(workers=2, preload=_PRELOAD, turns=keeper)
    endings = _Endings()
    paths = [RunPaths(folder / "runs" / name) for name in ("baseline", "candidate")]
    shares = (0.0, slowdown)
    engine.run([Job(at, train_side, (str(paths[at].root), shares[at])) for at in (0, 1)], endings)
    if endings.bad or engine.was_interrupted:
        raise SystemExit(f"a trial's process ended badly: {endings.bad}")
    rounds = rounds_of([read_run(each) for each in paths])
    estimate = paired_speedup(log_ratios(rounds, [0], [1]))
    return Trial(estimate, len(rounds), time.monotonic() - began)


def train_side(folder: str, slowdown: float) -> None:
    """One side's process: the built-in job, one epoch and then its measured turns."""
    from runmanager.tracking.manager import RunManager
    from runmanager.tracking.options import TensorBoardOptions
    from runmanager.training.job import train_run
    from runmanager.training.job_options import CheckpointOptions, TrainingOptions
    from runmanager.training.measure_options import PairedOptions
    from runmanager.training.options import AdamOptions, ConstantOptions, FakeOptions, MlpOptions, ResidentOptions

    paths = RunPaths(Path(folder))
    options = TrainingOptions(
        batch_size=100,
        device="cpu",
        epochs=1,
        dataset=FakeOptions(size=10_000, val_size=100),
        model=MlpOptions(hidden=[16]),
        optimizer=AdamOptions(),
        scheduler=ConstantOptions(),
        loader=ResidentOptions(),
        measure=PairedOptions(block_steps=_BLOCK_STEPS),
        checkpoint=CheckpointOptions(every=0),
    )
    manager = RunManager(
        paths.root.parent.parent, tensorboard=TensorBoardOptions(enabled=False), console=False, owns_sweep=False
    )
    with slowed(slowdown):
        train_run(manager, options, params={}, folder=paths, when_claimed=lambda run: None, turns=own_seat())


@contextmanager
def slowed(share: float) -> Iterator[None]:
    """Make each optimiser step longer by `share` of the time since the one before."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    if not share:
        yield
        return
    last = time.perf_counter()
    usual = math.inf

    def spin(*_: Any) -> None:
        nonlocal last, usual
        now = time.perf_counter()
        step = now - last
        # Between two turns the time since the last step is that of the others.
        usual = min(usual * 1.01, step)
        until = now + share * (step if step < 20 * usual else usual)
        while time.perf_counter() < until:
            pass
        last = time.perf_counter()

    handle = register_optimizer_step_post_hook(spin)
    try:
        yield
    finally:
        handle.remove()


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
    for share, trials in slowed.items():
        found = sum(trial.verdict == "slower" for trial in trials)
        wanted = math.ceil(0.9 * len(trials)) if share < 0.1 else len(trials)
        lines.append(
            f"| one side slowed by {share:.0%}, {_longest(trials):.0f} s a trial at most: the verdict `slower` "
            f"| {len(trials)} | {found} | {wanted} at least |"
        )
    load = f"load {os.getloadavg()[1]:.1f} in the last five minutes"
    day = datetime.date.today().isoformat()
    return "\n".join([*lines, "", f"`{command}`, {day}, {load}, on {described_machine()}.", ""])


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
