"""Pairing of runs: by their seeds or their order, never by what they measured."""

import pytest

from runmanager.results.compare.run_pairs import pair_runs


@pytest.fixture
def pairs(contents, timed):
    """Return the pairs of runs given as (side, seed) in their order of start, as pairs of indices."""

    def find(*runs):
        stored = contents(*(({"side": side, "seed": seed}, timed([1.0]), {}) for side, seed in runs)).runs
        sides = [[run for run, (each, _) in zip(stored, runs, strict=True) if each == side] for side in "ab"]
        found = pair_runs(*sides)
        places = {id(run): at for at, run in enumerate(stored)}
        return found and [(places[id(one)], places[id(other)]) for one, other in found]

    return find


def test_runs_of_equal_seeds_are_pairs_in_any_order(pairs):
    assert pairs(("a", 1), ("a", 2), ("b", 2), ("b", 1)) == [(0, 3), (1, 2)]


def test_neighbours_in_time_are_pairs_where_the_seeds_differ(pairs):
    assert pairs(("a", 1), ("b", 7), ("b", 8), ("a", 2)) == [(0, 1), (3, 2)]
    assert pairs(("a", None), ("b", None), ("a", None), ("b", None)) == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    "runs",
    [
        [("a", 1), ("b", 1)],
        [("a", 1), ("a", 2), ("b", 3), ("b", 4)],
        [("a", 1), ("b", 2), ("b", 3), ("b", 4), ("a", 5)],
        [("a", 1), ("a", 1), ("b", 1), ("b", 2)],
    ],
    ids=["one run a side", "one side after the other", "unequal counts", "a seed twice"],
)
def test_other_runs_are_two_independent_samples(pairs, runs):
    assert pairs(*runs) is None
