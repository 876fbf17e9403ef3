"""Grids: every combination once, settings flattened and compared without confusing two values, safe folder names."""

import dataclasses
import itertools
import json
import math
from argparse import Namespace
from collections import OrderedDict, namedtuple
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.errors import UsageError
from runmanager.records.settings.grid import (
    RunBuilder,
    differing,
    expand_grid,
    flatten,
    plain_settings,
    readable_name,
)

KEYS = st.text(st.characters(categories=["Ll"], max_codepoint=127), min_size=1, max_size=6)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
AXES = st.dictionaries(KEYS.map(lambda key: f"{key}_"), st.lists(st.integers(), min_size=1, max_size=4), max_size=4)
NESTED = st.recursive(
    st.dictionaries(KEYS, SCALARS | st.lists(SCALARS, max_size=3), max_size=4),
    lambda inner: st.dictionaries(KEYS, inner | SCALARS, max_size=4),
    max_leaves=12,
)


@given(AXES)
def test_a_grid_has_every_combination_in_the_order_of_nested_loops(axes: dict[str, list[int]]) -> None:
    cells = expand_grid(**axes)
    assert len(cells) == math.prod(len(values) for values in axes.values())
    expected: list[dict[str, int]] = [{}]
    for name, values in axes.items():
        expected = [{**cell, name: value} for cell in expected for value in values]
    assert cells == expected


@given(AXES)
def test_the_tutorials_builder_makes_the_same_cells_as_named_tuples(axes: dict[str, list[int]]) -> None:
    runs = RunBuilder.get_runs(OrderedDict(axes))
    assert [run._asdict() for run in runs] == expand_grid(**axes)


def test_a_cell_is_read_by_key_and_by_attribute() -> None:
    (cell,) = expand_grid(lr=[0.1], device=["cpu"])
    assert cell.lr == cell["lr"] == 0.1
    with pytest.raises(AttributeError, match="no setting 'batch_size'; it has lr, device"):
        _ = cell.batch_size


def test_an_axis_may_be_any_iterable() -> None:
    assert [cell.lr for cell in expand_grid(lr=(10.0**-n for n in range(3)))] == [1.0, 0.1, 0.01]
    assert len(expand_grid(seed=range(5))) == 5


@pytest.mark.parametrize(
    ("values", "said"), [("cuda", r"device=\['cuda'\]"), (b"x", "list of values"), (3, "got 3"), ([], "at least one")]
)
def test_an_axis_that_is_no_list_of_values_is_refused(values: object, said: str) -> None:
    for make in (lambda: expand_grid(device=values), lambda: RunBuilder.get_runs({"device": values})):
        with pytest.raises(UsageError, match=rf"Axis 'device'.*{said}"):
            make()


@pytest.mark.parametrize("values", [itertools.count(), range(10**12), range(100_001)])
def test_a_large_or_endless_axis_is_refused_unread(values: Iterable[int]) -> None:
    with pytest.raises(UsageError, match=r"Axis 'seed' must have at most 100,000 values, got more"):
        expand_grid(lr=[0.1], seed=values)


def test_a_large_grid_is_refused_before_a_cell_is_made() -> None:
    axes = {name: range(100) for name in ("lr", "seed", "batch_size", "epochs")}
    for make in (lambda: expand_grid(**axes), lambda: RunBuilder.get_runs(axes)):
        with pytest.raises(UsageError, match=r"got 100,000,000: 100 of lr times 100 of seed times"):
            make()


@given(NESTED)
def test_flattening_keeps_every_leaf_under_its_path(config: dict[str, object]) -> None:
    def leaf(path: str) -> object:
        found: object = config
        for part in path.split("."):
            assert isinstance(found, dict)
            found = found[part]
        return found

    def num_leaves(node: object) -> int:
        return sum(map(num_leaves, node.values())) if isinstance(node, dict) and node else 1

    flat = flatten(config)
    assert all(leaf(path) is value for path, value in flat.items())
    assert len(flat) == (num_leaves(config) if config else 0)
    assert flatten(flat) == flat


@given(
    st.lists(st.dictionaries(KEYS, st.sampled_from([0, False, 0.0, 1, True, "1", None, "x"]), max_size=3), max_size=4)
)
def test_what_differs_is_what_has_more_than_one_value(cells: list[dict[str, object]]) -> None:
    names = dict.fromkeys(name for cell in cells for name in cell)
    # repr tells 1, 1.0, True and '1' apart.
    expected = [name for name in names if len({repr(cell[name]) if name in cell else "" for cell in cells}) > 1]
    assert differing(cells) == expected


