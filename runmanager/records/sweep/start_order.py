"""The order in which the cells of a sweep start: blocks of one seed, shuffled within each, or as in the grid."""

from collections.abc import Hashable, Sequence
from enum import StrEnum
from itertools import chain


class Order(StrEnum):
    """How cells follow one another within a block of one seed; `grid` is the order in which they were given."""

    GRID = "grid"
    RANDOM = "random"


def order_of(
    signatures: Sequence[str], seeds: Sequence[Hashable], order: str, *, stored: Sequence[int] = ()
) -> list[int]:
    """Return the positions of cells, given by `signatures` and `seeds`, in the order in which they start.

    Cells of equal seeds are a block; the blocks follow in the order of their first cells. Within one `random` sorts by
    the signatures: they are hashes, so this is a shuffle, and the same one in every process. `stored` are the positions
    of cells whose order was decided before and stays: a new cell starts after the last of them that has its seeds.
    """
    known = frozenset(stored)
    blocks: dict[Hashable, list[int]] = {}
    for at in range(len(signatures)):
        if at not in known:
            blocks.setdefault(seeds[at], []).append(at)
    if order == Order.RANDOM:
        for block in blocks.values():
            block.sort(key=signatures.__getitem__)
    last = {seeds[at]: at for at in stored}
    found: list[int] = []
    for at in stored:
        found.append(at)
        if last[seeds[at]] == at:
            found += blocks.pop(seeds[at], [])
    return [*found, *chain.from_iterable(blocks.values())]
