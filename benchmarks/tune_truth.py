"""`runmanager tune` against an exhaustive grid, on three jobs: bound by input, by compute and by memory.

python -m benchmarks.tune_truth --write

Each job is tuned by the command, in a minute. Then every combination of the values that it may race is measured against
what was found, in groups whose rounds are interleaved; those that are slower than another one beyond doubt leave their
time to the rest. Those that are left are measured again, in other groups. The fastest of these are measured together,
so that no group decides that was measured while the machine was busy, and the fastest of all against what was found, in
processes of their own. It takes half an hour.
"""

import argparse
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from benchmarks.page import MEASUREMENT, describe_machine, load_average, source_line, write_section
from runmanager.app.compose.schema import conf_folder, read_config, register_schema
from runmanager.app.programs.grid_sweeper import register_sweeper
from runmanager.launching.hydra_launcher import LocalLauncher, register
from runmanager.launching.slurm import register_slurm
from runmanager.race.built_in_track import BuiltInTrack, Entry
from runmanager.race.heat import Heat, label_of
from runmanager.race.speed_settings import THREADS, Conditions, setting_now, speed_factors
from runmanager.records.host.process import usable_cores
from runmanager.results.stats.descriptive import Estimate

_JOBS: Mapping[str, Sequence[str]] = {
    "input": (
        *("dataset=custom", "dataset._target_=benchmarks.bound_workloads.SlowSamples", "+dataset.milliseconds=1"),
        *("model=mlp", "batch_size=20", "device=cpu"),
    ),
    "compute": ("dataset=fake", "dataset.size=4000", "dataset.val_size=100", "batch_size=200", "device=cpu"),
    "memory": ("dataset=fake", "dataset.size=8000", "dataset.val_size=100", "batch_size=2000", "device=cpu"),
}
_WITHIN = 0.05
_GROUP = 8  # combinations that are measured together, the one that they are measured against among them
_PASSES = 2  # over the combinations that are left
_RACE_SECONDS = 60.0
_FINAL_SECONDS = 180.0  # of the fastest together, and of the last pair, whose interval must be narrow

Settings = dict[str, str]


@dataclass(frozen=True)
class Trial:
    """One job: what the race found, in how many seconds, and how much faster the best of all combinations is."""

    job: str
    seconds: float
    found: Settings
    gain: Estimate | None
    count: int
    best: Settings
    missed: Estimate | None

    @property
    def is_near(self) -> bool:
        return self.missed is None or self.missed.value <= 1 / (1 - _WITHIN)


def run_trial(job: str, *, seconds: float, grid_seconds: float) -> Trial:
    """Tune a job, measure every combination, and then the best against what was found."""
    words = _JOBS[job]
    took, found = tune(words, seconds=seconds)
    grid = Grid(words)
    best, count = grid.best(found["chosen"], seconds=grid_seconds)
    same = grid.differences(best) == grid.differences(found["chosen"])
    missed = None if same else grid.compare(found["chosen"], best, seconds=_FINAL_SECONDS)
    gain = found["gain"] and Estimate(found["gain"]["value"], found["gain"]["low"], found["gain"]["high"])
    return Trial(job, took, found["chosen"], gain, count, best, missed)