def test_values_that_python_calls_equal_differ() -> None:
    for one, other in ((1, True), (0, 0.0), (False, 0)):
        assert differing([{"x": one}, {"x": other}]) == ["x"]


def test_a_setting_that_some_cells_lack_differs() -> None:
    assert differing([{"lr": 1, "model.depth": 8}, {"lr": 1}]) == ["model.depth"]
    assert differing([{"lr": 1}]) == differing([]) == []


@given(st.dictionaries(st.text(max_size=20), SCALARS | st.lists(SCALARS, max_size=4), max_size=6))
def test_a_readable_name_is_a_safe_visible_folder_name(varying: dict[str, object]) -> None:
    name = readable_name(varying)
    assert name and Path(name).name == name and not name.startswith(".")
    assert len(f"{name}-01234567".encode()) <= 255  # what file systems take


def test_readable_names() -> None:
    assert readable_name({"lr": 0.01, "model.name": "cnn"}) == "lr=0.01,model=cnn"
    assert readable_name({"model.hidden": [64, 32]}) == "model.hidden=64x32"
    assert readable_name({"dataset.root": "../my data/x"}) == "dataset.root=.._my_data_x"
    assert readable_name({}) == "run"
    assert len(f"{readable_name({'k': '学' * 300})}-01234567".encode()) <= 255


def test_a_long_setting_pushes_none_out_of_a_name() -> None:
    long = {"data": "/scratch/" + "very/" * 40 + "images", "lr": 0.1, "seed": 3}
    name = readable_name(long)
    assert name.startswith("data=_scratch_very_") and name.endswith("_images,lr=0.1,seed=3") and len(name) == 120
    other = readable_name(long | {"data": "/scratch/" + "very/" * 40 + "labels"})
    assert other.endswith("_labels,lr=0.1,seed=3"), "what differs at a value's end is seen"
    fits = {"data": "a" * 60, "notes": "b" * 30, "lr": 0.1}
    assert readable_name(fits) == f"data={'a' * 60},notes={'b' * 30},lr=0.1", "what fits is left as it is"


def test_of_too_many_settings_those_that_tell_runs_apart_stay() -> None:
    many = {f"setting_{number:02}": number for number in range(40)} | {"momentum": 0.9, "lr": 0.1}
    name = readable_name(many, telling=["lr", "momentum"])
    assert name.endswith(",momentum=0.9,lr=0.1") and name.startswith("setting_00=0,setting_01=1,") and len(name) <= 120


def test_a_function_is_a_setting_by_its_name() -> None:
    """Its text has an address in it, and is another one in each process."""
    assert plain_settings({"f": json.dumps, "g": len}) == {"f": "json.dumps", "g": "builtins.len"}


def test_settings_come_as_mapping_named_tuple_dataclass_or_not_at_all() -> None:
    @dataclasses.dataclass
    class Options:
        lr: float

    assert plain_settings(None) == {}
    expected = {"lr": 0.1}
    for given_settings in (
        {"lr": 0.1},
        namedtuple("Run", ["lr"])(0.1),
        Options(0.1),
        Namespace(lr=0.1),
        *expand_grid(lr=[0.1]),
    ):
        assert plain_settings(given_settings) == expected
    for wrong in (Options, 3, [("lr", 0.1)]):
        with pytest.raises(
            UsageError, match=r"must be a mapping, a named tuple, a dataclass or an argparse\.Namespace"
        ):
            plain_settings(wrong)
    with pytest.raises(UsageError, match="must be a string, got 3"):
        plain_settings({"model": {3: 1}})


def test_values_become_plain_ones() -> None:
    plain = plain_settings({"a": Path("x/y"), "b": (1, 2), "c": {"d": {3}}, "e": True})
    assert plain == {"a": "x/y", "b": [1, 2], "c": {"d": [3]}, "e": True}
    assert plain["e"] is True


def test_numbers_of_numpy_are_numbers() -> None:
    """`expand_grid(lr=np.logspace(…))` is a natural thing to write."""
    plain = plain_settings(
        {"lr": np.float64(0.1), "size": np.int64(3), "flag": np.bool_(True), "half": np.float32(0.5)}
    )
    assert plain == {"lr": 0.1, "size": 3, "flag": True, "half": 0.5}
    assert [type(value) for value in plain.values()] == [float, int, bool, float]


def test_a_number_that_json_has_no_word_for_becomes_text() -> None:
    assert plain_settings({"clip": math.inf, "x": math.nan}) == {"clip": "inf", "x": "nan"}
