"""Counting Ctrl-C and SIGTERM: each is heeded once, and they do what they did before when it is over."""

import signal
import threading

from runmanager.launching.local.interrupt_counter import InterruptCounter


def test_each_is_counted_and_heeded_once() -> None:
    interrupts = InterruptCounter()
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interrupts.counted():
        assert not interrupts
        assert not interrupts.heed()
        signal.raise_signal(signal.SIGTERM)
        assert interrupts
        assert interrupts.heed()
        assert not interrupts.heed()
        assert not interrupts.is_at_once
        signal.raise_signal(signal.SIGINT)
        assert interrupts.heed()
        assert interrupts.is_at_once
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_two_that_come_together_end_all_at_once() -> None:
    interrupts = InterruptCounter()
    with interrupts.counted():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert interrupts.heed()
    assert interrupts.is_at_once


def test_another_thread_counts_nothing_and_changes_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def count() -> None:
        with InterruptCounter().counted():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=count)
    thread.start()
    thread.join(60)
    assert seen == [before]
