"""Counting Ctrl-C and SIGTERM: each is handled once, and the earlier handlers are restored."""

import signal
import threading

from runmanager.launching.local.interrupt_counter import InterruptCounter


def test_each_interrupt_is_counted_and_handled_once() -> None:
    interrupts = InterruptCounter()
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interrupts.counting():
        assert not interrupts
        assert not interrupts.take()
        signal.raise_signal(signal.SIGTERM)
        assert interrupts
        assert interrupts.take()
        assert not interrupts.take()
        assert not interrupts.is_immediate
        signal.raise_signal(signal.SIGINT)
        assert interrupts.take()
        assert interrupts.is_immediate
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_two_interrupts_together_end_everything_immediately() -> None:
    interrupts = InterruptCounter()
    with interrupts.counting():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert interrupts.take()
    assert interrupts.is_immediate


def test_another_thread_counts_nothing_and_changes_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def count() -> None:
        with InterruptCounter().counting():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=count)
    thread.start()
    thread.join(60)
    assert seen == [before]
