"""Time from Enter to the first words, and to the first run of a sweep, against the import of torch and torchvision.

The first run begins when its process has claimed its folder and written its record, just before it builds its parts.
"""

import datetime
import os
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_interleaved
from benchmarks.processes import RUNMANAGER, clean_environment, run_python
from benchmarks.rows import Budget, Row, format_seconds, measurement_row, ratio_row
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_record, run_names

__all__ = ["measure"]

_CELLS = ("lr=0.1,0.01", "dataset.size=200", "dataset.val_size=100", "epochs=1", "device=cpu")
_COMMANDS = {
    "`runmanager sweep`": (*RUNMANAGER, "sweep", *_CELLS),
    "`python -m runmanager -m`": ("-m", "runmanager", "-m", *_CELLS),
}
_FIRST_WORDS, _IMPORT = "first words", "import torch, torchvision"
_STOPPING_RULE = StoppingRule(min_rounds=7, max_rounds=15, max_seconds=120)


def measure(settings: Settings) -> list[Row]:
    """Return the row of the first words, and for each command that of its first run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        contenders: dict[str, Callable[[], float]] = {
            _IMPORT: lambda: run_python("-c", _IMPORT, folder=folder).seconds,
            _FIRST_WORDS: partial(_seconds_to_first_words, folder),
            **{what: partial(_seconds_to_first_run, folder, *command) for what, command in _COMMANDS.items()},
        }
        seconds = run_interleaved(contenders, stopping_rule=settings.stopping_rule, seed=settings.seed)
    words = Budget(0.3, format=format_seconds)
    return [
        measurement_row("the first words of `runmanager sweep` on a terminal", seconds[_FIRST_WORDS], budget=words),
        *(
            ratio_row(
                f"the first run of {what} begins: ours / `{_IMPORT}`",
                ours=seconds[what],
                other=seconds[_IMPORT],
                budget=Budget(1),
            )[0]
            for what in _COMMANDS
        ),
    ]


def _seconds_to_first_words(folder: Path) -> float:
    """Return the seconds until a terminal shows the first words; the command is then ended."""
    master, slave = pty.openpty()
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *_COMMANDS["`runmanager sweep`"], "--dry-run"],
        cwd=folder,
        env=clean_environment(),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    ) as process:
        os.close(slave)
        os.read(master, 1)
        seconds = time.perf_counter() - begin
        process.kill()
    os.close(master)
    return seconds


def _seconds_to_first_run(folder: Path, *command: str) -> float:
    """Return the seconds from the start of Python until the first run of a sweep has begun, by its record."""
    with tempfile.TemporaryDirectory(dir=folder) as cwd:
        begin = time.time()
        run_python(*command, "name=sweep", folder=Path(cwd))
        sweep = SweepPaths(Path(cwd, "outputs", "sweep"))
        starts = [read_record(sweep.run(name)).started_at for name in run_names(sweep)]
    return min(datetime.datetime.fromisoformat(start).timestamp() for start in starts if start) - begin


if __name__ == "__main__":
    run_benchmark("startup", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
