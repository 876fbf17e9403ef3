"""`runmanager help SETTING`."""

import re

import pytest
import typer

from runmanager.app.compose.schema import conf_folder
from runmanager.app.request.sweep_request import Kind, options
from runmanager.cli.main import app, run_command

CONFIG = conf_folder() / "config.yaml"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run_command(["help", *words]) == 0
    return capsys.readouterr().out


def test_setting_is_explained(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert printed(capsys, "batch_size").splitlines() == [
        "batch_size: Samples of an optimiser step.",
        "  type     int",
        "  default  1000",
        "  values   at least 1",
    ]
    assert printed(capsys, "batch_size=100") == printed(capsys, "batch_size")
    text = printed(capsys, "hydra.sweeper.resume")
    assert "only with  hydra/sweeper=runmanager" in text and "auto, never, must" in text


def test_setting_of_several_choices_is_explained_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "optimizer.weight_decay")
    assert "only with  optimizer=sgd, adam\n" in text
    assert "only with  optimizer=adamw\n" in text


def test_group_lists_its_choices_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "optimizer")
    assert "choices (default adam)" in text and "optimizer=sgd" in text
    assert "optimizer.betas" in text and "optimizer.momentum" not in text, "the settings are those of the default"
    assert "`runmanager help optimizer=adamw` lists those of another choice." in text
    of_sgd = printed(capsys, "optimizer=sgd")
    assert "optimizer.momentum" in of_sgd and "optimizer.betas" not in of_sgd
    assert "(mlp) Widths" in printed(capsys, "model"), "the default has no settings of its own"
    assert "torchmetrics" in printed(capsys, "metrics.f1._target_=torchmetrics.F1Score")
    assert printed(capsys, "hydra/launcher") == printed(capsys, "hydra.launcher")


def test_command_has_the_same_text_as_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "table")
    assert run_command(["table", "--help"]) == 0
    assert capsys.readouterr().out.split() == text.split()


def test_name_of_a_group_and_a_command_is_the_group_and_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "tensorboard")
    assert text.startswith("tensorboard: ") and "tensorboard.histograms" in text
    assert text.endswith("`runmanager tensorboard --help` explains the command of this name.\n")


def test_without_a_name_every_setting_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys)
    assert all(name in text for name in ("num_workers", "scheduler.gamma", "hydra.launcher.retries", "loss=huber"))


def test_unknown_choice_is_one_line_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["help", "hydra/launcher=slrum"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "error: `help` must name a choice of hydra/launcher, got 'slrum'; did you mean 'slurm'?"


@pytest.mark.parametrize(("word", "nearest"), [("batch_sise", "'batch_size'"), ("momentum", "'optimizer.momentum'")])
def test_unknown_name_is_one_line_with_the_nearest(capsys: pytest.CaptureFixture[str], word: str, nearest: str) -> None:
    assert run_command(["help", word]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: `help` must name a setting or a command, got '{word}'; did you mean")
    assert nearest in line


@pytest.mark.parametrize("command", ["sweep", "run", "python -m runmanager"])
def test_help_names_every_flag_of_the_built_in_job(capsys: pytest.CaptureFixture[str], command: str) -> None:
    text = CONFIG.read_text() if command.startswith("python") else printed(capsys, command)
    flags = [each.flag for each in options().values() if Kind.JOB in each.takes]
    if command.startswith("python"):  # the others are settings of Hydra there, which its help lists
        flags = ["--dry-run", "--quiet", "--yes", "--debug", "--restore", "--zip", "--points", "--exclude", "--save"]
    assert [flag for flag in flags if flag not in text] == []


def test_help_of_every_command_lists_every_flag_that_it_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As rows of its options, not in prose: flags that are parsed, those passed on to the job, and `--debug`."""
    monkeypatch.setenv("COLUMNS", "80")
    commands = typer.main.get_command(app).commands
    assert len(commands) > 20
    for name, command in commands.items():
        assert run_command([name, "--help"]) == 0
        listed = set(re.findall(r"^│[ *]+(?:-\w[ ,]+)?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE))
        taken = {option for each in command.params for option in each.opts if option.startswith("--")}
        taken |= {"--debug", "--help"}
        taken |= {"--dry-run", "--quiet", "--secrets"} if name == "duel" else set()
        assert sorted(taken - listed) == [], name
