"""Time from the end of an epoch until a page of `runmanager ui` has it, among 200 sweeps, and what the server costs.

The client asks for news as the page's script does, with the same pauses. The page itself then needs a few hundredths of
a second.
"""

import http.client
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule
from benchmarks.processes import RUNMANAGER, clean_environment
from benchmarks.rows import Budget, Row, format_seconds, measurement_row
from benchmarks.stored_sweep import write_stored_sweep
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.signature import signature
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.run_folder import RunFolder

__all__ = ["measure"]

_NUM_SWEEPS = 200
_NUM_RUNS = 50  # of each sweep
_NUM_EPOCHS = 10
_PAUSE_SECONDS = 0.7  # as in live.js
_TIMEOUT_SECONDS = 120.0
_STOPPING_RULE = StoppingRule(min_rounds=20, max_rounds=40, max_seconds=120)


def measure(settings: Settings) -> list[Row]:
    """Return the rows of the first page, of an epoch's way to its sweep's page, and of what the server costs."""
    generator = random.Random(settings.seed)
    what = f"{_NUM_SWEEPS:,} sweeps of {_NUM_RUNS} runs"
    with tempfile.TemporaryDirectory() as name:
        going = _write_sweeps(Path(name, "outputs"))
        with _served(Path(name), f"/sweep/{going.paths.sweep.name}") as reader:
            reader.ask()
            first_seconds = reader.seconds_since_start()
            delays = _delays(reader, going, generator, settings.stopping_rule)
            share = _share_at_rest(reader, rounds=len(delays))
        going.close()
    return [
        measurement_row(f"an epoch on the page of its sweep, {what}", delays, budget=Budget(2, format=format_seconds)),
        measurement_row(
            f"an open page while nothing changes, {what}: share of a core",
            [share],
            budget=Budget(0.1, format="{:.2g}".format),
        ),
        measurement_row(f"`ui` of {what}: from its start to a sweep's first page", [first_seconds]),
    ]


def _write_sweeps(folder: Path) -> RunFolder:
    """Write the sweeps, with one run in the last of them that this process makes."""
    for number in range(_NUM_SWEEPS):
        sweep = write_stored_sweep(
            folder / f"sweep-{number:03}", num_runs=_NUM_RUNS, num_epochs=_NUM_EPOCHS, seed=number
        )
    config = {"lr": 1.0, "batch_size": 100, "num_workers": 0, "device": "cpu", "seed": 0}
    record = RunRecord(
        name="made now",
        signature=signature(config),
        status=Status.RUNNING,
        config=config,
        started_at="2026-01-02T00:00:00+00:00",
        owner=ProcessIdentity.current(),
    )
    return claim_run(SweepPaths(sweep.root).run("made now"), record)


@dataclass
class _Reader:
    """A page that is open: it asks for what it lacks."""

    address: str
    port: int
    process: "subprocess.Popen[str]"
    began: float
    seen: str = ""
    drawn: str = ""

    def ask(self) -> str:
        """Ask once, and return what has changed; empty if nothing has."""
        news = f"&seen={self.seen}&drawn={self.drawn}" if self.seen else ""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT_SECONDS)
        connection.request("GET", self.address + news)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.status not in (200, 204):
            raise RuntimeError(f"The server must answer, got status {answer.status}: {text[:200]}")
        for name in ("seen", "drawn"):
            if found := re.search(rf'<p id="live"[^>]* data-{"version" if name == "seen" else name}="([^"]*)"', text):
                setattr(self, name, found[1])
        return text

    def seconds_since_start(self) -> float:
        return time.perf_counter() - self.began

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)


@contextmanager
def _served(folder: Path, path: str) -> Iterator[_Reader]:
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *RUNMANAGER, "ui", "--port", "0", "--no-open"],
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            address = urlsplit(process.stdout.readline().strip())
            yield _Reader(f"{path}?{address.query}", address.port or 0, process, began)
        finally:
            process.terminate()


def _delays(reader: _Reader, going: RunFolder, generator: random.Random, rule: StoppingRule) -> list[float]:
    """Append epochs at random moments, and return how long each takes to the page."""
    delays: list[float] = []
    began = time.perf_counter()
    while len(delays) < rule.max_rounds:
        if len(delays) >= rule.min_rounds and time.perf_counter() - began > rule.max_seconds:
            break
        number = len(delays) + 1
        asked_at = time.perf_counter()
        while reader.ask():  # until the page is complete, figures included
            time.sleep(_PAUSE_SECONDS)
            asked_at = time.perf_counter()
        time.sleep(generator.uniform(0, _PAUSE_SECONDS))
        going.append(_epoch(number))
        appended_at = time.perf_counter()
        time.sleep(max(0.0, asked_at + _PAUSE_SECONDS - appended_at))
        while f">{_loss(number)}<" not in reader.ask():
            if time.perf_counter() - appended_at > _TIMEOUT_SECONDS:
                raise RuntimeError(f"The page must show epoch {number}, but did not in {_TIMEOUT_SECONDS:g} s.")
            time.sleep(_PAUSE_SECONDS)
        delays.append(time.perf_counter() - appended_at)
    return delays


def _epoch(number: int) -> EpochRecord:
    return EpochRecord(
        epoch=number,
        loss=float(_loss(number)),
        val_accuracy=0.5,
        epoch_seconds=1.0,
        wall_seconds=1.0,
        run_seconds=float(number),
        samples=60_000,
        warmup=number == 1,
    )


def _loss(number: int) -> str:
    """The loss as the page shows it, another one for each epoch."""
    return f"{2 + number / 1000:.3f}"


def _share_at_rest(reader: _Reader, *, rounds: int) -> float:
    """Return the share of a core that the server takes for one open page on which nothing changes."""
    while reader.ask():
        time.sleep(_PAUSE_SECONDS)
    began, cpu = time.perf_counter(), reader.cpu_seconds()
    for _ in range(rounds):
        time.sleep(_PAUSE_SECONDS)
        reader.ask()
    return (reader.cpu_seconds() - cpu) / (time.perf_counter() - began)


if __name__ == "__main__":
    run_benchmark("ui_delay", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
