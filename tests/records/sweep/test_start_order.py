"""The order in which cells start: blocks of one seed, shuffled alike by every process, and stored."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from runmanager.records.settings.grid import Order, order_of


def hashes(count: int) -> list[str]:
    return [hashlib.sha256(str(at).encode()).hexdigest() for at in range(count)]


def test_cells_start_in_blocks_of_one_seed() -> None:
    seeds = [seed for _ in range(4) for seed in (5, 3)]
    assert order_of(hashes(8), seeds, Order.GRID) == [0, 2, 4, 6, 1, 3, 5, 7]
    shuffled = order_of(hashes(8), seeds, Order.RANDOM)
    assert [seeds[at] for at in shuffled] == [5] * 4 + [3] * 4
    assert shuffled != order_of(hashes(8), seeds, Order.GRID)
    assert order_of(hashes(8), [None] * 8, Order.GRID) == list(range(8))


def test_the_shuffle_does_not_depend_on_the_order_in_which_cells_are_given() -> None:
    cells = hashes(12)
    once = [cells[at] for at in order_of(cells, [None] * 12, Order.RANDOM)]
    again = [cells[::-1][at] for at in order_of(cells[::-1], [None] * 12, Order.RANDOM)]
    assert once == again != cells


@given(st.lists(st.integers(0, 3), max_size=12), st.data())
def test_stored_cells_keep_their_order_and_new_ones_join_their_seeds(seeds: list[int], data: st.DataObject) -> None:
    cells = hashes(len(seeds))
    stored = data.draw(st.permutations(range(data.draw(st.integers(0, len(seeds))))))
    order = data.draw(st.sampled_from(list(Order)))
    found = order_of(cells, seeds, order, stored=stored)
    assert sorted(found) == list(range(len(seeds)))
    assert [at for at in found if at in stored] == list(stored)
    for seed in set(seeds):
        old = [found.index(at) for at in stored if seeds[at] == seed]
        new = [found.index(at) for at in range(len(seeds)) if at not in stored and seeds[at] == seed]
        first = max(old) + 1 if old else min(new, default=0)
        assert sorted(new) == list(range(first, first + len(new))), "right behind the last of their seed, together"
