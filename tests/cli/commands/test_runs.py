"""Tests of the commands on single runs, and of best, report and export: thin, and refusing what cannot be."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from runmanager.cli.completion import sweeps_like
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.record import RunRecord
from runmanager.records.run.status import Status

from ..conftest import write_sweep


@pytest.fixture(autouse=True)
def commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git need not be asked: this is no test of it."""
    monkeypatch.setenv("RUNMANAGER_COMMIT", "abc")


def test_show_tells_of_a_run_named_by_any_part(command: Callable, sweep: SweepPaths) -> None:
    name = next(path.name for path in sweep.runs.iterdir() if "batch_size=100,device=cpu" in path.name)
    texts = {command("show", asked).out for asked in ("batch_size=100,device=cpu", name.rpartition("-")[2], name)}
    assert len(texts) == 1
    (text,) = texts
    assert text.startswith(f"{name}: finished\n")
    assert "  batch_size   100\n" in text
    several = command("show", "batch_size=100,")
    assert (several.status, several.out) == (2, "")
    assert several.err.count("\n") == 1
    assert several.err.count("grid/batch_size=100,device=") == 2


def test_what_a_run_says_does_not_steer_the_terminal(command: Callable, sweep: SweepPaths) -> None:
    run = next(path for path in sweep.runs.iterdir() if "batch_size=100,device=cpu" in path.name)
    (run / "error.txt").write_text("Error: \x1b]0;a title\x07\x1b[2J\n")
    record = msgspec.json.decode((run / "run.json").read_bytes(), type=RunRecord)
    failed = msgspec.structs.replace(record, status=Status.FAILED, message="\x1b[31m")
    (run / "run.json").write_bytes(msgspec.json.encode(failed))
    shown = command("show", "batch_size=100,device=cpu").out
    assert r"  Error: \x1b]0;a title\x07\x1b[2J" in shown
    assert r": failed: \x1b[31m" in shown
    watched = command("watch", "grid", "--once").out
    assert r"\x1b[31m" in watched
    assert "\x1b" not in shown + watched
    assert "\x1b" in (run / "error.txt").read_text()


def test_diff_tells_what_differs_alone(command: Callable, sweep: SweepPaths) -> None:
    sides = "grid/batch_size=100,device=cpu", "grid/batch_size=1000,device=cpu"
    text = command("diff", *sides).out
    assert "  batch_size  100  1000\n" in text
    assert "device" not in text.partition("Settings")[2]
    assert "Of one run each" in text
    plain = json.loads(command("diff", *sides, "--format", "json").out)
    assert plain["settings"] == {"batch_size": [100, 1000]}
    assert "Nothing differs." in command("diff", sides[0], sides[0]).out


def test_reproduce_of_an_own_loop_shows_what_was_given_and_what_is_another_today(
    command: Callable, sweep: SweepPaths
) -> None:
    done = command("reproduce", "batch_size=100,device=cpu")
    assert done.status == 0
    assert "a loop of its own" in done.out
    hardware = done.out.partition("Hardware\n")[2]
    assert "then" in hardware
    assert "today" in hardware
    assert "  Host " in hardware


def test_a_stored_target_is_in_no_command_unless_it_is_trusted(command: Callable, example: SweepPaths) -> None:
    for path in example.runs.glob("*/run.json"):
        record = json.loads(path.read_bytes())
        record["config"]["model"] = {"name": "custom", "_target_": "own.Net"}
        path.write_text(json.dumps(record))
    refused = "A stored `_target_` is data and must name a class of torch.nn.Module below "
    run = "digits/batch_size=100,lr=0.01,seed=1"
    done = command("reproduce", run)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"error: {refused}")
    assert "got own.Net as model._target_; " in done.err
    assert "--trust" in done.err
    assert "model._target_=own.Net" in command("reproduce", run, "--trust").out
    best = command("best", "digits")
    assert best.out.startswith("digits: the best val_accuracy is")
    assert refused in " ".join(best.out.split())
    assert "model._target_=" not in best.out
    trusted = command("best", "digits", "--trust").out
    assert "model._target_=own.Net" in trusted
    assert "best=True, trust=True)" in trusted
    plain = command("best", "digits", "--format", "json")
    assert json.loads(plain.out)["command"] is None
    assert refused in plain.err
    assert (
        "model._target_=own.Net" in json.loads(command("best", "digits", "--trust", "--format", "json").out)["command"]
    )


def test_reproduce_of_a_built_in_model_speaks_of_no_code_of_its_own(command: Callable, example: SweepPaths) -> None:
    run = "digits/batch_size=100,lr=0.01,seed=1"
    assert "It ran no code of your own.\n" in command("reproduce", run).out
    assert "  Own code                    none\n" in command("show", run).out
    for path in example.runs.glob("*/run.json"):
        record = json.loads(path.read_bytes())
        del record["environment"]["code"]
        path.write_text(json.dumps(record))
    assert "Whether its code is the same is not known: the run did not record it.\n" in command("reproduce", run).out
    assert "Own code" not in command("show", run).out


