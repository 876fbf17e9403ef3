"""Batches that a loader's worker cannot send end the run instead of letting it wait for ever."""

from collections.abc import Callable
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from runmanager import RunManager
from runmanager.errors import NoRoomError
from runmanager.records.storage.reader import StoredRun

NO_ROOM = "unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)"


class Unsendable:
    """Raises when it is pickled, like a tensor that finds no room in shared memory."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


@pytest.fixture(autouse=True)
def unchanged_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "_on_queue_feeder_error", vars(Queue)["_on_queue_feeder_error"])


@pytest.mark.filterwarnings("ignore:'set_vital'")  # of torchdata
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RuntimeError(NO_ROOM),
            "NoRoomError: Caught NoRoomError in DataLoader worker process 0: shared memory (/dev/shm) must have room "
            "for its batch, got none; make room there, or use num_workers=0.",
        ),
        (
            RuntimeError("unable to open shared memory object </torch_1> in read-write mode: Too many open files (24)"),
            "RuntimeError: Caught RuntimeError in DataLoader worker process 0: it must be able to send its batch, got "
            "unable to open shared memory object </torch_1> in read-write mode: Too many open files (24).",
        ),
    ],
)
def test_a_batch_that_cannot_be_sent_fails_the_run(
    tmp_path: Path,
    network: nn.Module,
    only_run: Callable[[], StoredRun],
    capfd: pytest.CaptureFixture[str],
    kind: Any,
    error: Exception,
    told: str,
) -> None:
    def collate(batch: list[int]) -> Any:
        return torch.tensor(batch) if batch[0] < 2 else Unsendable(error)

    loader = kind(range(4), batch_size=2, num_workers=1, collate_fn=collate, timeout=30)
    with pytest.raises((RuntimeError, NoRoomError)), RunManager(tmp_path / "sweep", sinks=[]).run({}) as run:
        run.begin(network, loader)
        for epoch in run.epochs(1):
            for _ in epoch.batches(loader):
                pass
    stored = only_run()
    assert (stored.status, stored.record.message) == ("failed", told)
    assert str(error) in capfd.readouterr().err, "the worker's own traceback is printed too"
