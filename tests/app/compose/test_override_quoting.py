"""Tests that Hydra parses formatted overrides to the same values."""

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st

from runmanager.app.request.command import format_override

VALUES = [None, True, 0, -3, 1e-8, "adam", "a/b.c", [1, 2.5, "x"], {"a": 1, "b": [True, None]}]
TEXTS = ["a b", "a,b", 'say "hi"', "c:\\x\\", '\\"', "(1)", "x=y", "", "[1]", "{", "#", "\u03c0", "choice(1,2)"]
TEXTS += ["1", "-1", "1e5", ".5", "1_000", "+inf", "NaN", "true", "False", "null", "1.5E-3", "1.2.3"]


def read_back(word: str) -> Any:
    (override,) = OverridesParser.create().parse_overrides([word])
    assert override.key_or_group == "key"
    assert not override.is_sweep_override()
    return override.value()


@pytest.mark.parametrize("value", VALUES)
def test_plain_values_round_trip(value: Any) -> None:
    assert read_back(format_override("key", value)) == value


@pytest.mark.parametrize("text", TEXTS)
def test_texts_with_a_meaning_to_hydra_are_quoted(text: str) -> None:
    assert read_back(format_override("key", text)) == text


@settings(max_examples=25)  # Hydra's parser is slow
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])))
def test_every_text_round_trips(text: str) -> None:
    assert read_back(format_override("key", text)) == text
