"""Calls out of order, from several threads, in forks and after the end: clear errors, and a correct record."""

import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from runmanager import RunManager
from runmanager.errors import RecordError, UsageError
from runmanager.records.storage.reader import StoredRun
from runmanager.tracking.run import ActiveRun


@pytest.fixture
def run(tmp_path: Path, network: nn.Module, loader: Any) -> ActiveRun:
    begun = RunManager(tmp_path / "sweep", sinks=[]).run({"lr": 1})
    assert isinstance(begun, ActiveRun)
    begun.begin(network, loader)
    return begun


def tracked_epoch(run: ActiveRun, samples: int = 4) -> None:
    epoch = run.begin_epoch()
    epoch.track(torch.tensor(1.0), samples=samples)
    run.end_epoch(epoch)


def test_epochs_begin_one_after_the_other_and_end_once(
    run: ActiveRun, only_run: Callable[[], StoredRun], tmp_path: Path, network: nn.Module, loader: Any
) -> None:
    first = run.begin_epoch()
    for call in (run.begin_epoch, lambda: next(iter(run.epochs(3)))):
        with pytest.raises(UsageError, match=r"got epoch 1 still open; call end_epoch\(epoch\) first"):
            call()
    first.track(torch.tensor(1.0), samples=4)
    run.end_epoch(first)
    for misuse in (
        lambda: first.track(torch.tensor(1.0), samples=4),
        lambda: first.track_predictions(torch.zeros(1, 2), torch.zeros(1)),
        lambda: first.track_eval(torch.tensor(1.0), samples=4),
        lambda: next(first.batches(loader)),
        lambda: next(first.eval_batches(loader)),
    ):
        with pytest.raises(UsageError, match="must come before its epoch's end, got epoch 1, which has ended"):
            misuse()
    other = RunManager(tmp_path / "other", sinks=[]).run({})
    other.begin(network, loader)
    for another in (first, other.begin_epoch()):
        with pytest.raises(UsageError, match="must get the run's open epoch, got epoch 1, which is not"):
            run.end_epoch(another)
    with pytest.raises(UsageError, match="must get a number above 1, got 1"):
        run.begin_epoch(1)
    with pytest.raises(UsageError, match="must be called once in a run"):
        run.begin(network, loader)
    tracked_epoch(run)
    record = run.end()
    assert run.end() == run.end(ValueError("too late")) == record
    for late in (run.begin_epoch, lambda: run.note("x"), lambda: next(iter(run.epochs(9)))):
        with pytest.raises(UsageError, match="must be written while it runs, got a call after its end"):
            late()
    stored = only_run()
    assert stored.record == record and record.status == "finished" and record.epochs_planned == 3
    assert [(epoch.epoch, epoch.samples) for epoch in stored.epochs] == [(1, 4), (2, 4)]


@pytest.mark.parametrize("number", [True, 2.0, -1, "2", 2**63, torch.tensor(2)])
def test_numbers_of_epochs_are_whole_ones(
    run: ActiveRun, only_run: Callable[[], StoredRun], loader: Any, number: Any
) -> None:
    for call in (lambda: next(run.epochs(number)), lambda: run.plan_epochs(number), lambda: run.begin_epoch(number)):
        with pytest.raises(UsageError, match=r"must be a whole number from 0 to 2\*\*63 - 1, got"):
            call()
    assert only_run().record.epochs_planned is None
    for epoch in run.epochs(np.int64(1)):  # type: ignore[arg-type]
        epoch.track(1.0, samples=np.int32(4))  # type: ignore[arg-type]
    run.end_epoch(run.begin_epoch(np.int64(3)))  # type: ignore[arg-type]
    run.end()
    assert only_run().record.epochs_planned == 1
    assert [(epoch.epoch, epoch.samples) for epoch in only_run().epochs] == [(1, 4), (3, 0)]


def test_an_epoch_that_is_never_ended_fails_the_run(
    run: ActiveRun, only_run: Callable[[], StoredRun], loader: Any
) -> None:
    tracked_epoch(run)
    epoch = run.begin_epoch()
    epoch.track(torch.tensor(1.0), samples=4)
    with pytest.raises(UsageError, match="Epoch 2 must be ended before its run"):
        run.end()
    stored = only_run()
    assert (stored.record.status, stored.record.reason) == ("failed", "exception")
    assert stored.record.message.startswith("UsageError: Epoch 2 must be ended before its run, got one that is still")
    assert len(stored.epochs) == 1 and stored.paths.error.exists()
    with pytest.raises(UsageError, match="after its end"):
        run.end_epoch(epoch)


@pytest.mark.parametrize("error", [None, ValueError("of the loop")])
def test_an_open_epoch_whose_batches_were_all_taken_is_recorded_at_the_end(
    run: ActiveRun, only_run: Callable[[], StoredRun], loader: Any, error: BaseException | None
) -> None:
    epoch = run.begin_epoch()
    for _, labels in epoch.batches(loader):
        epoch.track(torch.tensor(1.0), samples=len(labels))
    run.end(error)
    stored = only_run()
    assert stored.record.status == ("failed" if error else "finished")
    assert [each.samples for each in stored.epochs] == [50]


