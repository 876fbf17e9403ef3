"""Tests of `runmanager watch`: output, imports, and Ctrl-C."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.versioned_file import encode_record

from ..conftest import process_environment, process_words

DEADLINE_SECONDS = 120


def set_running(sweep: SweepPaths, owner: ProcessIdentity) -> RunPaths:
    """Make `owner` the owner of the sweep's first run."""
    paths = RunPaths(sorted(sweep.runs.iterdir())[0])
    record = msgspec.structs.replace(read_record(paths), status=Status.RUNNING, reason=None, owner=owner)
    paths.record.write_bytes(encode_record(record))
    return paths


def test_an_ended_sweep_is_shown_with_its_status(command: Callable, sweep: SweepPaths) -> None:
    done = command("watch", "grid")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("outputs/grid: 4 cells: 2 finished, 2 skipped\n")
    assert "4 runs: 2 finished, 2 skipped." in done.out
    assert "\x1b" not in done.out
    once = command("watch", "grid", "--once")
    assert (once.status, once.out) == (0, "outputs/grid: 4 cells: 2 finished, 2 skipped\n")


def test_a_folder_without_a_sweep_is_rejected(command: Callable, sweep: SweepPaths) -> None:
    done = command("watch", "gird")
    assert (done.status, done.out) == (2, "")
    assert "Did you mean 'grid'?" in done.err


def test_a_too_short_heartbeat_timeout_is_rejected(command: Callable, sweep: SweepPaths) -> None:
    done = command("watch", "grid", "--heartbeat-timeout", "0")
    assert (done.status, done.out) == (2, "")
    assert "`--heartbeat-timeout` must be a number of seconds of at least 10, got 0" in done.err


def test_watch_imports_neither_torch_nor_hydra(process: Callable, sweep: SweepPaths) -> None:
    after = "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'hydra', 'omegaconf', 'pandas'}))"
    assert process("watch", "grid", after=after).out.endswith("[]\n")


def test_a_killed_run_reads_crashed_in_every_command(command: Callable, sweep: SweepPaths, mortal: Callable) -> None:
    with mortal(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)) as owner:
        words = Path(f"/proc/{owner.pid}/stat").read_text().rpartition(")")[2].split()
        identity = msgspec.structs.replace(ProcessIdentity.current(), pid=owner.pid, start_ticks=int(words[19]))
        set_running(sweep, identity)
        assert "1 running" in command("watch", "grid", "--once").out
        assert ",running," in command("table", "grid", "--format", "csv").out
        os.kill(owner.pid, signal.SIGKILL)
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # dead, but still a zombie
        for words in (("watch", "grid", "--once"), ("watch", "grid"), ("table", "grid", "--format", "csv")):
            done = command(*words)
            assert "crashed" in done.out
            assert "running" not in done.out
            assert done.status == (0 if words[0] == "table" else 1)


def test_ctrl_c_leaves_with_130(sweep: SweepPaths, mortal: Callable) -> None:
    set_running(sweep, ProcessIdentity.current())
    with mortal(
        subprocess.Popen(
            process_words("watch", "grid"),
            env=process_environment(PYTHONUNBUFFERED="1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if "started" in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 130
        assert process.stderr.read() == ""
