"""Jumps of the wall clock while a sweep runs."""

import csv
import json
import os
import random
import time
from dataclasses import replace
from pathlib import Path

from commands import ROOT

from faults.small import INJECTED, SmallSweep, untrue_states
from faults.trial import Tally, discard, finish, new_folder, run_command, run_well, stored_epochs

__all__ = ["jump"]

_JUMPS = (-86400.0 * 400, -7200.0, -90.0, 90.0, 7200.0, 86400.0 * 400)
_PACE = {"PACE": "0.2"}


def jump(folder: Path, tries: int, seed: int) -> Tally:
    """Let the clock jump back or forward once in each of `tries` sweeps; then give the command again."""
    tally, chance = Tally(), random.Random(seed)
    reference = SmallSweep(new_folder(folder, "whole"), "two", "undisturbed")
    began = time.monotonic()
    run_well(replace(reference, variables=_PACE))
    seconds = time.monotonic() - began
    sweep = SmallSweep(new_folder(folder, "tried"), "two", "jumped")
    for number in range(tries):
        by = _JUMPS[number % len(_JUMPS)]
        spec = {"since": time.monotonic(), "after": chance.uniform(0.3, 1.0) * seconds, "by": by}
        variables = {
            "FAULT_CLOCK": json.dumps(spec),
            "PYTHONPATH": os.pathsep.join(map(str, (INJECTED, ROOT))),
        }
        what = f"try {number}, by {by:g} s after {spec['after']:.1f} s"
        status = run_command(replace(sweep, variables=variables | _PACE))
        tally.tried += 1
        tally.untrue += [f"{what}: {line}" for line in untrue_states(sweep, status=status)]
        tally.untrue += [f"{what}: {line}" for line in _false_times(sweep)]
        if status != 0:
            tally.untold.append(f"{what}: status {status}: {sweep.log()[-300:]}")
        else:
            tally.told["nothing: no state depends on the clock"] += 1
        finish(tally, sweep, reference, stored_epochs(sweep), what=what)
        discard(sweep)
    return tally


def _false_times(sweep: SmallSweep) -> list[str]:
    """Return the durations of the results table that the jump has falsified."""
    found = []
    with (sweep.paths.root / "results.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            seconds = {name: float(value) for name, value in row.items() if value and name.endswith("seconds")}
            found += [f"{name} is {value}" for name, value in seconds.items() if not 0 <= value < 600]
    return found
