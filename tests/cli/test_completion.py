"""Tests of shell completion."""

import shutil
from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from runmanager.cli.arguments import complete_sweeps
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.run_record import EpochRecord
from runmanager.results.result_files import write_tables


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("runmanager tab", ["table"]),
        ("runmanager table gr", ["grid"]),
        ("runmanager best ", ["grid"]),
        ("runmanager show grid/batch_size=100,device=cp", ["grid/batch_size=100,device=cpu-"]),
        ("runmanager diff DIGITS", ["DIGITS"]),
        ("runmanager table grid --form", ["--format"]),
        ("runmanager u", ["ui"]),
        ("runmanager ui --no", ["--no-open"]),
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
def test_commands_sweeps_and_runs_are_completed(
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


def test_logged_metrics_of_the_written_table_are_completed(
    command: Callable, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunPaths(next(path for path in sorted(sweep.runs.iterdir()) if "device=cpu" in path.name))
    with run.epochs.open("a") as file:
        file.write('{"epoch": 8, "metrics": {"val/f1": 0.5}}\n')
    write_tables(sweep, report=False)
    monkeypatch.setenv("_RUNMANAGER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "runmanager table grid --columns lr,val/")
    monkeypatch.setenv("COMP_CWORD", "4")
    assert command().out.split() == ["lr,val/f1"]


def test_the_completion_script_is_printed(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    done = command("--show-completion", "zsh")
    assert done.status == 0
    assert "#compdef runmanager" in done.out


def test_names_with_shell_syntax_are_not_completed(sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sweep.root.parents[1])
    for name in ("two words", "a;$(touch b)", "new\nline", "größe=[1,2]"):
        shutil.copytree(sweep.root, sweep.root.with_name(name))
    assert sorted(complete_sweeps("")) == ["grid", "größe=[1,2]"]
    assert sorted(complete_sweeps("outputs/")) == ["outputs/grid", "outputs/größe=[1,2]"]


def test_logged_metrics_and_rates_of_a_sweep_are_completed(
    command: Callable, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in sweep.runs.glob("*/epochs.jsonl"):
        epochs = [msgspec.json.decode(line, type=EpochRecord) for line in path.read_bytes().splitlines()]
        logged = [replace(epoch, metrics={"val_f1": 0.5}, units={"val_tokens": 3}) for epoch in epochs]
        path.write_bytes(b"".join(msgspec.json.encode(epoch) + b"\n" for epoch in logged))
    monkeypatch.setenv("_RUNMANAGER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "runmanager compare grid --metric val_")
    monkeypatch.setenv("COMP_CWORD", "4")
    assert command().out.split() == ["val_accuracy", "val_loss", "val_f1", "val_tokens_per_second"]
