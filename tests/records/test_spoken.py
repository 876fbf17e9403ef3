"""Tests of how settings are said."""

from typing import Any

import pytest

from runmanager.records.spoken import spoken


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