def test_best_is_shown_with_doubt_command_and_weights(command: Callable, sweep: SweepPaths) -> None:
    text = command("best", "grid").out
    assert text.startswith("grid: the best val_accuracy is 0.8800 (n=1) with batch_size=100, device=cpu.")
    assert "not known: too few runs" in text
    assert "none were kept" in text
    plain = json.loads(command("best", "grid", "--where", "batch_size>100", "--format", "json").out)
    assert plain["best"]["settings"] == {"batch_size": 1000, "device": "cpu"}
    assert plain["runner_up"] is None
    next(sweep.runs.iterdir()).joinpath("run.json").write_text("{")
    assert "warning: not read: " in command("best", "grid").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["best", "grid", "--metric", "acuracy"], "did you mean 'accuracy'?"),
        (["best", "grid", "--where", "devise==cpu"], "did you mean 'device'?"),
        (["best", "grid", "--where", "device==cuda"], "no finished run"),
        (
            ["best", "grid", "--where", "lr==7"],
            "`--where` must hold for a run of grid, got none: 0 of 4 runs match lr==7",
        ),
        (["show", "nothing"], "the beginning of a run's name"),
        (["export", "grid", "--to", "parquet", "--uri", "x"], "`--uri` must go with --to mlflow"),
        (["export", "grid", "--to", "mlflow", "--folder", "x"], "`--folder` must go with --to wandb or parquet"),
        (["export", "grid"], "Missing option '--to'"),
        (["table", "grid", "--pivot", "lr"], "must be ROWS:COLUMNS"),
        (["table", "grid", "--where", "lr=1"], "equality is written =="),
        (["report", "grid", "--figures", "pdf"], "'pdf' is not one of 'svg', 'png', 'both'"),
    ],
)
def test_what_cannot_be_is_one_line_and_status_2(
    command: Callable, sweep: SweepPaths, words: list[str], said: str
) -> None:
    done = command(*words)
    assert (done.status, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_report_is_made_anew(command: Callable, sweep: SweepPaths) -> None:
    done = command("report", "grid")
    assert done.out.startswith("outputs/grid/report.html\n")
    assert "<html" in sweep.report.read_text()
    assert sweep.results("csv").exists()


@pytest.mark.parametrize(("given", "kinds"), [("svg", ["svg"]), ("both", ["png", "svg"])])
def test_report_writes_its_figures_as_files(command: Callable, sweep: SweepPaths, given: str, kinds: list[str]) -> None:
    done = command("report", "grid", "--figures", given)
    files = sorted(path.name for path in sweep.figures.iterdir())
    assert {f"{name}.{kind}" for name in ("throughput", "curves") for kind in kinds} <= set(files)
    assert {name.rpartition(".")[2] for name in files} == set(kinds)
    (line,) = [line for line in done.out.splitlines() if line.startswith("In outputs/grid/figures: ")]
    assert sorted(line.removesuffix(".").partition(": ")[2].split(", ")) == files


def test_report_without_a_figure_says_so(command: Callable, tmp_path: Path) -> None:
    empty = write_sweep(tmp_path / "empty", num_epochs=0)
    done = command("report", str(empty.root), "--figures", "png")
    assert done.status == 0
    assert done.out.endswith("No figures: no run has measured anything yet.\n")
    assert not empty.figures.exists()


def test_export_says_what_it_wrote_or_what_it_needs(command: Callable, sweep: SweepPaths, tmp_path: Path) -> None:
    done = command("export", "grid", "--to", "parquet", "--folder", str(tmp_path / "out"))
    if importlib.util.find_spec("pyarrow") is None:
        assert done.status == 2
        assert "pip install 'torch-runmanager[parquet]'" in done.err
    else:
        assert done.out.startswith("4 runs written to ")
        assert (tmp_path / "out" / "runs.parquet").exists()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("runmanager ta", ["table"]),
        ("runmanager table gr", ["grid"]),
        ("runmanager best ", ["grid"]),
        ("runmanager show grid/batch_size=100,device=cp", ["grid/batch_size=100,device=cpu-"]),
        ("runmanager diff DIGITS", ["DIGITS"]),
        ("runmanager table grid --form", ["--format"]),
        ("runmanager table outputs/", ["outputs/grid"]),
        ("runmanager table grid --columns lr,batch", ["lr,batch_size"]),
        ("runmanager table grid --sort samp", ["samples_per_second"]),
        ("runmanager compare grid --axis ", ["any", "batch_size", "device", "lr", "num_workers", "seed"]),
        ("runmanager compare grid --axis device+b", ["device+batch_size"]),
        ("runmanager compare grid --axis batch_size --baseline ", ["1000", "100"]),
        ("runmanager compare grid --crossover num_p", ["num_parameters"]),
        ("runmanager best grid --metric val_", ["val_accuracy", "val_loss"]),
        ("runmanager compare nosuch --axis ", ["any"]),
    ],
)
def test_shell_completes_commands_sweeps_and_runs(
    command: Callable, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch, typed: str, offered: list[str]
) -> None:
    digits = sorted(sweep.runs.iterdir())[0].name.rpartition("-")[2]
    typed, offered = typed.replace("DIGITS", digits[:6]), [each.replace("DIGITS", digits) for each in offered]
    monkeypatch.setenv("_RUNMANAGER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    found = command().out.split()
    assert len(found) == len(offered)
    assert all(one.startswith(start) for one, start in zip(sorted(found), sorted(offered), strict=True))


def test_shell_script_for_completion_is_shown(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    done = command("--show-completion", "zsh")
    assert done.status == 0
    assert "#compdef runmanager" in done.out


def test_a_shell_is_not_offered_a_name_that_it_would_take_for_more_than_a_word(
    sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sweep.root.parents[1])
    for name in ("two words", "a;$(touch b)", "new\nline", "größe=[1,2]"):
        shutil.copytree(sweep.root, sweep.root.with_name(name))
    assert sorted(sweeps_like("")) == ["grid", "größe=[1,2]"]
    assert sorted(sweeps_like("outputs/")) == ["outputs/grid", "outputs/größe=[1,2]"]
