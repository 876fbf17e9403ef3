"""Tests of errors outside the runs: before runs begin, nothing is run; afterwards the sweep is still finished."""

import os
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from runmanager.errors import NoRoomError
from runmanager.launching.hydra_launcher import LocalLauncher
from runmanager.records.storage import run_end
from runmanager.results import result_files as write


@pytest.fixture
def broken_launcher(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, BaseException], None]:
    """Make the launcher fail after the given number of cells."""
    run = LocalLauncher.run

    def set_up(cells: int, error: BaseException) -> None:
        def broken(self: LocalLauncher, jobs: Sequence[Any], *others: Any) -> Any:
            run(self, jobs[:cells], *others)
            raise error

        monkeypatch.setattr(LocalLauncher, "run", broken)

    return set_up


def test_a_failing_launcher_leaves_finished_runs_and_tables(
    broken_launcher: Callable[..., None],
    command: Callable[..., Any],
    sweep: Callable[[str], Any],
    tiny: tuple[str, ...],
) -> None:
    broken_launcher(1, RuntimeError("the cluster is gone\nin two lines"))
    done = command("-m", *tiny, "lr=0.1,0.2", "name=broken")
    assert done.status == 1
    assert done.faults == ["error: The launcher failed: RuntimeError: the cluster is gone (--debug shows where)"]
    assert [(row["lr"], row["status"]) for row in sweep("broken").rows()] == [("0.1", "finished"), ("0.2", "pending")]
    assert sweep("broken").paths.report.exists()
    assert "2 runs: 1 finished, 1 pending." in done.out


def test_a_launcher_that_starts_no_run_is_a_usage_error(
    broken_launcher: Callable[..., None],
    command: Callable[..., Any],
    sweep: Callable[[str], Any],
    tiny: tuple[str, ...],
) -> None:
    broken_launcher(0, RuntimeError("no cluster"))
    done = command("-m", *tiny, "lr=0.1,0.2", "name=none", "--debug")
    assert done.status == 2
    assert done.faults[-1].startswith("error: RuntimeError: no cluster")
    assert "Traceback" in done.err and not sweep("none").records


