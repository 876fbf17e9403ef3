"""Tests of what is kept of the code and the command that a run was made with."""

import sys

import pytest

from runmanager.tracking.environment.environment import COMMAND_VARIABLE, command_line


@pytest.mark.parametrize("is_told", [False, True])
def test_words_of_a_command_that_are_no_utf_8_can_be_kept(monkeypatch: pytest.MonkeyPatch, is_told: bool) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "a b", "data/\udcff"])
    monkeypatch.delenv(COMMAND_VARIABLE, raising=False)
    if is_told:
        monkeypatch.setenv(COMMAND_VARIABLE, "train.py 'a b' data/\udcff")
    assert command_line() == ("train.py", "a b", "data/\\udcff")
