"""Tests of signal handlers for a while."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runmanager.signals import handle_signals, sigchld_ignored

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def set_handler() -> Iterator[Callable[..., None]]:
    """Sets how this process takes a signal; put back afterwards."""
    earlier = {number: signal.getsignal(number) for number in BOTH}
    yield lambda number, handler: signal.signal(number, handler)
    for number, handler in earlier.items():
        signal.signal(number, handler)


def test_each_ctrl_c_and_sigterm_is_heard_and_afterwards_all_is_as_before() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    heard = []
    with handle_signals(BOTH, lambda: heard.append(1)):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert len(heard) == 3
    assert [signal.getsignal(number) for number in BOTH] == before


def test_a_sweep_in_the_background_stays_deaf_to_ctrl_c(set_handler: Callable[..., None]) -> None:
    set_handler(signal.SIGINT, signal.SIG_IGN)
    heard = []
    with handle_signals(BOTH, lambda: heard.append(1)):
        os.kill(os.getpid(), signal.SIGINT)
        assert not heard
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(heard) == 1
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_worker_s_death_breaks_nothing_off_and_is_heard_again_afterwards() -> None:
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
