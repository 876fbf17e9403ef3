"""A search over a Hydra application: by its own command, with groups of its configuration, under other launchers."""

import json
import subprocess
import sys

import pytest

from .conftest import Application

pytest.importorskip("optuna")

WORDS = ("lr=tag(log,interval(0.001,1))", "model=small,big", "hydra.sweeper.search=tpe", "hydra.sweeper.name=found")
RANKED = ("hydra.sweeper.metric=score", "hydra.sweeper.better=min")


def test_both_commands_search_with_the_same_trials(application: Application) -> None:
    done = application.run(*WORDS, *RANKED, "hydra.sweeper.trials=4", "hydra.launcher.workers=2")
    assert done.status == 0, done.err
    assert "Searched: lr from 0.001 to 1 (by its logarithm); model of small, big" in done.out
    cells = {(each.settings["lr"], (each.choices or {})["model"]) for each in application.records("found")}
    assert len(cells) == len(application.started()) == 4 and {model for _, model in cells} <= {"small", "big"}
    assert all(
        f"lr={lr}" in name for lr, name in ((each.settings["lr"], each.name) for each in application.records("found"))
    )

    words = (
        "sweep",
        "train.py",
        "lr=loguniform(0.001,1)",
        "model=small,big",
        "--search",
        "tpe",
        "--trials",
        "6",
        "--name",
        "found",
    )
    ours = [sys.executable, "-m", "runmanager", *words, "--metric", "score", "--better", "min", "--exclude", "lr>0.9"]
    again = subprocess.run(ours, cwd=application.folder, capture_output=True, text=True, timeout=240, check=False)
    assert again.returncode == 0, again.stderr
    assert "4 tried already" in again.stdout and "other settings" not in again.stdout
    assert len(application.records("found")) == len(application.started()) == 6
    assert len(json.loads(application.sweep("found").record.read_text())["commands"]) == 2


def test_another_launcher_gets_a_batch_at_a_time(application: Application) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    done = application.run(
        *WORDS, *RANKED, "hydra.sweeper.trials=10", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"
    )
    assert done.status == 0, done.err
    assert "This launcher of Hydra gets 8 cells at a time" in done.out
    assert len({each.settings["lr"] for each in application.records("found")}) == len(application.started()) == 10


def test_a_missing_limit_is_refused_by_hydras_name(application: Application) -> None:
    done = application.run(*WORDS)
    assert done.status == 2 and not application.started()
    assert "`hydra.sweeper.search` must be given with `hydra.sweeper.trials` or `hydra.sweeper.max_seconds`" in done.err


def test_what_follows_from_a_seed_is_no_further_trial(application: Application) -> None:
    config = application.folder / "conf" / "config.yaml"
    config.write_text(config.read_text() + "seed: 0\nshuffle: ${seed}\n")
    words = (*WORDS, *RANKED, "hydra.sweeper.trials=2", "seed=0,1")
    done = application.run(*words)
    assert done.status == 0, done.err
    again = application.run(*words)
    assert again.status == 0 and "2 tried already" in again.out and len(application.started()) == 4, again.err
