"""Tests of the commands that call the Hydra application: arguments, status and help."""

from collections.abc import Callable

import pytest

from .conftest import Application

UNTOUCHED = [
    ["lr=0.1,0.01", "device=cpu,cuda", "name=first"],
    ["--dry-run", "lr=0.1", "--quiet", "--yes"],
    ["--cfg", "job"],
    ["lr=0.1", "-c", "job", "--resolve"],
    ["--hydra-help"],
    ["~model.width", "+model.depth=3", "model._target_=mypkg.Net", "hydra.launcher.workers=2"],
    ["model.hidden=[32, 16]", "name=a b"],
]


@pytest.mark.parametrize("words", UNTOUCHED, ids=" ".join)
def test_arguments_reach_the_application_unchanged(
    command: Callable, application: Application, words: list[str]
) -> None:
    assert command("run", *words).status == 0
    assert command("sweep", *words).status == 0
    assert application.calls == [words, ["-m", *words]]


@pytest.mark.parametrize("words", [["--debug", "run", "lr=1"], ["run", "--debug", "lr=1"], ["run", "lr=1", "--debug"]])
def test_debug_at_any_position_reaches_the_application(
    command: Callable, application: Application, words: list[str]
) -> None:
    command(*words)
    assert application.calls == [["lr=1", "--debug"]]


@pytest.mark.parametrize("status", [0, 1, 2, 130])
@pytest.mark.parametrize("name", ["run", "sweep", "demo"])
def test_the_exit_status_is_that_of_the_application(
    command: Callable, application: Application, name: str, status: int
) -> None:
    application.status = status
    assert command(name, "lr=0.1").status == status


@pytest.mark.parametrize(
    "words", [("sweep", "lr=0.1", "--help"), ("sweep", "train.py", "lr=0.1", "-h"), ("sweep",), ("run",)]
)
def test_help_among_overrides_or_no_setting_prints_the_command_help(
    command: Callable, application: Application, words: tuple[str, ...]
) -> None:
    done = command(*words)
    assert done.status == 0
    assert "Usage: runmanager" in done.out and "--launcher-option" in done.out
    assert application.calls == []


def test_run_equals_the_module_call(process: Callable) -> None:
    done = process("run", "--cfg", "job", "lr=0.125")
    assert done.status == 0
    assert "\nlr: 0.125\n" in f"\n{done.out}"
