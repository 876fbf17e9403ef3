"""The error rates of looks: together they come to 5%, as paths of normal sums that others draw show."""

import numpy as np
import pytest
from scipy.stats import norm

from runmanager.app.driver.deciding import error_rates


@pytest.mark.parametrize(("looks", "rows"), [(range(2, 3), 1), (range(2, 11), 1), (range(3, 21), 1), (range(2, 11), 9)])
def test_looks_share_the_error_rate(looks: range, rows: int) -> None:
    of_rows = error_rates(looks, rows=rows)
    bounds = norm.isf((1 - (1 - np.array(of_rows)) ** (1 / rows)) / 2)
    draws = np.random.default_rng(0).standard_normal((50_000, looks[-1]), dtype=np.float32)
    levels = np.cumsum(draws, axis=1)[:, looks.start - 1 :] / np.sqrt(np.array(looks))
    of_one = np.mean(np.any(np.abs(levels) > bounds, axis=1))
    assert 1 - (1 - of_one) ** rows == pytest.approx(0.05, abs=0.006)


def test_a_first_look_may_spend_its_share_alone() -> None:
    assert error_rates(range(2, 11), rows=1)[0] == pytest.approx(0.05 * 2 / 10, rel=0.06)  # of a grid of sums
