"""Names of runs: safe for folders, bounded, and unique within a sweep."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.records.settings.signature import readable_name, short_names

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)


@given(st.dictionaries(st.text(max_size=20), SCALARS | st.lists(SCALARS, max_size=4), max_size=6))
def test_readable_name_is_a_safe_visible_folder_name(varying: dict[str, object]) -> None:
    name = readable_name(varying)
    assert name and Path(name).name == name and not name.startswith(".")
    assert len(f"{name}-01234567".encode()) <= 255  # what file systems take


def test_readable_names() -> None:
    assert readable_name({"lr": 0.01, "model.name": "cnn"}) == "lr=0.01,model=cnn"
    assert readable_name({"model.hidden": [64, 32]}) == "model.hidden=64x32"
    assert readable_name({"dataset.root": "../my data/x"}) == "dataset.root=.._my_data_x"
    assert readable_name({}) == "run"
    assert len(f"{readable_name({'k': '学' * 300})}-01234567".encode()) <= 255


def test_long_value_is_shortened_before_settings_are_dropped() -> None:
    long = {"data": "/scratch/" + "very/" * 40 + "images", "lr": 0.1, "seed": 3}
    name = readable_name(long)
    assert name.startswith("data=_scratch_very_") and name.endswith("_images,lr=0.1,seed=3") and len(name) == 120
    other = readable_name(long | {"data": "/scratch/" + "very/" * 40 + "labels"})
    assert other.endswith("_labels,lr=0.1,seed=3"), "a difference at the end of a value is visible"
    fits = {"data": "a" * 60, "notes": "b" * 30, "lr": 0.1}
    assert readable_name(fits) == f"data={'a' * 60},notes={'b' * 30},lr=0.1", "values that fit are not shortened"


@pytest.mark.parametrize("key", ["a", "ab", "abc", "abcd"])
def test_a_shortened_value_keeps_as_much_of_its_beginning_as_of_its_end(key: str) -> None:
    name = readable_name({key: "b" * 200 + "e" * 200})
    begin, end = name.removeprefix(f"{key}=").split("..")
    assert set(begin) == {"b"} and set(end) == {"e"} and len(name) == 120
    assert len(begin) - len(end) in (0, 1)
    fits = "b" * (119 - len(key))
    assert readable_name({key: fits}) == f"{key}={fits}"


def test_a_value_as_long_as_its_share_of_the_name_is_whole() -> None:
    """By hand: of 120 bytes the keys take 6, so each value has 57."""
    fits = "y" * 57
    assert readable_name({"aa": "x" * 200, "b": fits}) == f"aa={'x' * 28}..{'x' * 27},b={fits}"
    assert readable_name({"aa": "x" * 200, "b": f"{fits}y"}) == f"aa={'x' * 28}..{'x' * 27},b={'y' * 28}..{'y' * 27}"


def test_distinguishing_settings_are_dropped_last() -> None:
    many = {f"setting_{number:02}": number for number in range(40)} | {"momentum": 0.9, "lr": 0.1}
    name = readable_name(many, distinguishing=["lr", "momentum"])
    assert name.endswith(",momentum=0.9,lr=0.1") and name.startswith("setting_00=0,setting_01=1,") and len(name) <= 120


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ({"lr=1,batch_size=5-aaaaaaaa": {"lr": 1, "batch_size": 5}}, ["first"]),
        (
            {"a-11111111": {"lr": 0.1, "batch_size": 5}, "b-22222222": {"lr": 0.01, "batch_size": 5}},
            ["lr=0.1", "lr=0.01"],
        ),
        (
            {"a-11111111": {"model.name": "mlp", "model.depth": 2}, "b-22222222": {"model.name": "cnn"}},
            ["model=mlp,depth=2", "model=cnn"],
        ),
        (
            {"a-11111111": {"model.width": 1, "loader.width": 2}, "b-22222222": {"model.width": 3, "loader.width": 4}},
            ["model.width=1,loader.width=2", "model.width=3,loader.width=4"],
        ),
        (
            {"a-11111111": {"of": "Net"}, "b-22222222": {"of": "net"}, "c-33333333": {"of": "wide"}},
            ["of=Net-11111111", "of=net-22222222", "of=wide"],
        ),
    ],
)
def test_short_names_have_only_differing_settings(cells: dict[str, dict[str, Any]], named: list[str]) -> None:
    assert list(short_names(cells, lone="first").values()) == named


_VALUES = st.none() | st.booleans() | st.integers(0, 3) | st.text("aA/é.,=", max_size=3) | st.lists(st.integers(0, 2))
_CELL = st.dictionaries(st.sampled_from(["lr", "model.name", "model.lr", "x"]), _VALUES)


@given(st.lists(_CELL, min_size=1, max_size=8))
def test_short_names_are_unique_and_fit_for_folders(cells: list[dict[str, Any]]) -> None:
    named = short_names({f"run-{at:08x}": cell for at, cell in enumerate(cells)}, lone="sweep")
    names = list(named.values())
    assert len({name.casefold() for name in names}) == len(cells)
    assert not any("/" in name or name in ("", ".", "..") for name in names)
