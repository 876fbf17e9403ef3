"""Time until TensorBoard shows a thousand runs: our command against TensorBoard on the run folders."""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_interleaved
from benchmarks.processes import RUNMANAGER, clean_environment
from benchmarks.rows import Budget, Row, ratio_row
from benchmarks.stored_sweep import write_stored_sweep
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.storage.reader import read_run, run_names

__all__ = ["measure"]

_NUM_RUNS = 1000
_NUM_EPOCHS = 10
_TIMEOUT_SECONDS = 300.0
_STOPPING_RULE = StoppingRule(min_rounds=6, max_rounds=6)
_OURS = (*RUNMANAGER, "tensorboard")
_THEIRS = ("-m", "tensorboard.main", "--logdir")
_FAST = "TensorBoard on the run folders, fast data server"
_SLOW = "TensorBoard on the run folders, Python reader"


def measure(settings: Settings) -> list[Row]:
    """Return a row for each of TensorBoard's own ways to read the same files."""
    with tempfile.TemporaryDirectory() as name:
        sweep = write_stored_sweep(Path(name, "many"), num_runs=_NUM_RUNS, num_epochs=_NUM_EPOCHS)
        for run in run_names(sweep):
            _write_events(sweep.run(run))
        contenders = {
            "ours": partial(_seconds, sweep, *_OURS, str(sweep.root)),
            _FAST: partial(_seconds, sweep, *_THEIRS, str(sweep.runs)),
            _SLOW: partial(_seconds, sweep, *_THEIRS, str(sweep.runs), "--load_fast=false"),
        }
        seconds = run_interleaved(
            contenders, stopping_rule=settings.stopping_rule, seed=settings.seed, warm_up_rounds=0
        )
    what = f"scalars of {_NUM_RUNS:,} runs of {_NUM_EPOCHS} epochs: {{}} / ours (`runmanager tensorboard`)"
    return [
        ratio_row(what.format(other), ours=seconds["ours"], other=seconds[other], inverse=True, budget=budget)[0]
        for other, budget in ((_FAST, Budget(0.8, is_minimum=True)), (_SLOW, None))
    ]


def _write_events(run: RunPaths) -> None:
    """Write the event file of a stored run, without images and graph."""
    from runmanager.tracking.tensorboard.event_writer import EventWriter
    from runmanager.tracking.tensorboard.hparams import scalar_layout, session_end, session_start
    from runmanager.tracking.tensorboard.sink import epoch_scalars

    stored = read_run(run)
    writer = EventWriter(run.root)
    writer.summary(session_start(stored.record.settings))
    writer.summary(scalar_layout())
    for epoch in stored.epochs:
        writer.scalars(epoch_scalars(epoch, 0.1), epoch.epoch)
    writer.summary(session_end(succeeded=True))
    writer.close()


def _seconds(sweep: SweepPaths, *args: str) -> float:
    """Return the seconds from the start of Python until TensorBoard serves the scalars of every run."""
    port = _free_port()
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *args, "--port", str(port)],
        cwd=sweep.root,
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            while _num_runs_shown(port) < _NUM_RUNS:
                if process.poll() is not None or time.perf_counter() - begin > _TIMEOUT_SECONDS:
                    raise RuntimeError(f"TensorBoard must show {_NUM_RUNS} runs, but did not ({' '.join(args)}).")
                time.sleep(0.05)
            return time.perf_counter() - begin
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        return int(server.getsockname()[1])


def _num_runs_shown(port: int) -> int:
    """Return the number of runs with scalars, 0 while the server does not answer."""
    try:
        with urllib.request.urlopen(f"http://localhost:{port}/data/plugin/scalars/tags", timeout=60) as response:
            return sum(map(bool, json.load(response).values()))
    except OSError:
        return 0


if __name__ == "__main__":
    run_benchmark("board", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
