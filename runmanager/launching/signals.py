"""Hearing that the user wants a sweep to stop."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["stop_signals_heard"]


@contextlib.contextmanager
def stop_signals_heard(hear: Callable[[], None]) -> Iterator[None]:
    """Call `hear` for each Ctrl-C and SIGTERM meanwhile.

    Ctrl-C stays ignored where this process was started to ignore it, as by a shell's `&`: it is meant for what runs in
    the foreground. Python hears signals in the main thread only: from another one nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        hear()

    heard = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        heard.append(signal.SIGINT)
    earlier = {number: signal.signal(number, handle) for number in heard}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
