"""Grids: every combination once, in order."""

import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.errors import UsageError
from runmanager.records.settings.grid import RunBuilder, expand_grid

KEYS = st.text(st.characters(categories=["Ll"], max_codepoint=127), min_size=1, max_size=6)
AXES = st.dictionaries(KEYS.map(lambda key: f"{key}_"), st.lists(st.integers(), min_size=1, max_size=4), max_size=4)


@given(AXES)
def test_grid_has_every_combination_in_the_order_of_nested_loops(axes: dict[str, list[int]]) -> None:
    cells = expand_grid(**axes)
    assert len(cells) == math.prod(len(values) for values in axes.values())
    expected: list[dict[str, int]] = [{}]
    for name, values in axes.items():
        expected = [{**cell, name: value} for cell in expected for value in values]
    assert cells == expected


@given(AXES)
def test_run_builder_makes_the_same_cells_as_named_tuples(axes: dict[str, list[int]]) -> None:
    runs = RunBuilder.get_runs(OrderedDict(axes))
    assert [run._asdict() for run in runs] == expand_grid(**axes)


def test_cell_is_read_by_key_and_by_attribute() -> None:
    (cell,) = expand_grid(lr=[0.1], device=["cpu"])
    assert cell.lr == cell["lr"] == 0.1
    with pytest.raises(AttributeError, match="no setting 'batch_size'; it has lr, device"):
        _ = cell.batch_size


def test_axis_may_be_any_iterable() -> None:
    assert [cell.lr for cell in expand_grid(lr=(10.0**-n for n in range(3)))] == [1.0, 0.1, 0.01]
    assert len(expand_grid(seed=range(5))) == 5


@pytest.mark.parametrize(
    ("values", "message"),
    [("cuda", r"device=\['cuda'\]"), (b"x", "list of values"), (3, "got 3"), ([], "at least one")],
)
def test_axis_that_is_not_a_list_of_values_is_rejected(values: object, message: str) -> None:
    for make in (lambda: expand_grid(device=values), lambda: RunBuilder.get_runs({"device": values})):
        with pytest.raises(UsageError, match=rf"Axis 'device'.*{message}"):
            make()


@pytest.mark.parametrize("values", [itertools.count(), range(10**12), range(100_001)])
def test_large_or_infinite_axis_is_rejected_unread(values: Iterable[int]) -> None:
    with pytest.raises(UsageError, match=r"Axis 'seed' must have at most 100,000 values, got more"):
        expand_grid(lr=[0.1], seed=values)


def test_large_grid_is_rejected_before_a_cell_is_made() -> None:
    axes = {name: range(100) for name in ("lr", "seed", "batch_size", "epochs")}
    for make in (lambda: expand_grid(**axes), lambda: RunBuilder.get_runs(axes)):
        with pytest.raises(UsageError, match=r"got 100,000,000: 100 of lr times 100 of seed times"):
            make()