def tune(words: Sequence[str], *, seconds: float) -> tuple[float, dict[str, Any]]:
    """Run the command in a folder of its own; return its duration, and what it has written."""
    with tempfile.TemporaryDirectory(prefix="tune-truth-") as folder:
        command = [sys.executable, "-c", "from runmanager.cli.main import main; main()", "tune", *words]
        command += ["name=trial", "--seconds", f"{seconds:g}", "--output-root", folder]
        began = time.monotonic()
        # Its preset is written into that folder, and the modules of the job are found here.
        paths = {"PYTHONPATH": str(Path.cwd())}
        subprocess.run(command, cwd=folder, env=os.environ | paths, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began, json.loads((Path(folder) / "trial" / "tune.json").read_text())


class Grid:
    """All combinations of the values that a job may race."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        launcher = LocalLauncher(preload=["torch", "runmanager.app.forkserver_imports"])
        self._track = BuiltInTrack(launcher, self._enter, seconds=_RACE_SECONDS)
        seen = self._track.try_alone({})
        self._base = self._enter({})
        known = Conditions(seen.device, usable_cores(), _RACE_SECONDS, splits=seen.splits)
        factors, _ = speed_factors(self._base.options, None, known)
        self._values = [[{}, *each.alternatives] for each in factors]

    def _enter(self, settings: Mapping[str, str]) -> Entry:
        words = [*self._words, *(f"{name}={value}" for name, value in settings.items() if name != THREADS)]
        threads = settings.get(THREADS)
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            options = read_config(compose("config", overrides=words))
        return Entry(options, None if threads is None else int(threads))

    def differences(self, settings: Mapping[str, str]) -> Settings:
        """The settings that differ from the defaults."""
        options = self._base.options
        return {name: value for name, value in settings.items() if setting_now(options, None, name) != value}

    def best(self, found: Settings, *, seconds: float) -> tuple[Settings, int]:
        """Return the fastest combination, and how many there are; each group races for some seconds."""
        every = [
            {name: value for each in some for name, value in each.items()} for some in itertools.product(*self._values)
        ]
        others = [each for each in every if self.differences(each) != self.differences(found)]
        fastest = fastest_settings(lambda some: self._track.race([found, *some], seconds=seconds), others)
        heat = self._track.race([found, *fastest], seconds=_FINAL_SECONDS, is_last=True)
        speeds = {0: 1.0} | {key: each.value for key, each in heat.estimates.items()}
        ranked = sorted(speeds, key=lambda key: speeds[key], reverse=True)
        for key in ranked:
            print(f"  {speeds[key]:.2f}  {label_of([found, *fastest][key]) or 'the defaults'}", flush=True)
        return [found, *fastest][ranked[0]], len(every)

    def compare(self, one: Settings, other: Settings, *, seconds: float) -> Estimate | None:
        """Return how many times as fast the other is, measured in processes of their own."""
        return self._track.race([one, other], seconds=seconds, is_last=True).estimates.get(1)


def fastest_settings(race: Callable[[Sequence[Settings]], Heat], every: Sequence[Settings]) -> list[Settings]:
    """Return the fastest of all settings, as many as are measured together at last, fastest first.

    `race` measures a group against the same settings each time. Each setting counts with the mean of its passes; those
    that are dropped in one, or fail, are out. Raises `SystemExit` where others were never measured.
    """
    logs: dict[str, list[float]] = {}

    def mean_log(settings: Settings) -> float:
        measured = logs[label_of(settings)]
        return math.fsum(measured) / len(measured)

    draw, left = random.Random(0), list(every)
    for number in range(1, _PASSES + 1):
        draw.shuffle(left)
        kept: list[Settings] = []
        for at in range(0, len(left), _GROUP - 1):
            group = left[at : at + _GROUP - 1]
            heat = race(group)
            for key, each in heat.estimates.items():
                logs.setdefault(label_of(group[key - 1]), []).append(math.log(each.value))
            out = {*heat.dropped, *heat.failures}
            kept += [each for key, each in enumerate(group, start=1) if key not in out]
            print(f"pass {number}: {at + len(group)}/{len(left)}, {len(kept)} left", flush=True)
        left = kept
    if missing := [each for each in left if label_of(each) not in logs]:
        raise SystemExit(f"{len(missing)} combinations were not measured: a group needs more than `--grid-seconds`.")
    return sorted(left, key=mean_log, reverse=True)[: _GROUP - 1]


def report(trials: Sequence[Trial], *, command: str) -> str:
    """Format the results as a Markdown table."""
    lines = [
        "| bound by | seconds | found | times as fast as the defaults | combinations | the best | against the found |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in trials:
        missed = "the same" if each.missed is None else _ratio(each.missed)
        lines.append(
            f"| {each.job} | {each.seconds:.0f} | {_shown(each.found)} | {_ratio(each.gain)} | {each.count} | "
            f"{_shown(each.best)} | {missed} |"
        )
    return "\n".join([*lines, "", source_line(command, load_average(), machine=describe_machine()), ""])


def _shown(settings: Settings) -> str:
    return f"`{label_of(settings)}`" if settings else "the defaults"


def _ratio(estimate: Estimate | None) -> str:
    return "" if estimate is None else f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def main() -> int:
    """Run the trials given by the command line, and print the results; 1 where one misses more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="+", choices=list(_JOBS), default=list(_JOBS))
    parser.add_argument("--seconds", type=float, default=_RACE_SECONDS, help="of each race (default: %(default)s)")
    parser.add_argument("--grid-seconds", type=float, default=_RACE_SECONDS, help="of each group of combinations")
    parser.add_argument("--write", action="store_true", help="write the table to docs/measurement_evidence.md")
    options = parser.parse_args()
    register_schema()
    register(preload=["torch"])
    register_slurm()
    register_sweeper()
    trials = [run_trial(job, seconds=options.seconds, grid_seconds=options.grid_seconds) for job in options.jobs]
    text = report(trials, command=f"python -m benchmarks.tune_truth --seconds {options.seconds:g}")
    print(text)
    if options.write:
        write_section(MEASUREMENT, "tune_truth", text)
    return 0 if all(each.is_near for each in trials) else 1


if __name__ == "__main__":
    sys.exit(main())
