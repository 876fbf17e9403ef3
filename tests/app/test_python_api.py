"""Tests of `run_sweep` and `watch_sweep`."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runmanager import run_sweep, watch_sweep
from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.reader import read_sweep
from runmanager.records.sweep.sweep_record import read_sweep_record

from ..processes import TIMEOUT_SECONDS, wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([["lr=1"]], "`run_sweep` must get settings as strings, got ['lr=1']; write run_sweep(*settings)."),
        (["--dry-run"], "`run_sweep` must get settings, got '--dry-run'; an option is a keyword, as dry_run=…."),
        (
            ["lr=1", "name=other"],
            "`name` must be given as a keyword argument, got 'name=other'; write name=… outside the quotes.",
        ),
        (["output_root=x"], "`output_root` must be given as a keyword argument"),
    ],
)
def test_invalid_overrides_are_rejected(overrides: list[Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        run_sweep(*overrides, name="mine", output_root=tmp_path)
    assert str(refused.value).startswith(said)
    assert not list(tmp_path.iterdir())


def test_watching_a_missing_sweep_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be a sweep's folder"):
        watch_sweep(tmp_path)


def test_a_sweep_of_a_program_prints_lines_and_ends_with_the_program(
    tmp_path: Path,
    own_module: Path,
    tiny: tuple[str, ...],
    mortal: Callable[[subprocess.Popen[Any]], subprocess.Popen[Any]],
) -> None:
    (tmp_path / "gate").touch()  # the second epoch does not end
    words = (*tiny, "model=custom", "model._target_=own.Net")
    no_interrupts = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)"  # as in a kernel between two cells
    program = (
        f"{no_interrupts}\nfrom runmanager import run_sweep\nrun_sweep(*{words}, name='long', output_root='made here')"
    )
    process = mortal(
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert process.stdout is not None
    lines = [process.stdout.readline().rstrip() for _ in range(3)]
    assert lines[0].startswith("$ runmanager sweep --name long --output-root 'made here' dataset=fake dataset.size=64 ")
    assert re.fullmatch(r"made here/long: 1 cell: 1 (pending|running)", lines[1])
    assert re.fullmatch(r"\[1/1\] \S+ started", lines[2])
    sweep = SweepPaths(tmp_path / "made here" / "long")
    plan = read_sweep_record(sweep)
    assert plan is not None
    (driver,) = plan.drivers
    try:
        wait_until((tmp_path / "waiting").exists, "the second epoch")
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT_SECONDS)
        wait_until(lambda: driver.is_alive() is False, "the driver's end")
    finally:
        process.stdout.close()
        if driver.is_alive():
            os.kill(driver.pid, signal.SIGKILL)
    (run,) = read_sweep(sweep).runs
    state = (run.record.status, run.record.reason, run.record.message)
    assert state == (Status.KILLED, Reason.INTERRUPTED, "stopped at once")
    assert len(run.epochs) == 1 and run.paths.checkpoint.exists() and sweep.results("csv").exists()
