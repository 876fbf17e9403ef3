"""Heartbeat of a run: it is written while the run is active, has its progress, and ends with it."""

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from runmanager import RunManager
from runmanager.records.run.heartbeat import read_beat
from runmanager.tracking.device import devices
from runmanager.tracking.lifecycle.outcome import outcome_of
from runmanager.tracking.monitoring.heartbeat_writer import Heartbeat

from ...processes import wait_until


@pytest.fixture
def beating(tmp_path: Path) -> Iterator[Heartbeat]:
    heartbeat = Heartbeat(tmp_path / "run" / "heartbeat", seconds=0.01)
    yield heartbeat
    heartbeat.stop()


@pytest.fixture(autouse=True)
def no_other_heartbeats() -> None:
    """Wait for the heartbeats of runs that other tests dropped, which end when the runs are collected."""
    gc.collect()
    wait_until(lambda: not threads())


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "runmanager-heartbeat"]


def test_the_first_beat_is_immediate_and_more_follow(beating: Heartbeat, tmp_path: Path) -> None:
    path = tmp_path / "run" / "heartbeat"
    path.parent.mkdir()
    beating.progress = 3
    beating.start()
    first = read_beat(path)
    assert first is not None and (first.counter, first.progress) == (1, 3)
    beating.progress += 4
    wait_until(lambda: (beat := read_beat(path)) is not None and beat.progress == 7 and beat.counter > 1)
    beating.stop()
    assert not path.exists()
    assert threads() == []


def test_the_heartbeat_thread_may_stop_itself(tmp_path: Path) -> None:
    # The garbage collector runs in any thread, and stops the heartbeat of a dropped run from there.
    results: list[object] = []
    heartbeat = Heartbeat(tmp_path / "heartbeat", seconds=0.01, each_beat=lambda: results.append(heartbeat.stop()))
    heartbeat.start()
    wait_until(lambda: results and threads() == [])
    assert results == [None]
    assert not (tmp_path / "heartbeat").exists()


def test_each_beat_calls_the_callback_in_its_thread(tmp_path: Path) -> None:
    callers: list[str] = []
    heartbeat = Heartbeat(
        tmp_path / "heartbeat", seconds=0.01, each_beat=lambda: callers.append(threading.current_thread().name)
    )
    heartbeat.start()
    wait_until(lambda: len(callers) >= 3)
    heartbeat.stop()
    assert set(callers) == {"runmanager-heartbeat"}


def test_the_thread_ends_when_its_folder_is_gone(beating: Heartbeat, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    beating.start()
    assert len(threads()) == 1
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    wait_until(lambda: threads() == [])


def test_without_a_folder_no_thread_starts(beating: Heartbeat, tmp_path: Path) -> None:
    beating.start()
    Heartbeat().start().stop()
    assert threads() == []
    assert list(tmp_path.iterdir()) == []


def test_progress_increases_with_every_batch_and_epoch(tmp_path: Path) -> None:
    network = torch.nn.Linear(2, 2)
    batches = [(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))] * 3
    manager = RunManager(tmp_path / "sweep", console=False)
    counts = []
    with manager.run({"lr": 0.1}, network, batches) as run:
        heartbeat = run._heartbeat
        path = run.paths.heartbeat
        assert read_beat(path) is not None
        for epoch in run.epochs(2):
            for images, labels in epoch.batches(batches):
                counts.append(heartbeat.progress)
                epoch.track(torch.tensor(1.0), network(images), labels)
            for _ in epoch.eval_batches(batches):
                counts.append(heartbeat.progress)
    assert counts == sorted(set(counts)) and len(counts) == 12
    assert heartbeat.progress > counts[-1]
    assert not path.exists()
    assert threads() == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError("no memory left"), "out_of_memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "out_of_memory"),
        (RuntimeError("[enforce fail at x.cpp:1] . DefaultCPUAllocator: can't allocate memory: …"), "out_of_memory"),
        (RuntimeError("MPS backend out of memory"), "out_of_memory"),
        *(
            (RuntimeError(text), "out_of_memory")
            for text in (
                "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
                "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
                "GET was unable to find an engine to execute this computation",
                "cuFFT error: CUFFT_ALLOC_FAILED",
                "HIP error: out of memory",
                "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
            )
        ),
        (OSError(12, "Cannot allocate memory"), "out_of_memory"),
        (OSError(28, "No space left on device"), "exception"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "exception"),
    ],
)
def test_out_of_memory_names_batch_size_and_peak_memory(error: Exception, reason: str) -> None:
    outcome = outcome_of(error, batch_size=512, memory_bytes=3 * 2**30 // 2)
    assert outcome.reason == reason
    facts = " (batch_size=512, 1.50 GiB in use at most)"
    assert outcome.message.endswith(facts) is (reason == "out_of_memory")


ASSERT = RuntimeError("CUDA error: device-side assert triggered")


@pytest.mark.parametrize("error", [ASSERT, RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED in cublasCreate")])
def test_a_failed_check_on_the_device_is_explained_and_not_taken_for_lack_of_memory(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = torch.device("cuda:1")  # the current one is the first, where all is well

    def synchronize(device: torch.device) -> None:
        assert device == second
        raise ASSERT

    monkeypatch.setattr(devices, "devices_in_use", lambda: [second])
    monkeypatch.setattr(torch.accelerator, "synchronize", synchronize)
    outcome = outcome_of(error)
    assert outcome.reason == "exception" and outcome.message.startswith(
        f"RuntimeError: {error}; a check within a kernel"
    )
    assert "a label that is not below the number of classes" in outcome.message


def test_a_run_out_of_memory_has_the_reason_in_its_record(tmp_path: Path) -> None:
    manager = RunManager(tmp_path / "sweep", console=False)
    with pytest.raises(MemoryError), manager.run({"batch_size": 7}, torch.nn.Linear(2, 2), []) as run:
        raise MemoryError
    assert run.record.reason == "out_of_memory"
    assert run.record.message.startswith("MemoryError (batch_size=7, ")
    assert run.record.message.endswith(" GiB in use at most)")


def test_beside_another_heartbeat_only_progress_is_written(tmp_path: Path) -> None:
    num_beats = 0

    def count() -> None:
        nonlocal num_beats
        num_beats += 1

    path = tmp_path / "heartbeat.program"
    beating = Heartbeat(path, seconds=0.01, each_beat=count, shows_progress_only=True).start()
    wait_until(lambda: num_beats > 3)
    first = read_beat(path)
    assert first is not None and first.counter == 1
    beating.progress += 5
    wait_until(lambda: (beat := read_beat(path)) is not None and beat.progress == 5)
    beating.stop()
