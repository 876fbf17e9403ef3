"""What a search proposes, given the trials that it knows."""

import itertools
import statistics
from collections.abc import Callable

import pytest

from runmanager.app.compose.search_space import Point, Space, Trial, propose, read_space
from runmanager.app.programs.script.arguments.setting_words import texts_of_word

pytest.importorskip("optuna")


def space_of(*words: str) -> Space:
    return read_space(words, texts_of_word, option="--search")


def searched(
    space: Space,
    value: Callable[[Point], float],
    method: str,
    *,
    trials: int,
    more_is_better: bool = False,
    seed: int = 0,
) -> list[Trial]:
    known: list[Trial] = []
    while len(known) < trials:
        point = next(propose(space, known, method, more_is_better=more_is_better, seed=1000 * seed + len(known)), None)
        if point is None:
            break
        known.append(Trial(point, value(point)))
    return known


def bowl(point: Point) -> float:
    return float((point[0] - 0.3) ** 2 + (point[1] - 0.7) ** 2)


def test_tpe_finds_better_values_than_random_in_either_direction() -> None:
    space = space_of("x=interval(0,1)", "y=interval(0,1)")

    def best(method: str, seed: int, sign: int) -> float:
        found = searched(space, lambda p: sign * bowl(p), method, trials=40, more_is_better=sign < 0, seed=seed)
        return min(sign * (each.value or 0.0) for each in found)

    medians = [statistics.median(best(each, seed, 1) for seed in range(5)) for each in ("tpe", "random")]
    assert medians[0] < medians[1] / 2, medians
    assert statistics.median(best("tpe", seed, -1) for seed in range(5)) < medians[1] / 2


@pytest.mark.parametrize("method", ["tpe", "random"])
def test_a_finite_space_is_tried_whole_and_once(method: str) -> None:
    space = space_of("a=1,2,3", "b=range(0,4)", "c=int(interval(1,2))")
    trials = searched(space, lambda point: float(sum(point)), method, trials=100)
    assert sorted(each.point for each in trials if each.point) == sorted(itertools.product(range(3), range(4), (1, 2)))


def test_points_that_are_left_out_are_not_proposed_again() -> None:
    space = space_of("a=1,2,3,4")
    trials = [Trial((0,), 1.0), Trial(None, 5.0), Trial((1,), None, is_over=False), Trial((2,), None)]
    assert next(propose(space, trials, "tpe", more_is_better=True, seed=0)) == (3,)
    assert list(propose(space, trials, "tpe", more_is_better=True, seed=0, is_left_out={(3,)}.__contains__)) == []


def test_equal_trials_give_equal_proposals() -> None:
    space = space_of("x=interval(0,1)", "m=a,b")
    trials = [Trial((at / 20, at % 2), float(at)) for at in range(15)]
    first, again = (next(propose(space, trials, "tpe", more_is_better=True, seed=15)) for _ in range(2))
    assert first == again and first != next(propose(space, trials, "tpe", more_is_better=True, seed=16))


@pytest.mark.parametrize("method", ["tpe", "random"])
def test_first_points_are_spread_and_differ_between_spaces(method: str) -> None:
    """Generators that are seeded 0, 1, 2, 3 begin with 0.55, 0.42, 0.44 and 0.55, and so would each search."""
    ranges, begins = [], set()
    for name in "abcdefghijklmnop":
        trials = searched(space_of(f"{name}=interval(0,1)"), lambda point: 0.0, method, trials=4)
        found = [each.point[0] for each in trials if each.point]
        ranges.append(max(found) - min(found))
        begins.add(found[0])
    assert len(begins) == 16
    assert statistics.mean(ranges) > 0.45  # 0.6 is expected of four independent numbers
