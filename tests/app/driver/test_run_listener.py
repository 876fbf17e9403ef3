"""Tests of stopped sweeps: a killed driver, a killed run, Ctrl-C, and how the next command resumes."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runmanager.launching.local.jobs import Job, ProcessExit, outcome_of_exit
from runmanager.launching.local.worker import Raised
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Outcome, Reason, Status

OWN = ("model=custom", "model._target_=own.Net", "epochs=4")


@pytest.fixture
def gate(own_module: Path) -> Path:
    """While it exists, runs wait in their second epoch (batches of 32 of 64 samples: two steps an epoch)."""
    gate = own_module.parent / "gate"
    gate.touch()
    return gate


@pytest.fixture
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, tiny: tuple[str, ...], bad_grid: Callable[..., Any]
) -> Callable[[str], Any]:
    """Run the same sweep undisturbed in another folder."""

    def run(*words: str) -> Any:
        ended = bad_grid(tmp_path_factory.mktemp("undisturbed"), "-m", *tiny, *OWN, *words)
        assert ended.done.status == 0, ended.done.err
        return ended.sweep

    return run


def running(sweep: Any) -> Any:
    """The record of the run that waits at the gate."""
    (record,) = (each for each in sweep.records if each.status == "running")
    return record


def test_a_killed_driver_ends_its_run_and_the_next_one_resumes_it(
    start: Callable[..., Any],
    command: Callable[..., Any],
    sweep: Callable[[str], Any],
    wait: Callable[..., Any],
    gate: Path,
    undisturbed: Callable[..., Any],
    tiny: tuple[str, ...],
) -> None:
    words = ("-m", *tiny, *OWN, "lr=0.1,0.2", "name=killed")
    driver = start(*words)
    waiting = gate.parent / "waiting"
    wait(waiting.exists, "the run's second epoch")
    record = running(sweep("killed"))
    assert sweep("killed").num_epochs(record) == 1
    driver.kill()
    driver.wait(60)
    owner = record.owner
    wait(lambda: owner.is_alive() is False, "the run's death after its driver's")
    assert sweep("killed").states() == {"lr=0.1": ("crashed", "vanished")}
    gate.unlink()
    done = command(*words)
    assert done.status == 0, done.err
    assert "2 runs to do, 1 of them resumed, in outputs/killed" in done.out
    assert sweep("killed").states() == {"lr=0.1": ("finished", None), "lr=0.2": ("finished", None)}
    resumed = sweep("killed").record(lr=0.1)
    assert resumed.attempt == 2
    assert not sweep("killed").paths.run(resumed.name).attempts.exists()
    numbers = sweep("killed").numbers()
    assert [each["epoch"] for each in numbers[resumed.name]] == [1, 2, 3, 4]
    assert numbers == undisturbed("lr=0.1,0.2", "name=killed").numbers()


def test_a_killed_run_leaves_the_others_running(
    start: Callable[..., Any],
    finish: Callable[..., Any],
    command: Callable[..., Any],
    sweep: Callable[[str], Any],
    wait: Callable[..., Any],
    gate: Path,
    tiny: tuple[str, ...],
) -> None:
    words = ("-m", *tiny, *OWN, "lr=0.1,0.2,0.3", "name=killed")
    driver = start(*words)
    wait((gate.parent / "waiting").exists, "the run's second epoch")
    os.kill(running(sweep("killed")).owner.pid, signal.SIGKILL)
    wait(lambda: ("killed", "signal") in sweep("killed").states().values(), "the killed run's end in its record")
    gate.unlink()
    done = finish(driver)
    assert done.status == 1
    finished = ("finished", None)
    assert sweep("killed").states() == {"lr=0.1": ("killed", "signal"), "lr=0.2": finished, "lr=0.3": finished}
    assert "SIGKILL" in sweep("killed").record(lr=0.1).message
    assert "killed (signal)" in done.out
    states = {row["lr"]: (row["status"], row["epochs"]) for row in sweep("killed").rows()}
    assert states == {"0.1": ("killed", "1"), "0.2": ("finished", "4"), "0.3": ("finished", "4")}
    kept = sweep("killed").paths.run(sweep("killed").record(lr=0.2).name).record
    before = kept.read_bytes()
    assert command(*words).status == 0
    assert sweep("killed").record(lr=0.1).status == "finished"
    assert kept.read_bytes() == before


@pytest.mark.parametrize(
    ("fate", "sweeper"), [("deleted", "grid"), ("moved", "grid"), ("replaced", "grid"), ("deleted", "basic")]
)
def test_a_sweep_without_its_folder_prints_no_results(
    fate: str,
    sweeper: str,
    start: Callable[..., Any],
    finish: Callable[..., Any],
    sweep: Callable[[str], Any],
    wait: Callable[..., Any],
    gate: Path,
    tiny: tuple[str, ...],
) -> None:
    there = "name=gone" if sweeper == "grid" else "hydra.sweep.dir=outputs/gone"
    driver = start("-m", *tiny, *OWN, "lr=0.1,0.2", there, f"hydra/sweeper={sweeper}")
    wait((gate.parent / "waiting").exists, "the run's second epoch")
    root = sweep("gone").paths.root
    kept = root.with_name("kept")
    root.rename(kept)
    if fate != "moved":
        shutil.rmtree(kept)
    if fate == "replaced":
        root.mkdir()
        (root / "another's").touch()
    if sweeper != "grid":
        gate.unlink()  # the folder is not checked before the runs have ended
    done = finish(driver)
    assert done.status == 1
    fault = done.faults[-1]
    assert fault.startswith(f"error: The folder {root.relative_to(gate.parent)} must stay in its place")
    assert "Results:" not in done.out
    if sweeper == "grid":  # a run of another sweeper may create the folder again
        assert len(done.faults) == 1
        left = {path.name for path in root.parent.iterdir()}
        assert left == {"deleted": set(), "moved": {"kept"}, "replaced": {"gone"}}[fate]
        assert fate != "replaced" or [each.name for each in root.iterdir()] == ["another's"]


def test_a_run_without_its_folder_has_failed(
    start: Callable[..., Any],
    finish: Callable[..., Any],
    sweep: Callable[[str], Any],
    wait: Callable[..., Any],
    gate: Path,
    tiny: tuple[str, ...],
) -> None:
    driver = start("-m", *tiny, *OWN, "lr=0.1,0.2", "name=gone")
    wait((gate.parent / "waiting").exists, "the run's second epoch")
    folder = sweep("gone").paths.run(running(sweep("gone")).name).root
    shutil.rmtree(folder)
    gate.unlink()
    done = finish(driver)
    assert (done.status, done.err) == (1, "")
    assert sweep("gone").states() == {"lr=0.1": ("failed", "exception"), "lr=0.2": ("finished", None)}
    message = sweep("gone").record(lr=0.1).message
    assert message == f"RecordError: The folder {folder} must exist while its run is running, got none."


def test_ctrl_c_ends_the_run_after_its_epoch(
    start: Callable[..., Any],
    finish: Callable[..., Any],
    command: Callable[..., Any],
    sweep: Callable[[str], Any],
    wait: Callable[..., Any],
    gate: Path,
    tiny: tuple[str, ...],
) -> None:
    words = ("-m", "--order", "grid", *tiny, *OWN, "lr=0.1,0.2", "name=stopped")
    driver = start(*words)
    wait((gate.parent / "waiting").exists, "the run's second epoch")
    driver.send_signal(signal.SIGINT)
    for line in driver.stdout:
        if line.startswith("Stopping after this epoch"):
            break
    gate.unlink()
    done = finish(driver)
    assert done.status == 130
    assert sweep("stopped").states() == {"lr=0.1": ("killed", "interrupted")}
    assert sweep("stopped").num_epochs(sweep("stopped").records[0]) == 2
    assert [(row["lr"], row["status"]) for row in sweep("stopped").rows()] == [("0.1", "killed"), ("0.2", "pending")]
    assert f"Interrupted. To resume:\n  runmanager sweep {' '.join(words[1:])}" in done.out
    assert "Traceback" not in done.out + done.err
    assert command(*words).status == 0
    assert set(sweep("stopped").states().values()) == {("finished", None)}
    for epochs in sweep("stopped").numbers().values():
        assert [each["epoch"] for each in epochs] == [1, 2, 3, 4]


def test_a_second_ctrl_c_stops_at_once(
    start: Callable[..., Any],
    finish: Callable[..., Any],
    sweep: Callable[[str], Any],
    wait: Callable[..., Any],
    gate: Path,
    tiny: tuple[str, ...],
) -> None:
    driver = start("-m", *tiny, *OWN, "lr=0.1,0.2", "name=stopped")
    wait((gate.parent / "waiting").exists, "the run's second epoch")
    owner: ProcessIdentity = running(sweep("stopped")).owner
    for said in ("Stopping after this epoch", "Stopping at once."):
        driver.send_signal(signal.SIGINT)
        for line in driver.stdout:
            if line.startswith(said):
                break
    done = finish(driver)  # the gate is still closed
    assert done.status == 130
    assert owner.is_alive() is False
    (record,) = sweep("stopped").records
    assert (record.status, record.reason, record.message) == ("killed", "interrupted", "stopped at once")


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (ProcessExit(Job(0, print), -9, None), Outcome(Status.KILLED, Reason.SIGNAL, "SIGKILL")),
        (
            ProcessExit(Job(0, print), -9, None, was_stopped=True),
            Outcome(Status.KILLED, Reason.INTERRUPTED, "stopped at once"),
        ),
        (
            ProcessExit(Job(0, print), 255, None),
            Outcome(Status.FAILED, Reason.EXIT, "the process ended with exit code 255"),
        ),
        (ProcessExit(Job(0, print), -250, None), Outcome(Status.KILLED, Reason.SIGNAL, "signal 250")),
        (ProcessExit(Job(0, print), 0, Raised("E: one\ntwo", "")), Outcome(Status.FAILED, Reason.EXCEPTION, "E: one")),
    ],
)
def test_an_exit_is_mapped_to_an_outcome(ending: ProcessExit, outcome: Outcome) -> None:
    assert outcome_of_exit(ending) == outcome
