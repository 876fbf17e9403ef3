"""Temporary signal handlers, names of signals, and the exit status of an interrupted command."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

INTERRUPTED_STATUS = 128 + signal.SIGINT
"""Exit status of a command that Ctrl-C has ended, as in a shell."""


@contextmanager
def handle_signals(numbers: Sequence[int], act: Callable[[], None]) -> Iterator[None]:
    """Call `act` on each of these signals. Does nothing outside the main thread, where handlers cannot be set.

    Ctrl-C stays ignored where this process was started to ignore it, for example by a shell's `&` in a script: it is
    meant for what runs in the foreground.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ignores_interrupt = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    handled = [number for number in numbers if not (ignores_interrupt and number == signal.SIGINT)]
    earlier = {number: signal.signal(number, lambda number, frame: act()) for number in handled}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def noting_signals(numbers: Sequence[int], note: Callable[[], None]) -> Iterator[None]:
    """Call `note` on each of these signals, before the handler that the program within has for it by then.

    It is called where the program ignores a signal too; the program sees its own handlers. Not in a fork, and not
    outside the main thread, where handlers cannot be set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    module: Any = sys.modules["_signal"]  # below `signal`, whose functions a program may have imported by name
    install, get, process = module.signal, module.getsignal, os.getpid()
    before = {number: get(number) for number in numbers}
    handlers: dict[int, Any] = {}  # as the program knows them

    def noting_install(number: int, handler: Any) -> Any:
        if number not in numbers:
            return install(number, handler)

        def act(number: int, frame: Any) -> None:
            if os.getpid() == process:
                note()
            if callable(handler):
                handler(number, frame)

        earlier = noting_get(number)
        is_newly_ignored = handler == signal.SIG_IGN != before[number]
        install(number, act if callable(handler) or is_newly_ignored else handler)
        handlers[number] = handler
        return earlier

    def noting_get(number: int) -> Any:
        return handlers[number] if number in handlers else get(number)

    for number, handler in before.items():
        if callable(handler):
            noting_install(number, handler)
    module.signal, module.getsignal = noting_install, noting_get
    try:
        yield
    finally:
        module.signal, module.getsignal = install, get
        for number in handlers:
            install(number, before[number])


@contextmanager
def sigchld_ignored() -> Iterator[None]:
    """Suspend the handler of SIGCHLD: torch's raises at an arbitrary point of the program when a worker has died."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCHLD"):
        yield
        return
    earlier = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        if earlier is not None:  # None: not installed by Python, which cannot restore it
            signal.signal(signal.SIGCHLD, earlier)


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGKILL`; `signal 99` for one that this system does not know."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
