"""Pairing of cells, and the axes of comparisons."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runmanager.errors import UsageError
from runmanager.records.settings.values import flatten
from runmanager.results.compare.cell_pairing import find_axis, pair_cells, varying_axes
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.matched_pairs import match_sides
from runmanager.results.load.cells import gather_cells

configs = st.fixed_dictionaries(
    {
        "lr": st.sampled_from([0.1, 0.01]),
        "batch_size": st.sampled_from([100, 1, True]),
        "device": st.sampled_from(["cpu", "cuda", "mps"]),
        "seed": st.integers(0, 2),
        "model": st.sampled_from([{"name": "mlp", "hidden": [32]}, {"name": "mlp", "hidden": [8]}, {"name": "cnn"}]),
    },
    optional={"note": st.sampled_from([None, "x"])},
)


def cells_of(contents, *cells):
    return gather_cells(contents(*((config, [], {}) for config in cells)).runs, (), None)


def identity(config, axis):
    """Return a cell's settings without the axis and the seed, with their types."""
    flat = flatten(config).items()
    return {(k, repr(v)) for k, v in flat if k not in (axis, "seed") and not k.startswith(f"{axis}.")}


def own_values(config, axis):
    """Return a cell's value of the axis: a setting, or all settings of a group; an absent one counts as None."""
    own = {k: v for k, v in flatten(config).items() if k == axis or k.startswith(f"{axis}.")}
    return repr(sorted((k, repr(v)) for k, v in own.items() if v is not None))


@settings(max_examples=60, deadline=None)
@given(cells=st.lists(configs, min_size=1, max_size=10), axis=st.sampled_from(["device", "lr", "model"]))
def test_pairs_differ_in_the_axis_and_seed_alone(contents, cells, axis):
    gathered = cells_of(contents, *cells)
    found = find_axis(gathered, axis)
    pairs = pair_cells(gathered, found, 0)
    for pair in pairs:
        members = [*pair.baseline_cells, *pair.candidate_cells]
        assert members
        assert len({frozenset(identity(cell.stored.record.config, axis)) for cell in members}) == 1
        for side in (pair.baseline_cells, pair.candidate_cells):
            sides = [{k: v for k, v in cell.own.items() if k == axis or k.startswith(f"{axis}.")} for cell in side]
            assert all(values == sides[0] for values in sides)
    if len(found.values) > 1:
        paired = {id(cell) for pair in pairs for cell in [*pair.baseline_cells, *pair.candidate_cells]}
        assert paired == {id(cell) for cell in gathered.cells}


def test_seeds_belong_to_one_side(contents):
    cells = cells_of(contents, *({"device": d, "seed": s} for d in ("cpu", "cuda") for s in range(3)))
    (pair,) = pair_cells(cells, find_axis(cells, "device"), 0)
    assert (len(pair.baseline_cells), len(pair.candidate_cells)) == (3, 3)


def test_each_value_but_the_baseline_is_a_candidate(contents):
    cells = cells_of(contents, *({"batch_size": size} for size in (100, 1000, 10000)))
    assert [pair.candidate for pair in pair_cells(cells, find_axis(cells, "batch_size"), 1)] == [100, 10000]


def test_cell_missing_from_the_grid_is_an_empty_side(contents):
    cells = cells_of(contents, {"lr": 1, "device": "cpu"}, {"lr": 1, "device": "cuda"}, {"lr": 2, "device": "cuda"})
    full, lacking = pair_cells(cells, find_axis(cells, "device"), 0)
    assert full.baseline_cells
    assert full.candidate_cells
    assert not lacking.baseline_cells
    assert lacking.settings["lr"] == 2


@pytest.mark.parametrize("axis", ["model", "model.name"])
def test_group_is_compared_with_all_its_settings(contents, axis):
    models = [{"name": "mlp", "hidden": [32]}, {"name": "cnn", "channels": 6}]
    cells = cells_of(contents, *({"lr": 1, "model": model} for model in models))
    found = find_axis(cells, axis)
    assert found.values == ["mlp", "cnn"]
    (pair,) = pair_cells(cells, found, 0)
    assert pair.baseline_cells
    assert pair.candidate_cells
    assert not any(name.startswith("model") for name in pair.settings)


def test_variants_of_one_name_are_different_values(contents):
    models = [{"name": "mlp", "hidden": [32]}, {"name": "mlp", "hidden": [8]}, {"name": "cnn"}]
    found = find_axis(cells_of(contents, *({"model": model} for model in models)), "model")
    assert found.values == ["mlp(hidden=[32])", "mlp(hidden=[8])", "cnn"]


def test_single_setting_of_a_group_is_an_axis(contents):
    cells = cells_of(contents, *({"model": {"name": "tower", "depth": depth}} for depth in (2, 4)))
    assert find_axis(cells, "model.depth").values == [2, 4]


def test_unknown_axis_names_the_nearest_and_what_varies(contents):
    cells = cells_of(contents, {"batch_size": 1}, {"batch_size": 2})
    with pytest.raises(UsageError, match=r"got 'batchsize'; did you mean 'batch_size'\? what varies here: batch_size"):
        find_axis(cells, "batchsize")


def test_baseline_is_found_by_value_or_text_and_an_unknown_one_lists_the_values(contents):
    axis = find_axis(cells_of(contents, {"batch_size": 1}, {"batch_size": 20}), "batch_size")
    assert axis.index(20) == axis.index("20") == 1
    with pytest.raises(UsageError, match=r"value of 'batch_size', got 7; its values are 1, 20"):
        axis.index(7)


def test_baseline_may_be_given_as_in_the_command_that_made_it(contents):
    axis = find_axis(cells_of(contents, {"fused": False}, {"fused": True}, {"fused": None}), "fused")
    assert [axis.index(word) for word in ("false", "true", "null", "None", "False")] == [0, 1, 2, 2, 0]
    with pytest.raises(UsageError, match="its values are false, true, null"):
        axis.index("no")


@settings(max_examples=40, deadline=None)
@given(cells=st.lists(configs, min_size=1, max_size=10))
@example(cells=[{"lr": 1, "model": {"name": "mlp", "hidden": hidden}} for hidden in ([32], [8])])
def test_along_any_axis_no_two_sides_differ_in_two_settings(contents, cells):
    matches = match_sides(contents(*((config, [], {}) for config in cells)), None, CompareOptions(axis="any"))
    for match in matches.pairs:
        sides = [[cell.stored.record.config for cell in side.cells] for side in match.sides]
        axis = match.axis.name.removesuffix(".name")
        assert len({frozenset(identity(config, axis)) for side in sides for config in side}) == 1
        values = [{own_values(config, axis) for config in side} for side in sides if side]
        assert all(len(each) == 1 for each in values)
        assert len(values) == 1 or values[0] != values[1]
    assert {match.axis.name for match in matches.pairs} <= {axis.name for axis in matches.axes}


def test_group_whose_kind_varies_is_one_axis_and_the_seed_is_not_an_axis(contents):
    models = [{"name": "mlp", "hidden": [32]}, {"name": "mlp", "hidden": [8]}, {"name": "cnn", "channels": 6}]
    cells = [
        {"device": device, "seed": seed, "model": model, "optimizer": {"name": "sgd", "momentum": momentum}}
        for device in ("cpu", "cuda")
        for seed in (0, 1)
        for model in models
        for momentum in (0.0, 0.9)
    ]
    axes = varying_axes(cells_of(contents, *cells))
    assert [axis.name for axis in axes] == ["device", "model.name", "optimizer.momentum"]
    assert axes[1].values == ["mlp(hidden=[32])", "mlp(hidden=[8])", "cnn"]
