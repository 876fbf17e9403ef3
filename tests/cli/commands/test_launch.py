"""Tests of the commands that run something: what reaches the application, and that it truly runs."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


class Application:
    """Stands in for the Hydra application: takes its arguments down and returns `status`."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.status = 0

    def main(self, arguments: list[str]) -> int:
        self.calls.append(arguments)
        return self.status


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Application:
    application = Application()
    module = ModuleType("runmanager.app.main")
    module.main = application.main  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "runmanager.app.main", module)
    return application


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
def test_arguments_reach_the_application_untouched(
    command: Callable, application: Application, words: list[str]
) -> None:
    assert command("run", *words).status == 0
    assert command("sweep", *words).status == 0
    assert application.calls == [words, ["-m", *words]]


@pytest.mark.parametrize("words", [["--debug", "run", "lr=1"], ["run", "--debug", "lr=1"], ["run", "lr=1", "--debug"]])
def test_debug_reaches_the_application_from_anywhere(
    command: Callable, application: Application, words: list[str]
) -> None:
    command(*words)
    assert application.calls == [["lr=1", "--debug"]]


@pytest.mark.parametrize("status", [0, 1, 2, 130])
@pytest.mark.parametrize("name", ["run", "sweep", "demo"])
def test_status_is_the_application_s(command: Callable, application: Application, name: str, status: int) -> None:
    application.status = status
    assert command(name).status == status


def test_help_among_overrides_is_ours(command: Callable, application: Application) -> None:
    done = command("sweep", "lr=0.1", "--help")
    assert done.status == 0
    assert "--hydra-help" in done.out
    assert application.calls == []


def test_demo_runs_its_preset_in_a_folder_of_its_own(command: Callable, application: Application) -> None:
    command("demo")
    command("demo", "epochs=1", "name=mine", "output_root=there")
    preset, name, root, *rest = application.calls[0]
    assert (preset, root, rest) == ("experiment=digits_quick", "output_root=outputs", ["--yes"])
    assert name.startswith("name=demo-")
    assert application.calls[1] == ["experiment=digits_quick", "name=mine", "output_root=there", "--yes", "epochs=1"]


def test_run_is_the_same_as_the_module(process: Callable) -> None:
    done = process("run", "--cfg", "job", "lr=0.125")
    assert done.status == 0
    assert "\nlr: 0.125\n" in f"\n{done.out}"


def test_demo_says_where_everything_is(process: Callable, tmp_path: Path) -> None:
    done = process("demo", "name=mine", "epochs=1", "dataset.size=2000", "dataset.val_size=200", "device=cpu")
    assert done.status == 0, done.err
    for said in ("All files lie in outputs/mine.", "outputs/mine/report.html", "runmanager tensorboard outputs/mine"):
        assert said in done.out
    for name in ("sweep.json", "results.csv", "comparison.csv", "report.html"):
        assert (tmp_path / "outputs" / "mine" / name).exists()