def test_an_epoch_may_be_ended_within_its_loop(run: ActiveRun, only_run: Callable[[], StoredRun]) -> None:
    with run:
        for epoch in run.epochs(2):
            epoch.track(torch.tensor(1.0), samples=4)
            assert run.end_epoch(epoch) == run.history[-1]
    assert [epoch.epoch for epoch in only_run().epochs] == [1, 2] and run.record.status == "finished"


def test_a_second_loop_may_follow_one_that_was_left(run: ActiveRun, only_run: Callable[[], StoredRun]) -> None:
    with run:
        for epoch in run.epochs(2):
            epoch.track(torch.tensor(1.0), samples=1)
            break
        held = run.epochs(2)
        next(held)
        held.close()
        for epoch in run.epochs(2):
            epoch.track(torch.tensor(1.0), samples=4)
    assert [(epoch.epoch, epoch.samples) for epoch in only_run().epochs] == [(1, 4), (2, 4)]


def test_a_run_may_end_within_its_loop(run: ActiveRun, only_run: Callable[[], StoredRun], loader: Any) -> None:
    with pytest.raises(UsageError, match="after its end"), run:
        for epoch in run.epochs(3):
            for _, labels in epoch.batches(loader):
                epoch.track(torch.tensor(1.0), samples=len(labels))
            run.end()
    stored = only_run()
    assert (stored.record.reason, len(stored.epochs)) == ("early_stopped", 1)


def in_thread(call: Callable[[], object]) -> BaseException | None:
    """Return the exception that a call raises in another thread."""
    raised: list[BaseException] = []

    def body() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    return raised[0] if raised else None


def test_an_epoch_belongs_to_one_thread(run: ActiveRun, only_run: Callable[[], StoredRun], loader: Any) -> None:
    with run:
        epoch = run.begin_epoch()
        for misuse in (
            lambda: epoch.track(torch.tensor(9.0), samples=9),
            lambda: next(epoch.batches(loader)),
            lambda: run.end_epoch(epoch),
        ):
            error = in_thread(misuse)
            assert isinstance(error, UsageError) and "by the thread that began epoch 1, got another one" in str(error)
        assert "still open" in str(in_thread(run.begin_epoch))
        epoch.track(torch.tensor(1.0), samples=4)
        run.end_epoch(epoch)
        assert in_thread(lambda: tracked_epoch(run)) is None, "the next epoch may belong to another thread"
    assert [(each.samples, each.loss) for each in only_run().epochs] == [(4, 1.0), (4, 1.0)]


def test_a_fork_cannot_write_to_its_parents_run(
    tmp_path: Path, run: ActiveRun, only_run: Callable[[], StoredRun]
) -> None:
    result = tmp_path / "result"
    before: dict[Path, bytes] = {}

    def in_fork(epoch: Any) -> None:
        refused = 0
        for call in (
            lambda: epoch.track(torch.tensor(9.0), samples=9),
            lambda: next(iter(epoch.batches([torch.zeros(4)]))),
            lambda: run.end_epoch(epoch),
            run.begin_epoch,
            lambda: run.note("of the fork"),
            lambda: next(iter(run.epochs(9))),
            run.end,
        ):
            try:
                call()
            except UsageError as error:
                refused += "got its fork" in str(error)
        result.write_text(str(refused))

    with run:
        for epoch in run.epochs(2):
            epoch.track(torch.tensor(1.0), samples=4)
            if epoch.number == 1:
                before = files(run)
                child = fork()
                if child == 0:
                    signal.alarm(60)
                    try:
                        in_fork(epoch)
                        with run:
                            raise SystemExit
                    except SystemExit:
                        del run, epoch
                    finally:
                        os._exit(0)
                os.waitpid(child, 0)
                assert result.read_text() == "7" and files(run) == before
    stored = only_run()
    assert stored.record.status == "finished" and [each.samples for each in stored.epochs] == [4, 4]


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn about forks in processes with threads
        return os.fork()


def files(run: ActiveRun) -> dict[Path, bytes]:
    """Return the run's files and contents, except the heartbeat's, which changes by itself."""
    found = [path for path in run.paths.root.rglob("*") if path.is_file()]
    return {path: b"" if path == run.paths.heartbeat else path.read_bytes() for path in found}


@pytest.mark.parametrize("after", [1, 2, 3])
@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_all_epochs_stay_if_their_file_goes_while_the_run_runs(
    run: ActiveRun, only_run: Callable[[], StoredRun], after: int, how: str
) -> None:
    for number in range(1, 4):
        tracked_epoch(run)
        if number == after:
            if how == "moved":
                run.paths.epochs.rename(run.paths.root / "moved")
            else:
                run.paths.epochs.unlink()
            if how == "replaced":
                run.paths.epochs.touch()
    run.end()
    stored = only_run()
    assert (stored.status, [epoch.epoch for epoch in stored.epochs]) == ("finished", [1, 2, 3])


def test_a_run_whose_folder_goes_between_epochs_is_told_so(run: ActiveRun) -> None:
    tracked_epoch(run)
    shutil.rmtree(run.paths.root)
    for call in (lambda: tracked_epoch(run), run.end):
        with pytest.raises(RecordError, match="must exist while its run is running, got none"):
            call()
    assert not run.paths.root.exists()
