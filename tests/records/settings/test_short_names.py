"""Short names of runs: what tells them apart, and unique."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.records.settings.short_names import short_names


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
def test_only_what_tells_runs_apart_is_in_their_names(cells: dict[str, dict[str, Any]], named: list[str]) -> None:
    assert list(short_names(cells, lone="first").values()) == named


_VALUES = st.none() | st.booleans() | st.integers(0, 3) | st.text("aA/é.,=", max_size=3) | st.lists(st.integers(0, 2))
_CELL = st.dictionaries(st.sampled_from(["lr", "model.name", "model.lr", "x"]), _VALUES)


@given(st.lists(_CELL, min_size=1, max_size=8))
def test_names_are_unique_and_fit_for_folders(cells: list[dict[str, Any]]) -> None:
    named = short_names({f"run-{at:08x}": cell for at, cell in enumerate(cells)}, lone="sweep")
    names = list(named.values())
    assert len({name.casefold() for name in names}) == len(cells)
    assert not any("/" in name or name in ("", ".", "..") for name in names)
