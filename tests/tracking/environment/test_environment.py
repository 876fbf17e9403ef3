"""The recorded command line."""

import sys

import pytest

from runmanager.tracking.environment.environment import COMMAND_VARIABLE, command_line


@pytest.mark.parametrize("is_inherited", [False, True])
def test_words_outside_utf_8_are_escaped(monkeypatch: pytest.MonkeyPatch, is_inherited: bool) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "a b", "data/\udcff"])
    monkeypatch.delenv(COMMAND_VARIABLE, raising=False)
    if is_inherited:
        monkeypatch.setenv(COMMAND_VARIABLE, "train.py 'a b' data/\udcff")
    assert command_line() == ("train.py", "a b", "data/\\udcff")
