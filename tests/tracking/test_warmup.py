"""Warm-up: the first epochs, and those after them in which the steps still get faster."""

import pytest

from runmanager.tracking.warmup import has_settled, is_warmup

STEADY = [1.0] * 40
GETTING_FASTER = [2.0] * 20 + [1.0] * 20


@pytest.mark.parametrize(
    ("steps", "settled"),
    [
        (STEADY, True),
        (GETTING_FASTER, False),
        ([1.0] * 20 + [2.0] * 20, True),  # slower is no warm-up
        ([1.25] * 20 + [1.0] * 20, True),
        ([1.26] * 20 + [1.0] * 20, False),
        ([9.0] * 9 + [1.0] * 31, True),  # medians: a few slow steps are no trend
        ([2.0] * 9 + [1.0] * 10, True),  # too few to tell
        ([], True),
    ],
)
def test_steps_settle(steps: list[float], settled: bool) -> None:
    assert has_settled(steps) is settled


@pytest.mark.parametrize(
    ("before", "least", "previous", "steps", "expected"),
    [
        (0, 1, False, STEADY, True),
        (1, 1, True, STEADY, False),
        (1, 1, True, GETTING_FASTER, True),
        (2, 1, True, GETTING_FASTER, True),
        (2, 1, False, GETTING_FASTER, False),  # it had settled: slow steps now are noise, not warm-up
        (2, 3, True, STEADY, True),
        (3, 3, True, STEADY, False),
    ],
)
def test_which_epochs_are_warmup(before: int, least: int, previous: bool, steps: list[float], expected: bool) -> None:
    assert is_warmup(epochs_before=before, least=least, previous=previous, step_seconds=steps) is expected


SLOWER_FIRST_HALF = [2.0] * 20 + [1.0] * 20


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ([4.0] * 20 + [2.0] * 20, True),  # still twice as fast as the epoch before
        (SLOWER_FIRST_HALF, False),  # the same again: its batches differ, and nothing gets warmer
        ([1.02 * seconds for seconds in SLOWER_FIRST_HALF], False),  # noise
        ([1.0] * 40, False),
        ([9.0] * 5, True),  # too few steps to hold it against
    ],
)
def test_steps_that_differ_in_every_epoch_alike_are_no_warmup(earlier: list[float], expected: bool) -> None:
    found = is_warmup(epochs_before=1, least=1, previous=True, step_seconds=SLOWER_FIRST_HALF, earlier=earlier)
    assert found is expected
