"""The simulated searches and late decisions: known optima, and answers on a few sweeps."""

import pytest

from benchmarks.search_truth import PROBLEMS, branin, decide, grid, hartmann6


def test_the_functions_have_their_published_optima() -> None:
    assert branin((9.42478, 2.475)) == pytest.approx(PROBLEMS["Branin"]().least, abs=1e-5)
    best = (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)
    assert hartmann6(best) == pytest.approx(PROBLEMS["Hartmann 6"]().least, abs=1e-4)
    assert len(grid(PROBLEMS["Branin"](), 30, 0)) == 25


def test_a_clear_best_is_decided_early_and_equal_cells_are_not() -> None:
    clear = decide("the best 4% ahead of the others", 0, seeds=6)
    assert clear.is_answered and not clear.is_false and clear.runs < 60
    equal = decide("ten equal cells", 0, seeds=4)
    assert not equal.is_answered and not equal.is_false
