"""The share of time that writing takes."""

import pytest

from runmanager.results.write_throttle import WriteThrottle


class Clock:
    """A clock under the test's control."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_writing_takes_its_share_of_the_time_and_not_more() -> None:
    clock = Clock()
    throttle = WriteThrottle(0.05, clock=clock)
    assert throttle.is_due
    spent = 0.0
    for _ in range(10_000):
        clock.seconds += 0.1  # a run
        if throttle.is_due:
            with throttle.writing():
                clock.seconds += 0.5
            spent += 0.5
    assert 0.04 < spent / (clock.seconds - 100) <= 0.05


def test_a_failed_write_may_be_retried_immediately() -> None:
    clock = Clock()
    throttle = WriteThrottle(0.05, clock=clock)
    with pytest.raises(OSError, match="disk full"), throttle.writing():
        clock.seconds += 5
        raise OSError("disk full")
    assert throttle.is_due
