"""Signal handlers for a while: calling a function, and keeping a worker's death from interrupting a clean-up."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

__all__ = ["handle_signals", "sigchld_ignored"]


@contextmanager
def handle_signals(numbers: Sequence[int], act: Callable[[], None]) -> Iterator[None]:
    """Let each of these signals call `act`. In another thread than the main one they are not ours: nothing changes.

    Ctrl-C stays ignored where this process was started to ignore it, as by a shell's `&` in a script: it is meant for
    what runs in the foreground.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    heard = [number for number in numbers if not (is_deaf and number == signal.SIGINT)]
    earlier = {number: signal.signal(number, lambda number, frame: act()) for number in heard}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def sigchld_ignored() -> Iterator[None]:
    """Let no handler of SIGCHLD run meanwhile: torch's raises wherever the program stands when a worker has died."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCHLD"):
        yield
        return
    earlier = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        if earlier is not None:  # one that was not installed by Python cannot be put back by it
            signal.signal(signal.SIGCHLD, earlier)
