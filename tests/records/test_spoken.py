"""Tests of how settings are said."""

from typing import Any

import pytest

from runmanager.records.spoken import counted, in_backticks, spoken, typed


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1e-05, "1e-05"),
        ("cuda:1", "cuda:1"),
        ([32, None, True], "[32, null, true]"),
        ({"a": 1}, '{"a": 1}'),
    ],
)
def test_a_value_reads_as_it_is_typed(value: Any, said: str) -> None:
    assert spoken(value) == said


def test_a_count_agrees_with_its_noun_and_verb() -> None:
    assert [counted(number, "run") for number in (0, 1, 1200)] == ["0 runs", "1 run", "1,200 runs"]
    assert [counted(number, "cell waits", "cells wait") for number in (1, 2)] == ["1 cell waits", "2 cells wait"]


@pytest.mark.parametrize(
    ("stored", "line"),
    [
        (("train.py", "--lr", "1"), "python train.py --lr 1"),
        (("python", "-m", "runmanager", "name=a b"), "python -m runmanager 'name=a b'"),
        ((), ""),
    ],
)
def test_a_stored_command_is_said_as_it_was_typed(stored: tuple[str, ...], line: str) -> None:
    assert typed(stored) == line


@pytest.mark.parametrize(
    ("text", "set_apart"),
    [("lr=1", "`lr=1`"), ("a`b", "``a`b``"), ("a``", "``` a`` ```"), ("`a`b``c", "``` `a`b``c ```")],
)
def test_backticks_within_what_is_set_apart_take_more_around_it(text: str, set_apart: str) -> None:
    assert in_backticks(text) == set_apart
