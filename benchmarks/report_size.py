"""Time to write the report of a thousand runs, the size of the page, and its first paint and interactions."""

import tempfile
from functools import partial
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_interleaved
from benchmarks.processes import run_python
from benchmarks.report_page import page_rows
from benchmarks.rows import Budget, Row, format_megabytes, format_seconds, measurement_row
from benchmarks.stored_sweep import write_stored_sweep
from runmanager.records.files.paths import SweepPaths

__all__ = ["measure"]

_NUM_RUNS = 1000
_NUM_EPOCHS = 20
_STOPPING_RULE = StoppingRule(min_rounds=5, max_rounds=7, max_seconds=60)
_RATES = {
    "80 cells of 12 or 13 seeds": (0.1, 0.03, 0.01, 0.003, 0.001),
    "1,000 cells": tuple(round(0.5 * 0.9**step, 6) for step in range(63)),
}
# Matrix products on several threads would spin while waiting, which counts as processor time.
_ON_ONE_CORE = """
import os, sys
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
from runmanager.cli.main import main
sys.exit(main())
"""


def measure(settings: Settings) -> list[Row]:
    """Return rows for each kind of sweep: seconds of the command, including all tables, and bytes of the page.

    The command uses one thread and never waits, so its processor time is its time on an idle machine.
    """
    with tempfile.TemporaryDirectory() as name:
        sweeps = {
            kind: write_stored_sweep(Path(name, f"{len(rates)}"), num_runs=_NUM_RUNS, num_epochs=_NUM_EPOCHS, lr=rates)
            for kind, rates in _RATES.items()
        }
        contenders = {kind: partial(_cpu_seconds, sweep) for kind, sweep in sweeps.items()}
        seconds = run_interleaved(contenders, stopping_rule=settings.stopping_rule, seed=settings.seed)
        sizes = {kind: sweep.report.stat().st_size for kind, sweep in sweeps.items()}
    rows = []
    for kind in _RATES:
        what = f"{_NUM_RUNS:,} runs of {_NUM_EPOCHS} epochs, {kind}"
        rows.append(measurement_row(f"{what}: processor time", seconds[kind], budget=Budget(5, format=format_seconds)))
        rows.append(measurement_row(f"{what}: size", [sizes[kind]], budget=Budget(5e6, format=format_megabytes)))
    return [*rows, *page_rows(settings.stopping_rule.max_rounds)]


def _cpu_seconds(sweep: SweepPaths) -> float:
    return run_python("-c", _ON_ONE_CORE, "report", str(sweep.root), folder=sweep.root.parent).cpu_seconds


if __name__ == "__main__":
    run_benchmark("report_size", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
