"""Batches that a loader's worker cannot send, for lack of shared memory for example: told instead of waited for.

multiprocessing prints such an error and drops the batch; PyTorch's loader then waits for it for ever.
"""

import errno
import os
from multiprocessing.queues import Queue
from typing import Any

from torch.utils.data import get_worker_info

from runmanager.errors import NoRoomError
from runmanager.tracking.torch_internals import LoaderError

__all__ = ["tell_lost_batches"]

_print_error: Any = Queue._on_queue_feeder_error  # type: ignore[attr-defined]  # in CPython 3.11 to 3.13


def tell_lost_batches() -> None:
    """Let loaders raise what kept a worker from sending a batch, with workers forked from this process from here on."""
    Queue._on_queue_feeder_error = _tell  # type: ignore[attr-defined]


def _tell(queue: Any, error: Exception, item: Any) -> None:
    """Called by a queue's thread within the `except` block of an error that drops `item`."""
    _print_error(error, item)
    worker = get_worker_info()
    if worker is None:
        return  # not a loader's worker: the program may do well without the item
    index, batch = item if isinstance(item, tuple) and len(item) == 2 else (None, None)
    if index is None or isinstance(batch, LoaderError):
        os._exit(1)  # which the loader notices
    kind, rule = _explained(error)
    where = f"in DataLoader worker process {worker.id}: {rule}"
    told: Any = LoaderError((kind, error, error.__traceback__), where=where)
    if isinstance(batch, tuple) and len(batch) == 3 and batch[1] == worker.id:  # of torchdata's StatefulDataLoader
        told = (told, *batch[1:])
    queue.put((index, told))


def _explained(error: Exception) -> tuple[type[Exception], str]:
    """Return the type of error for the loader to raise, and what must hold."""
    if "shared memory" in str(error) and os.strerror(errno.ENOSPC) in str(error):
        rule = "shared memory (/dev/shm) must have room for its batch, got none; make room there, or use num_workers=0"
        return NoRoomError, rule
    return type(error), f"it must be able to send its batch, got {error}"
