"""Tests of `runmanager table`."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from runmanager import RunManager
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.settings.signature import signature
from runmanager.records.storage.reader import read_epochs, read_record

from ..conftest import process_environment, process_words, rows_of, write_sweep


def test_csv_is_the_results_table(command: Callable, sweep: SweepPaths) -> None:
    rows = rows_of(command("table", "grid", "--format", "csv").out)
    assert list(rows[0])[:7] == ["run", "status", "reason", "lr", "batch_size", "num_workers", "device"]
    assert [(row["batch_size"], row["device"], row["status"], row["epoch_seconds"]) for row in rows] == [
        ("100", "cpu", "finished", "0.1"),
        ("1000", "cpu", "finished", "1.0"),
        ("1000", "cuda", "skipped", ""),
        ("100", "cuda", "skipped", ""),
    ]


def test_every_format_has_every_run(command: Callable, sweep: SweepPaths) -> None:
    assert len(json.loads(command("table", "grid", "--format", "json").out)) == 4
    markdown = command("table", "grid", "--format", "markdown").out
    assert markdown.count("| finished |") == 2
    html = command("table", "grid", "--format", "html").out
    assert "<title>Results of grid</title>" in html
    text = command("table", "grid").out
    assert re.findall(r"^ *(1000?)  cpu", text, re.M) == ["100", "1000"], text
    assert "2 cells with device=cuda are skipped (device_unavailable); --all shows them." in text
    assert command("table", "grid", "--all").out.count("skipped") == 2


def test_a_condition_that_no_run_meets_lists_the_values(command: Callable, sweep: SweepPaths) -> None:
    arguments = ("table", "grid", "--where", "device==gpu and batch_size<0")
    expected = "0 of 4 runs match device==gpu and batch_size<0. Here device is cpu or cuda; batch_size is 100 or 1000."
    assert " ".join(command(*arguments).out.split()) == expected
    done = command(*arguments, "--format", "csv")
    assert (done.status, len(done.out.splitlines()), done.err) == (0, 1, f"warning: {expected}\n")
    assert expected in command("best", *arguments[1:]).err


def test_results_are_computed_from_the_runs_not_from_old_files(command: Callable, sweep: SweepPaths) -> None:
    sweep.results("csv").write_text("stale\n")
    record = next(path for path in sweep.runs.glob("*/run.json") if '"finished"' in path.read_text())
    record.write_text(record.read_text().replace('"finished"', '"failed"'))
    statuses = [row["status"] for row in rows_of(command("table", "grid", "--format", "csv").out)]
    assert sorted(statuses) == ["failed", "finished", "skipped", "skipped"]
    assert sweep.results("csv").read_text() == "stale\n"


@pytest.mark.parametrize(
    ("column", "batch_sizes"),
    [
        ("batch_size", ["100", "100", "1000", "1000"]),
        ("val_accuracy", ["100", "1000", "1000", "100"]),
        ("samples_per_second", ["100", "1000", "1000", "100"]),
        ("device", ["100", "1000", "1000", "100"]),
        ("wall_seconds", ["100", "1000", "1000", "100"]),
    ],
)
def test_sorts_best_first_and_missing_last(
    command: Callable, sweep: SweepPaths, column: str, batch_sizes: list[str]
) -> None:
    rows = rows_of(command("table", "grid", "--format", "csv", "--sort", column).out)
    assert [row["batch_size"] for row in rows] == batch_sizes


def test_sorts_the_largest_last_where_less_is_better(command: Callable, tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", batch_sizes=(10, 1000, 100))
    rows = rows_of(command("table", str(tmp_path / "s"), "--format", "csv", "--sort", "run_seconds").out)
    assert [row["batch_size"] for row in rows if row["status"] == "finished"] == ["10", "100", "1000"]


def test_an_unknown_column_is_rejected_with_the_nearest_name(command: Callable, sweep: SweepPaths) -> None:
    done = command("table", "grid", "--sort", "val_acuracy")
    assert done.status == 2
    assert done.err == (
        "error: `--sort` must name a column of the table, got 'val_acuracy'; did you mean 'val_accuracy'?\n"
    )


class _Terminal:
    """`sys` as it is, but that its standard output says that it is a terminal."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    @property
    def stdout(self) -> Any:
        class Output:
            def __getattr__(self, name: str) -> Any:
                return (lambda: True) if name == "isatty" else getattr(sys.stdout, name)

        return Output()