@pytest.mark.parametrize("times", [1, 99])
def test_unwritable_tables_do_not_end_runs(
    times: int,
    command: Callable[..., Any],
    sweep: Callable[[str], Any],
    tiny: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really, failures = write.write_tables, iter(range(times))

    def full(*arguments: Any, **options: Any) -> None:
        if next(failures, None) is not None:
            raise OSError(28, "No space left on device")
        really(*arguments, **options)

    monkeypatch.setattr(write, "write_tables", full)
    done = command("-m", *tiny, "lr=0.1,0.2", "name=full")
    assert sweep("full").states() == {"lr=0.1": ("finished", None), "lr=0.2": ("finished", None)}
    assert "The tables could not be written (OSError: [Errno 28] No space left on device); tried again" in done.out
    assert "2 runs: 2 finished." in done.out
    if times == 1:
        assert (done.status, done.err) == (0, "") and len(sweep("full").rows()) == 2
    else:
        assert "Results: " not in done.out  # they do not exist
        fault = "error: The tables could not be written: OSError: [Errno 28] No space left on device"
        assert (done.status, done.faults) == (1, [f"{fault} (--debug shows where)"])


def test_an_end_that_a_full_disk_prevents_is_written_later(
    command: Callable[..., Any],
    sweep: Callable[[str], Any],
    own_module: Path,
    tiny: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really, failures = run_end.replace_file, iter(range(1))

    def full(path: Path, content: Any) -> None:
        if next(failures, None) is not None:
            raise NoRoomError(f"{path} must find room.")
        really(path, content)

    monkeypatch.setattr(run_end, "replace_file", full)
    own = ("model=custom", "model._target_=own.Net", "+model.way=vanishes,fine")
    done = command("-m", *tiny, *own, "name=full")
    assert (done.status, done.err) == (1, "")
    assert done.out.count("run.json must find room. Tried again at the end.") == 1
    assert sorted(sweep("full").states().values()) == [("failed", "exit"), ("finished", None)]


def test_a_checkpoint_on_a_full_disk_is_named(
    environment: Callable[..., dict[str, str]], sweep: Callable[[str], Any], tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    words = (*tiny, "model=mlp", "model.hidden=[1024]", "epochs=3", "checkpoint.every=2", "name=full")
    done = limited(tmp_path, environment(), "-f 1000", *words)
    assert (done.returncode, done.stderr) == (1, "")
    (record,) = sweep("full").records
    paths = sweep("full").paths.run(record.name)
    assert (record.status, record.reason) == ("failed", "exception")
    assert record.message == (
        f"NoRoomError: {paths.checkpoint} must fit the size that a file may have, got File too large "
        "(1,024,000 bytes at most, ulimit -f); raise that limit."
    )
    assert "inline_container" not in done.stdout and record.message in done.stdout
    assert sweep("full").num_epochs(record) == 1  # the epoch without a checkpoint
    assert [row["status"] for row in sweep("full").rows()] == ["failed"]
    assert not [each.name for each in paths.root.iterdir() if each.name.startswith(".")]


def test_a_lack_of_address_space_is_named(
    environment: Callable[..., dict[str, str]], tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    done = limited(tmp_path, environment(), "-v 400000", *tiny, "name=small")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        "error: The process that runs are forked from must live, got its end while it started; address space is "
        "limited to 0.4 GiB (ulimit -v): raise that limit."
    )
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.parametrize("number", [12, 14])
def test_too_few_open_files_are_named_in_one_line(
    environment: Callable[..., dict[str, str]], tmp_path: Path, tiny: tuple[str, ...], number: int
) -> None:
    done = limited(tmp_path, environment(), f"-n {number}", *tiny, "name=small")
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (
        2,
        "",
        [f"error: The limit on open files (ulimit -n) must be at least 16, got {number}; raise that limit."],
    )
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.parametrize("number", [1, 3])
def test_too_few_processes_are_named_in_one_line(
    environment: Callable[..., dict[str, str]], tmp_path: Path, tiny: tuple[str, ...], number: int
) -> None:
    wrapper: list[str] = []
    if os.geteuid() == 0:  # the kernel exempts root, so another user, who must read what Python does
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv, as root")
        ids = ["--reuid=61235", "--regid=61235", "--clear-groups"]
        wrapper = ["setpriv", *ids, "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    done = limited(tmp_path, environment(), f"-u {number}", *tiny, "name=small", wrapper=wrapper)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith("error: The process that runs are forked from must ")
    assert line.endswith(f"; processes and threads are limited to {number} (ulimit -u): raise that limit.")
    assert not list(tmp_path.rglob("run.json"))


def limited(
    folder: Path, environment: dict[str, str], limit: str, *words: str, wrapper: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the application under a limit of the shell's `ulimit`."""
    line = f"ulimit {limit}; exec {shlex.join([sys.executable, '-m', 'runmanager', *words])}"
    return subprocess.run(
        [*wrapper, "bash", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_a_too_short_heartbeat_timeout_is_rejected(
    command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    done = command(*tiny, "name=hasty", "hydra.sweeper.heartbeat_timeout=1")
    assert (done.status, done.out) == (2, "")
    assert done.faults == [
        "error: `hydra.sweeper.heartbeat_timeout` must be a number of seconds of at least 10, got 1; "
        "a run beats every 2 s."
    ]
    assert not sweep("hasty").paths.root.exists()


def test_a_value_of_another_type_is_rejected_with_every_allowed_type(command: Callable[..., Any]) -> None:
    done = command("micro_batch=1.5", "optimizer.fused=maybe", "compile=maybe", "eval_batch_size=x")
    assert (done.status, done.out) == (2, "")
    assert done.faults == [
        "error: `micro_batch` must be a whole number, a word or null, got '1.5'.",
        "error: `optimizer.fused` must be true, false or null, got 'maybe'.",
        "error: `compile` must be true or false, got 'maybe'.",
        "error: `eval_batch_size` must be a whole number or null, got 'x'.",
    ]


@pytest.mark.parametrize("name", [[], ["name=x"]], ids=["unnamed", "named"])
def test_an_unwritable_folder_is_reported_before_anything_runs(
    command: Callable[..., Any], tmp_path: Path, tiny: tuple[str, ...], name: list[str]
) -> None:
    (tmp_path / "taken").write_text("a file")
    done = command(*tiny, *name, "output_root=taken")
    assert done.status == 2
    (fault,) = done.faults
    assert fault.startswith("error: `output_root` must be a folder that can be written, got 'taken': ")
    assert fault.endswith("; make room there, or give another one with output_root=….")


def test_a_file_size_limit_is_not_blamed_on_the_folder(command: Callable[..., Any], tiny: tuple[str, ...]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        done = command(*tiny, "name=x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.status == 2
    (fault,) = done.faults
    assert fault.endswith(" got File too large (100 bytes at most, ulimit -f); raise that limit.")
