"""The workers of loaders: how they were started, and the batches that one cannot send.

A batch cannot be sent for lack of shared memory, for example. multiprocessing prints such an error and drops the batch;
PyTorch's loader then waits for it for ever. Here it is told instead. Processes that get a queue import this module, so
that it imports torch late.
"""

import errno
import multiprocessing
import os
import weakref
from collections.abc import Callable
from functools import cache, partial
from multiprocessing.queues import Queue
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from runmanager.errors import NoRoomError

if TYPE_CHECKING:
    from runmanager.tracking.torch_internals import LoaderWorker


def worker_start_methods() -> set[str]:
    """Return the start methods of the worker processes that this one has now, whatever has started them.

    Seen of the processes themselves: a loader may be wrapped, and have a context of its own.
    """
    started = (getattr(each, "_popen", None) for each in multiprocessing.active_children() if each.daemon)
    return {method for each in started if isinstance(method := getattr(each, "method", None), str)}


@cache
def tell_lost_batches() -> None:
    """Let loaders raise what kept a worker from sending a batch, with workers started by this process from here on.

    Its own queues are unchanged, and so is every other queue of the workers.
    """
    os.register_at_fork(after_in_child=_install)
    ForkingPickler.register(Queue, _sent)  # to a process that is not forked, as by default from Python 3.14 on


def _sent(queue: Any) -> tuple[Any, ...]:
    return _received, (queue.__getstate__(),)


def _received(state: Any) -> Any:
    _install()
    queue: Any = Queue.__new__(Queue)
    queue.__setstate__(state)
    return queue


@cache
def _install() -> None:
    earlier = vars(Queue)["_on_queue_feeder_error"]  # in CPython 3.11 to 3.14; a program may have replaced it
    Queue._on_queue_feeder_error = _Handler(earlier)  # type: ignore[attr-defined]


class _Handler:
    """In the place of a method of `Queue`: on the queue of a loader's worker it tells, else it is the earlier one."""

    def __init__(self, earlier: Any) -> None:
        self._earlier = earlier

    def __get__(self, queue: Any, kind: type) -> Any:
        bind = getattr(self._earlier, "__get__", None)
        earlier = self._earlier if bind is None else bind(queue, kind)
        # Weak: the queue's thread holds what is returned, and ends when the queue is collected.
        return earlier if queue is None else partial(_handle, weakref.ref(queue), earlier)


def _handle(queue: Callable[[], Any], earlier: Any, error: Exception, item: Any) -> None:
    """Called by a queue's thread within the `except` block of an error that drops `item`."""
    from runmanager.tracking.torch_internals import loader_worker

    worker = loader_worker()
    if worker is None or worker.results is not queue():
        earlier(error, item)
        return
    try:
        earlier(error, item)
        if not worker.is_done():  # the loader still waits for the item
            worker.results.put(_told(worker, error, item))
    except BaseException:
        if not worker.is_done():
            os._exit(1)  # which the loader notices


def _told(worker: "LoaderWorker", error: Exception, item: Any) -> Any:
    """Return what to send in place of `item`. Raises `ValueError` if that is an error already."""
    from runmanager.tracking.torch_internals import LoaderError

    kind, rule = _explained(error)
    where = f"in DataLoader worker process {worker.number}: {rule}"
    return worker.failed(item, LoaderError((kind, error, error.__traceback__), where=where))


def _explained(error: Exception) -> tuple[type[Exception], str]:
    """Return the type of error for the loader to raise, and what must hold."""
    if "shared memory" in str(error) and os.strerror(errno.ENOSPC) in str(error):
        rule = "shared memory (/dev/shm) must have room for its batch, got none; make room there, or use num_workers=0"
        return NoRoomError, rule
    return type(error), f"it must be able to send its batch, got {error}"