def test_a_terminal_shows_fifty_rows_and_all_on_request_and_a_pipe_is_whole(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sweep(tmp_path / "many", batch_sizes=range(1, 31), num_epochs=1)
    assert "The first" not in command("table", str(tmp_path / "many"), "--where", "status!=failed").out
    monkeypatch.setattr("runmanager.cli.printing.sys", _Terminal())
    first = command("table", str(tmp_path / "many"), "--where", "status!=failed").out  # skipped cells among them
    assert "The first 50 of 60 runs; --all shows all." in first
    every = command("table", str(tmp_path / "many"), "--all").out
    assert "The first" not in every
    assert len(rows_of(command("table", str(tmp_path / "many"), "--format", "csv").out)) == 60


@pytest.mark.parametrize("made", [(2, 4), (2, 3)])
def test_a_varying_number_of_epochs_has_one_column_unless_a_run_made_others(
    command: Callable, tmp_path: Path, made: tuple[int, ...]
) -> None:
    manager = RunManager(tmp_path / "outputs" / "own", console=False)
    for asked, number in zip((2, 4), made, strict=True):
        with manager.run({"epochs": asked}, torch.nn.Linear(2, 2)) as run:
            for epoch in run.epochs(number):
                epoch.log(loss=0.5)
    heading = command("table", str(tmp_path / "outputs" / "own")).out.partition("─")[0].split()
    assert heading.count("epochs") == 1
    assert ("settings.epochs" in heading) == (made == (2, 3))


def test_a_damaged_run_is_reported_and_the_others_are_shown(command: Callable, sweep: SweepPaths) -> None:
    damaged = RunPaths(sorted(sweep.runs.iterdir())[0])
    damaged.record.write_text("{")
    done = command("table", "grid", "--format", "csv")
    assert done.status == 0
    assert len(rows_of(done.out)) == 3
    assert done.err.startswith(f"warning: not read: {damaged.record.relative_to(sweep.root.parents[1])} is damaged")
    assert "Not read" in command("table", "grid").out


def test_settings_with_the_names_of_measurements_are_shown_as_they_are(command: Callable, tmp_path: Path) -> None:
    manager = RunManager(tmp_path / "outputs" / "own", console=False)
    for size in (1, 2):
        settings = {"cache_bytes": f"{size}G", "drop_share": size / 4, "time_bytes": 2**21 * size}
        with manager.run(settings, torch.nn.Linear(2, 2)) as run:
            for epoch in run.epochs(1):
                epoch.log(loss=0.5)
    text = command("table", str(tmp_path / "outputs" / "own")).out
    assert re.search(r"^1G +0\.25 +2097152 ", text, re.M), text


def test_seeds_share_a_row_without_each(command: Callable, tmp_path: Path) -> None:
    paths = write_sweep(tmp_path / "s", batch_sizes=(1000,))
    (cpu,) = paths.runs.glob("*device=cpu*")
    record = msgspec.json.decode((cpu / "run.json").read_bytes(), type=RunRecord)
    config = record.config | {"seed": 1}
    other = msgspec.structs.replace(record, name="other", signature=signature(config), config=config)
    folder = shutil.copytree(cpu, cpu.with_name("other"))
    (folder / "run.json").write_bytes(msgspec.json.encode(other))
    text = command("table", str(paths.root)).out
    assert "0.7900" in text
    assert "± 0.0000" in text
    assert "--each shows the runs" in " ".join(text.split())
    each = command("table", str(paths.root), "--each").out
    assert "±" not in each
    assert each.count(" 0.7900") == 2, each
    assert len(rows_of(command("table", str(paths.root), "--format", "csv").out)) == 3


def test_a_closed_pipe_is_not_an_error(sweep: SweepPaths, mortal: Callable) -> None:
    with mortal(
        subprocess.Popen(
            process_words("table", "grid", "--format", "csv"),
            env=process_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """Event files of two runs, written by tracking."""
    from runmanager.tracking.tensorboard.event_writer import EventWriter

    for name, accuracies in (("first", [0.5, 0.75]), ("second", [0.75, 0.625])):
        folder = tmp_path / "logs" / name
        folder.mkdir(parents=True)
        writer = EventWriter(folder)
        for step, accuracy in enumerate(accuracies):
            writer.scalars({"val/accuracy": accuracy}, step)
        writer.close()
    return tmp_path / "logs"


def test_event_files_of_other_programs_are_tabulated(command: Callable, logged: Path) -> None:
    found = rows_of(command("table", str(logged), "--events", "--format", "csv").out)
    assert [(row["run"], row["val/accuracy"]) for row in found] == [("first", "0.75"), ("second", "0.625")]
    by_last = command("table", "--events", str(logged), "--format", "csv", "--sort", "best val/accuracy").out
    assert [row["best val/accuracy"] for row in rows_of(by_last)] == ["0.75", "0.75"]
    text = command("table", "--events", str(logged), "--sort", "val/accuracy").out
    assert text.index("first") < text.index("second")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nothing", "--events"], "SWEEP must be a folder with `--events`, got 'nothing'"),
        (["logs", "--events", "--each"], "`--each` must go without --events"),
        (["logs", "--events", "--sort", "val/acc"], "did you mean 'val/accuracy'?"),
    ],
)
def test_an_invalid_table_of_event_files_is_rejected(
    command: Callable, logged: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    monkeypatch.chdir(logged.parent)
    done = command("table", *words)
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert expected in done.err


def test_a_damaged_event_file_is_reported(command: Callable, logged: Path) -> None:
    path = next((logged / "first").iterdir())
    path.write_bytes(path.read_bytes()[:-3] + b"abc")
    done = command("table", str(logged), "--events", "--format", "csv")
    assert done.err.startswith(f"warning: not read: {path} is damaged")
    assert rows_of(done.out)[0]["val/accuracy"] == "0.5"


def test_without_counted_work_the_table_is_empty(command: Callable, sweep: SweepPaths) -> None:
    done = command("table", "grid", "--work", "--format", "csv")
    assert (done.status, len(done.out.splitlines())) == (0, 1)
    assert done.out.startswith("run,lr,batch_size,num_workers,device,flop_per_step,flop_per_second,flop_share,")
    refused = command("table", "grid", "--work", "--each")
    assert (refused.status, refused.err.count("`--each` must go without --work")) == (2, 1)


@pytest.fixture
def logging(sweep: SweepPaths) -> SweepPaths:
    """The sweep after its finished runs logged two metrics and tokens in every epoch: the larger batch more of each."""
    for run in map(RunPaths, sweep.runs.iterdir()):
        if read_record(run).status != "finished":
            continue
        size = read_record(run).config["batch_size"]
        logged = {"metrics": {"val/f1": size / 2000, "val fid": size / 10}, "units": {"tokens": size}}
        epochs = [msgspec.structs.replace(epoch, **logged) for epoch in read_epochs(run)]
        run.epochs.write_bytes(b"".join(msgspec.json.encode(epoch) + b"\n" for epoch in epochs))
    return sweep


@pytest.mark.parametrize(
    ("options", "batch_sizes"),
    [
        (("--where", "val/f1 > 0.1"), ["1000"]),
        (("--where", "`val fid` < 50"), ["100"]),
        (("--where", "tokens_per_second == 1000", "--sort", "val/f1"), ["1000", "100"]),
        (("--where", "val/f1 != null", "--sort", "val fid"), ["100", "1000"]),
    ],
)
def test_logged_metrics_filter_and_sort(
    command: Callable, logging: SweepPaths, options: tuple[str, ...], batch_sizes: list[str]
) -> None:
    rows = rows_of(command("table", "grid", "--format", "csv", *options).out)
    assert [row["batch_size"] for row in rows] == batch_sizes


def test_logged_metrics_are_shown_and_na_where_a_run_has_none(command: Callable, logging: SweepPaths) -> None:
    text = command("table", "grid", "--columns", "batch_size,val/f1,tokens_per_second").out
    assert [line.split() for line in text.splitlines() if line.startswith(" ")][-2:] == [
        ["100", "0.05000", "1,000"],
        ["1000", "0.5000", "1,000"],
    ]
    pivot = rows_of(command("table", "grid", "--pivot", "batch_size:device:val fid", "--format", "csv").out)
    assert [(row["device=cpu"], row["device=cuda"]) for row in pivot] == [("10.0", ""), ("100.0", "")]


def test_a_table_that_shows_everything_names_logged_metrics(command: Callable, logging: SweepPaths) -> None:
    assert "val/f1" in command("table", "grid").out
    assert json.loads(command("table", "grid", "--format", "json").out)[0]["val fid"] == 10.0
    for format_ in ("markdown", "html", "latex"):
        assert "val fid" in command("table", "grid", "--format", format_).out
