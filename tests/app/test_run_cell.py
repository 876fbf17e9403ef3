"""Tests of single runs: the record of each kind of bad end, and the run's output."""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from runmanager.records.files.paths import RunPaths

from ..processes import wait_until

OWN = ("model=custom", "model._target_=own.Net")
ENDS = {
    "fine": ("finished", None, ""),
    "raises": ("failed", "exception", "ValueError: this model wants no data"),
    "exits": ("failed", "exit", "sys.exit(3)"),
    "memory": ("failed", "out_of_memory", "MemoryError: all is full (batch_size=32, "),
    "diverges": ("failed", "diverged", "nan"),
    "vanishes": ("failed", "exit", "the process ended with exit code 0"),
    "segfaults": ("killed", "signal", "SIGSEGV"),
}


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory, tiny: tuple[str, ...], bad_grid: Callable[..., Any]) -> Any:
    """A sweep whose runs end in every way, with the command's output."""
    ways = ",".join(ENDS)
    words = ("-m", *tiny, *OWN, f"+model.way={ways}", "lr=0.01", "name=ends")
    return bad_grid(tmp_path_factory.mktemp("ends"), *words)


def run_of(ends: Any, way: str) -> tuple[Any, RunPaths]:
    record = ends.sweep.record(**{"model.way": way})
    return record, ends.sweep.paths.run(record.name)


@pytest.mark.parametrize("way", ENDS)
def test_each_end_is_recorded_truthfully(ends: Any, way: str) -> None:
    record, _ = run_of(ends, way)
    status, reason, message = ENDS[way]
    assert (record.status, record.reason) == (status, reason)
    assert message in record.message.lower() or message in record.message
    assert "\n" not in record.message
    assert record.ended_at is not None


def test_a_bad_run_does_not_affect_the_others(ends: Any) -> None:
    assert ends.done.status == 1
    assert len(ends.sweep.records) == len(ENDS)
    assert "7 runs: 1 finished, 5 failed, 1 killed." in ends.done.out
    rows = {row["run"].split("model.way=")[1].rpartition("-")[0]: row for row in ends.sweep.rows()}
    assert {way: (row["status"], row["reason"]) for way, row in rows.items()} == {
        way: (status, reason or "") for way, (status, reason, _) in ENDS.items()
    }
    assert ends.sweep.paths.report.exists()


@pytest.mark.parametrize("way", [way for way in ENDS if way != "fine"])
def test_the_error_message_is_in_the_output(ends: Any, way: str) -> None:
    record, _ = run_of(ends, way)
    (line,) = (each for each in ends.done.out.splitlines() if "/7  " in each and f"model.way={way} " in each)
    assert line.startswith("✗ ")
    assert f"{record.status} ({record.reason})" in line
    assert record.message in line
    assert "Traceback" not in ends.done.err


def test_the_whole_error_is_in_a_file(ends: Any) -> None:
    _, paths = run_of(ends, "raises")
    text = paths.error.read_text()
    assert text.startswith("Traceback")
    assert 'raise ValueError("this model wants no data' in text
    assert "and says so in two lines" in text
    assert f"the whole error: {paths.error.relative_to(ends.folder)}" in ends.done.out
    assert "sys.exit(3)" in run_of(ends, "exits")[1].error.read_text()
    assert not run_of(ends, "fine")[1].error.exists()


def test_the_output_of_a_run_is_in_its_log(ends: Any) -> None:
    assert "a word of mine" in run_of(ends, "fine")[1].log.read_text().splitlines()
    assert "a word of mine" not in ends.done.out


def test_a_failed_run_starts_again(ends: Any, rerun: Callable[..., Any]) -> None:
    before, paths = run_of(ends, "raises")
    kept = run_of(ends, "fine")[1].record.read_bytes()
    done = rerun(ends, "+model.way=fine,raises")
    assert done.status == 1
    after, _ = run_of(ends, "raises")
    assert after.status == "failed"
    assert after.started_at > before.started_at
    assert [each.name for each in paths.attempts.iterdir()] == ["1"]
    assert (paths.attempts / "1" / "error.txt").exists()
    assert run_of(ends, "fine")[1].record.read_bytes() == kept


def test_custom_models_and_datasets_are_imported_from_the_current_folder(
    command: Callable[..., Any], sweep: Callable[[str], Any], own_module: Path, tiny: tuple[str, ...]
) -> None:
    data = (
        "import torch\n"
        "class Dots(torch.utils.data.Dataset):\n"
        "    num_classes = 3\n"
        "    def __init__(self, many): self.many = many\n"
        "    def __len__(self): return self.many\n"
        "    def __getitem__(self, index): return torch.full((1, 4, 4), float(index % 3)), index % 3\n"
    )
    (own_module.parent / "dots.py").write_text(data)
    shorter = [word for word in tiny if not word.startswith("dataset")]
    done = command(*shorter, *OWN, "dataset=custom", "dataset._target_=dots.Dots", "+dataset.many=100", "name=own")
    assert done.status == 0, done.out + done.err
    (record,) = sweep("own").records
    assert record.num_parameters == 16 * 3 + 3
    (row,) = sweep("own").rows("epochs.csv")[1:]
    assert row["samples"] == "80"  # a fifth is held out


# Its workers never return from their first sample, so they never check whether their run still exists.
STUCK = """
import os, signal, time
from pathlib import Path
import torch

class Stuck(torch.utils.data.Dataset):
    num_classes = 2
    def __len__(self): return 1000
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None:
            Path(f"worker.{os.getpid()}").touch()
            signal.alarm(600)
            time.sleep(1000)
        return torch.zeros(1, 4, 4), index % 2
"""


@pytest.mark.parametrize("launcher", ["local", "basic"])
def test_workers_end_with_a_driver_that_dies_during_their_start(
    start: Callable[..., Any], tmp_path: Path, tiny: tuple[str, ...], launcher: str
) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    words = [word for word in tiny if not word.startswith("dataset")]
    data = ("dataset=custom", "dataset._target_=stuck.Stuck", "num_workers=6", f"hydra/launcher={launcher}")
    driver = start(*words, *data)
    workers = lambda: [int(path.suffix[1:]) for path in tmp_path.glob("worker.*")]  # noqa: E731
    wait_until(lambda: workers() or driver.poll() is not None, "a worker")
    assert driver.poll() is None, driver.communicate()
    descendants = {each.pid for each in psutil.Process(driver.pid).children(recursive=True)}
    driver.kill()
    driver.wait()
    try:
        wait_until(lambda: not any(is_running(pid) for pid in descendants.union(workers())), "the end of all")
    finally:
        for pid in workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert len(descendants) > 1


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
