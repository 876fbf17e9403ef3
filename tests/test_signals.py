"""Temporary signal handlers."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runmanager.signals import handle_signals, sigchld_ignored

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def set_handler() -> Iterator[Callable[..., None]]:
    """Set a signal handler; restored after the test."""
    earlier = {number: signal.getsignal(number) for number in BOTH}
    yield lambda number, handler: signal.signal(number, handler)
    for number, handler in earlier.items():
        signal.signal(number, handler)


def test_each_signal_calls_the_function_and_the_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    calls = []
    with handle_signals(BOTH, lambda: calls.append(1)):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert len(calls) == 3
    assert [signal.getsignal(number) for number in BOTH] == before


def test_ctrl_c_stays_ignored_in_a_background_process(set_handler: Callable[..., None]) -> None:
    set_handler(signal.SIGINT, signal.SIG_IGN)
    calls = []
    with handle_signals(BOTH, lambda: calls.append(1)):
        os.kill(os.getpid(), signal.SIGINT)
        assert not calls
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(calls) == 1
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_sigchld_is_ignored_for_a_while_and_handled_again_afterwards() -> None:
    def raises(number: int, frame: Any) -> None:
        raise RuntimeError("a worker has died")

    earlier = signal.signal(signal.SIGCHLD, raises)
    try:
        with sigchld_ignored():
            os.kill(os.getpid(), signal.SIGCHLD)
        with pytest.raises(RuntimeError, match="a worker has died"):
            os.kill(os.getpid(), signal.SIGCHLD)
    finally:
        signal.signal(signal.SIGCHLD, earlier)
