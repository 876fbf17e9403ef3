"""Tests of commands that are refused: one readable line for each fault, and nothing is run or written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REFUSED = {
    "unknown key": (["lrr=0.1"], ["`lrr` must be a setting, got an unknown name; did you mean 'lr'?"]),
    "unknown key in a group": (["model=mlp", "model.hiden=[3]"], ["`model.hiden` must be a setting", "'model.hidden'"]),
    "wrong type": (["lr=abc"], ["`lr` must be", "got 'abc'"]),
    "wrong type in a list": (["model=mlp", "model.hidden=[1,x]"], ["`model.hidden` must be", "got '[1,x]'"]),
    "bad value": (["batch_size=0"], ["`batch_size` must be at least 1, got 0."]),
    "contradiction": (["loader=resident", "num_workers=1"], ["`num_workers` must be 0 with `loader=resident`, got 1;"]),
    "unknown choice": (["model=cnnn"], ["`model` must be one of cnn, custom, ", "got cnnn; did you mean 'cnn'?"]),
    "unknown preset": (["experiment=digits"], ["`experiment` must be one of colab_mnist,", "'digits_quick'"]),
    "a text to be quoted": (
        ["name=änd"],
        ["""a text with such characters is written 'name="änd"'."""],
    ),
    "unreadable": (["lr=[1,"], ["`lr=[1,` must be an override like lr=0.1, got what Hydra cannot read:"]),
    "no override": (["lr"], ["`lr` must be NAME=VALUE, got no value; write lr=…"]),
    "a grid without -m": (["lr=1,2"], ["`lr=1,2` must be one value in a single run, got a grid; add -m"]),
    "an axis that tells no runs apart": (["-m", "name=a,b"], ["`name` must have one value in a sweep"]),
    "a measurement that is not there": (["measure.name=paired"], ["`measure.name` must stay 'single'"]),
    "a rate that would rise": (
        ["scheduler=cosine", "scheduler.min_lr=1"],
        ["`scheduler.min_lr` must be below `lr`=0.01"],
    ),
    "a setting of another choice": (
        ["measure.max_seconds=3"],
        ["`measure.max_seconds` must be given with `measure=paired`, got another choice."],
    ),
    "a setting that nothing heeds": (["+foo=3"], ["`+foo` must be a setting, got an unknown name"]),
    "an interval": (["-m", "lr=interval(0,1)"], ["`lr=interval(0,1)` must list its values"]),
    "no worker": (["hydra.launcher.workers=0"], ["`hydra.launcher.workers` must be at least 1, got 0."]),
    "unknown Hydra key": (["hydra.launcher.wokers=2"], ["`hydra.launcher.wokers` is no setting of Hydra's"]),
    "another launcher's key": (
        ["hydra/launcher=basic", "hydra.launcher.workers=2"],
        ["`hydra.launcher.workers` is no setting of Hydra's"],
    ),
    "no target": (["model=custom"], ["`model._target_` must be given, got nothing;"]),
    "a name that leaves the folder": (["name=../up"], ["`name` must be the name of one folder"]),
    "a setting without use": (
        ["loader.prefetch_factor=4"],
        ["`loader.prefetch_factor` must be given with workers, got"],
    ),
    "a setting without use in a mapping": (
        ["early_stop={patience:5}"],
        ["`early_stop.patience` must be given with `early_stop.metric`, got no metric;"],
    ),
    "a setting without use in any cell": (
        ["-m", "device=cpu", "loader.pin_memory=true,null"],
        ["`loader.pin_memory` must be false or null with `device=cpu`, got true;"],
    ),
    "a limit behind a limit": (
        ["hydra.launcher.timeout=5", "hydra.launcher.stall_timeout=10"],
        ["`hydra.launcher.stall_timeout` must be below `hydra.launcher.timeout`=5, got 10.0."],
    ),
    "Hydra's own folder": (["hydra.sweep.dir=there"], ["`hydra.sweep.dir` must be left to this application"]),
    "rerun what, without a name": (["rerun_changed=true"], ["`name` must be given with `rerun_changed=true`"]),
    "rerun anew what runs anew": (
        ["name=x", "resume=never", "rerun_changed=true"],
        ["`rerun_changed` must be false with `resume=never`"],
    ),
    "must resume, but what": (["resume=must"], ["`name` must be given with `resume=must`"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_line_says_what_is_wrong(command: Callable[..., Any], tmp_path: Path, name: str) -> None:
    words, said = REFUSED[name]
    done = command(*words)
    assert done.status == 2, done.out
    (line,) = done.faults
    assert line.startswith("error: ")
    for part in said:
        assert part in line
    assert "Traceback" not in done.out + done.err
    assert list(tmp_path.iterdir()) == []


def test_all_faults_of_all_cells_are_said_at_once(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("-m", "lr=abc,0.1", "batch_size=0,10", "num_workers=-1", "epocs=3", "model=mlp", "model.hidden=[]")
    assert done.status == 2
    assert all(line.startswith("error: `") for line in done.faults)
    keys = [line.split("`")[1] for line in done.faults]
    assert sorted(keys) == ["batch_size", "epocs", "lr", "model.hidden", "num_workers"]
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_choice_hides_no_other_fault(command: Callable[..., Any]) -> None:
    done = command("-m", "model=cnn,cnnn", "optimizer=adan", "lr=abc", "batch_sise=3", "num_workers=-1", "model.x=3")
    keys = [line.split("`")[1] for line in done.faults]
    assert sorted(set(keys) - {"model.x"}) == ["batch_sise", "lr", "model", "num_workers", "optimizer"]
    assert len([key for key in keys if key != "model.x"]) == 5


def test_a_wrong_choice_is_blamed_for_nothing_that_it_might_have_held(command: Callable[..., Any]) -> None:
    done = command("model=mlpp", "model.hidden=[3]", "dataset=disc")
    (line,) = done.faults
    assert line.startswith("error: `model` must be one of")


def test_debug_shows_where(command: Callable[..., Any]) -> None:
    done = command("lr=0", "--debug")
    assert done.status == 2
    assert done.err.startswith("Traceback")
    assert done.faults[-1] == "error: `lr` must be above 0 and finite, got 0.0."


def test_choices_are_named_without_their_schemas(command: Callable[..., Any]) -> None:
    groups = ("dataset", "model", "optimizer", "scheduler", "loader", "measure")
    lines = command(*(f"{group}=nothing" for group in groups)).faults + command("experiment=nothing").faults
    for group, line in zip((*groups, "experiment"), lines, strict=True):
        assert line.startswith(f"error: `{group}` must be one of ")
        assert "schema" not in line
