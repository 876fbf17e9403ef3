"""Tests of secrets in the settings of commands; tests/reliability/secret_search.py searches what programs leave."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MODEL = """
import torch

class Net(torch.nn.Linear):
    def __init__(self, in_shape, num_classes, api_key, width=3):
        assert api_key == "the-key", "another key"
        super().__init__(in_shape[-1], num_classes)

    def forward(self, images):
        return super().forward(images.flatten(1, 2).mean(1))
"""


@pytest.fixture
def words(tmp_path: Path, tiny: tuple[str, ...]) -> tuple[str, ...]:
    (tmp_path / "secretive.py").write_text(MODEL)
    return ("-m", *tiny, "model=custom", "model._target_=secretive.Net")


def test_cells_that_differ_in_a_secret_alone_are_one(command: Callable[..., Any], words: tuple[str, ...]) -> None:
    done = command(*words, "+model.api_key=the-key,another", "lr=0.1,0.2", "name=one", "--dry-run")
    assert done.status == 0, done.err
    assert "`model.api_key` is a secret, which counts by its name alone" in done.out
    assert "2 cells: 2 start" in done.out and "the-key" not in done.out and "another" not in done.out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["hydra/launcher=basic"], "`model.api_key` must come from the environment under this launcher"),
        (["--save", "mine"], "`+model.api_key` must come from the environment with `--save`"),
        (["++model.api_key=***"], "`model.api_key` must be given its own text, got the mask *** of a record"),
        (["lr=the-key"], "got '***'"),
    ],
)
def test_a_text_that_would_be_stored_or_shown_is_refused(
    command: Callable[..., Any], words: tuple[str, ...], tmp_path: Path, more: list[str], message: str
) -> None:
    done = command(*words, "+model.api_key=the-key", "name=no", *more)
    assert done.status == 2 and message in done.err and "the-key" not in done.out + done.err
    assert not (tmp_path / "outputs").exists() and not (tmp_path / "conf").exists()


def test_a_secret_of_the_environment_is_recorded_by_its_text_and_given_by_its_value(
    command: Callable[..., Any], sweep: Callable[[str], Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    given = (*words, "+model.api_key=${oc.env:KEY_OF_A_TEST}", "name=env")
    assert command(*given, KEY_OF_A_TEST="the-key").status == 0
    (record,) = sweep("env").records
    assert record.settings["model.api_key"] == "${oc.env:KEY_OF_A_TEST}"
    again = command(*given, "--dry-run", KEY_OF_A_TEST="another-key")
    assert "1 keep" in again.out  # it counts by its text
    found = [path for path in (tmp_path / "outputs").rglob("*") if path.is_file() and b"the-key" in path.read_bytes()]
    assert found == []
    plan = json.loads(sweep("env").paths.record.read_text())
    assert plan["command"][-2:] == ["+model.api_key=${oc.env:KEY_OF_A_TEST}", "name=env"]
