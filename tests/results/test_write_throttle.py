"""How often something may be done that takes long."""

import pytest

from runmanager.results.write_throttle import WriteThrottle


class Clock:
    """Counts the seconds that it is told."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_it_takes_its_share_of_the_time_and_no_more() -> None:
    clock = Clock()
    pace = WriteThrottle(0.05, clock=clock)
    assert pace.is_due
    spent = 0.0
    for _ in range(10_000):
        clock.seconds += 0.1  # a run
        if pace.is_due:
            with pace.doing():
                clock.seconds += 0.5
            spent += 0.5
    assert 0.04 < spent / (clock.seconds - 100) <= 0.05


def test_what_failed_may_be_tried_again_at_once() -> None:
    clock = Clock()
    pace = WriteThrottle(0.05, clock=clock)
    with pytest.raises(OSError, match="disk full"), pace.doing():
        clock.seconds += 5
        raise OSError("disk full")
    assert pace.is_due
