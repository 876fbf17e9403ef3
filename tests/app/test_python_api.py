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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"workerz": 2},
            "`workerz` must be an option of `runmanager sweep`, got an unknown one; did you mean 'workers'",
        ),
        ({"dry_run": True}, "`dry_run` must be left out, got it; `runmanager sweep --dry-run` shows the plan"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        run_sweep("lr=1", name="mine", output_root=tmp_path, **options)
    assert str(refused.value).startswith(said)
    assert not list(tmp_path.iterdir())


def test_a_script_is_swept_with_the_options_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "train.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\n"
        "parser.add_argument('--fold')\nparser.add_argument('data')\ngiven = parser.parse_args()\n"
        "print(f'loss: {given.lr}{given.fold} of {given.data}')\n"
    )
    words = ("train.py", "lr=1,2", "fold=3,4", "--", "there")
    sweep = run_sweep(
        *words, name="mine", scalar=r"loss=loss: (\S+)", exclude="lr>1 and fold>3", seed_name="fold", quiet=True
    )
    assert sorted((run.record.summary or {})["loss"] for run in read_sweep(sweep.paths).runs) == [13.0, 14.0, 23.0]
    record = read_sweep_record(sweep.paths)
    assert record is not None and record.seed_names == ("fold",)
    assert capfd.readouterr().out == ""


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
    lines = [process.stdout.readline().rstrip() for _ in range(4)]
    assert lines[0].startswith("$ runmanager sweep --name long --output-root 'made here' dataset=fake dataset.size=64 ")
    assert re.fullmatch(r"made here/long: 1 cell: 1 (pending|running)", lines[1])
    assert lines[2] == "1 run to do, in made here/long"
    assert re.fullmatch(r"\[1/1\] \S+ started", lines[3])
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
