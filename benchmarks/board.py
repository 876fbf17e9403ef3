"""TensorBoard on a thousand runs: how long until all are there, by our command and by its own ways of reading."""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path

from benchmarks.command import Settings, carry_out
from benchmarks.interleaving import Patience, in_turns
from benchmarks.processes import clean_environment
from benchmarks.rows import Row, compared
from benchmarks.stored_sweep import write_stored_sweep
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.storage.reader import read_run, run_names

__all__ = ["measure"]

_NUM_RUNS = 1000
_NUM_EPOCHS = 10
_LIMIT_SECONDS = 300.0
_PATIENCE = Patience(min_rounds=6, max_rounds=6)
_OURS = ("-c", "import sys; from runmanager.cli.main import main; sys.exit(main())", "tensorboard")
_THEIRS = ("-m", "tensorboard.main", "--logdir")
_FAST = "TensorBoard on the runs' folders, its fast server"
_SLOW = "TensorBoard on the runs' folders, reading in Python"


def measure(settings: Settings) -> list[Row]:
    """A row for each way in which TensorBoard itself would read the same files."""
    with tempfile.TemporaryDirectory() as name:
        sweep = write_stored_sweep(Path(name, "many"), num_runs=_NUM_RUNS, num_epochs=_NUM_EPOCHS)
        for run in run_names(sweep):
            _write_events(sweep.run(run))
        contenders = {
            "ours": partial(_seconds, sweep, *_OURS, str(sweep.root)),
            _FAST: partial(_seconds, sweep, *_THEIRS, str(sweep.runs)),
            _SLOW: partial(_seconds, sweep, *_THEIRS, str(sweep.runs), "--load_fast=false"),
        }
        seconds = in_turns(contenders, patience=settings.patience, seed=settings.seed, warm_up_rounds=0)
    what = f"scalars of {_NUM_RUNS:,} runs of {_NUM_EPOCHS} epochs: {{}} / ours (`runmanager tensorboard`)"
    return [
        compared(what.format(other), ours=seconds["ours"], other=seconds[other], inverse=True)[0]
        for other in (_FAST, _SLOW)
    ]


def _write_events(run: RunPaths) -> None:
    """The event file of a stored run, but for images and graph."""
    from runmanager.tracking.tensorboard.chart_layout import scalar_layout
    from runmanager.tracking.tensorboard.event_writer import EventWriter
    from runmanager.tracking.tensorboard.hparams import session_end, session_start
    from runmanager.tracking.tensorboard.sink import epoch_scalars

    stored = read_run(run)
    writer = EventWriter(run.root)
    writer.summary(session_start(stored.record.settings))
    writer.summary(scalar_layout())
    for epoch in stored.epochs:
        writer.scalars(epoch_scalars(epoch, 0.1), epoch.epoch)
    writer.summary(session_end(succeeded=True))
    writer.close()


def _seconds(sweep: SweepPaths, *words: str) -> float:
    """Seconds from the start of Python until TensorBoard has every run's scalars."""
    port = _free_port()
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *words, "--port", str(port)],
        cwd=sweep.root,
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            while _num_loaded(port) < _NUM_RUNS:
                if process.poll() is not None or time.perf_counter() - begin > _LIMIT_SECONDS:
                    raise RuntimeError(f"TensorBoard must show {_NUM_RUNS} runs, but did not ({' '.join(words)}).")
                time.sleep(0.05)
            return time.perf_counter() - begin
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        return int(server.getsockname()[1])


def _num_loaded(port: int) -> int:
    """How many runs have scalars; none while nothing answers."""
    try:
        with urllib.request.urlopen(f"http://localhost:{port}/data/plugin/scalars/tags", timeout=60) as answer:
            return sum(map(bool, json.load(answer).values()))
    except OSError:
        return 0


if __name__ == "__main__":
    carry_out("board", measure, summary=__doc__, patience=_PATIENCE)
