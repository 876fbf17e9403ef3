"""Tests of the commands on what is stored: they show what is on disk now, in every form, and lose nothing."""

import csv
import io
import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.record import EpochRecord, RunRecord
from runmanager.records.settings.signature import signature

from ..conftest import process_environment, process_words, write_sweep


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


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
    assert text.count("finished") == 2
    assert text.count("device_unavailable") == 2 or text.count("skipped") == 2


def test_a_comparison_for_a_paper_has_its_reasons_as_notes(command: Callable, sweep: SweepPaths) -> None:
    latex = command("compare", "grid", "--axis", "batch_size", "--format", "latex").out
    assert latex.count("tabular") == 2
    (number,) = {line.split("&")[-1].strip(" \\") for line in latex.splitlines() if "not measured &" in line}
    assert f"\n% {number} cuda" in latex or f"\n% {number} " in latex
    html = command("compare", "grid", "--axis", "batch_size", "--format", "html").out
    assert "<title>Comparison of grid</title>" in html
    assert number in html


def test_a_condition_that_no_run_meets_says_what_there_is(command: Callable, sweep: SweepPaths) -> None:
    asked = ("table", "grid", "--where", "device==gpu and batch_size<0")
    said = "0 of 4 runs match device==gpu and batch_size<0. Here device is cpu or cuda; batch_size is 100 or 1000."
    assert " ".join(command(*asked).out.split()) == said
    done = command(*asked, "--format", "csv")
    assert (done.status, len(done.out.splitlines()), done.err) == (0, 1, f"warning: {said}\n")
    assert said in command("best", *asked[1:]).err


def test_shows_what_the_runs_say_now_never_an_older_file(command: Callable, sweep: SweepPaths) -> None:
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


def test_unknown_column_is_refused_with_the_nearest(command: Callable, sweep: SweepPaths) -> None:
    done = command("table", "grid", "--sort", "val_acuracy")
    assert done.status == 2
    assert done.err == (
        "error: `--sort` must name a column of the table, got 'val_acuracy'; did you mean 'val_accuracy'?\n"
    )


def test_text_shows_fifty_rows_and_all_on_request(command: Callable, tmp_path: Path) -> None:
    write_sweep(tmp_path / "many", batch_sizes=range(1, 31), num_epochs=1)
    first = command("table", str(tmp_path / "many")).out
    assert "The first 50 of 60 runs; --all shows all." in first
    every = command("table", str(tmp_path / "many"), "--all").out
    assert "The first" not in every
    assert len(rows_of(command("table", str(tmp_path / "many"), "--format", "csv").out)) == 60


def test_damaged_run_is_said_and_drops_no_other(command: Callable, sweep: SweepPaths) -> None:
    damaged = RunPaths(sorted(sweep.runs.iterdir())[0])
    damaged.record.write_text("{")
    done = command("table", "grid", "--format", "csv")
    assert done.status == 0
    assert len(rows_of(done.out)) == 3
    assert done.err.startswith(f"warning: not read: {damaged.record.relative_to(sweep.root.parents[1])} is damaged")
    assert "Not read" in command("table", "grid").out


READERS = [
    ("table", "grid", "--format", "csv"),
    ("compare", "grid", "--axis", "batch_size", "--format", "csv"),
    ("best", "grid"),
    ("report", "grid"),
    ("watch", "grid", "--once"),
    ("export", "grid", "--to", "parquet"),
]


@pytest.mark.parametrize("arguments", READERS, ids=[arguments[0] for arguments in READERS])
def test_one_byte_that_is_no_text_drops_no_other_run(
    command: Callable, sweep: SweepPaths, arguments: Sequence[str]
) -> None:
    damaged = RunPaths(sorted(sweep.runs.iterdir())[0])
    for path, text in ((damaged.record, b'"host": "here'), (sweep.record, b'"signature": "')):
        whole = path.read_bytes()
        assert text in whole
        path.write_bytes(whole.replace(text, text + b"\xff", 1))
        done = command(*arguments)
        said = done.out + done.err + (sweep.report.read_text() if arguments[0] == "report" else "")
        assert f"{path.relative_to(sweep.root.parents[1])} is damaged: its text must be UTF-8" in said
        is_refused = arguments[0] == "watch" and path == sweep.record  # it cannot know what is still to come
        assert done.status == (2 if is_refused else 1 if arguments[0] == "watch" else 0)
        path.write_bytes(whole)


def test_comparison_says_its_answer_and_its_reasons(command: Callable, sweep: SweepPaths) -> None:
    text = command("compare", "grid").out
    assert text.count("not measured") >= 2
    assert "device_unavailable" in text
    assert "4 runs: 2 finished, 2 skipped." in text


def test_comparison_along_another_axis(command: Callable, sweep: SweepPaths) -> None:
    rows = rows_of(command("compare", "grid", "--axis", "batch_size", "--format", "csv").out)
    (row,) = [row for row in rows if row["device"] == "cpu"]
    assert (row["baseline"], row["candidate"], row["speedup"], row["verdict"]) == ("1000", "100", "10.0", "faster")
    turned = rows_of(command("compare", "grid", "--axis", "batch_size", "--baseline", "100", "--format", "csv").out)
    assert [row["verdict"] for row in turned if row["device"] == "cpu"] == ["slower"]


def test_drift_decides_what_is_a_difference_and_the_margin_what_is_none(command: Callable, tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", batch_sizes=(1000, 600))
    words = ["compare", str(tmp_path / "s"), "--axis", "batch_size", "--baseline", "600", "--format", "json"]
    verdicts = [
        next(row["verdict"] for row in json.loads(command(*words, *more).out) if row["device"] == "cpu")
        for more in (["--drift", "0"], ["--drift", "0.5"], ["--drift", "0.5", "--margin", "0.99"])
    ]
    assert verdicts == ["slower", "inconclusive", "no difference"]


def test_comparison_by_another_metric_and_along_any_axis(command: Callable, sweep: SweepPaths) -> None:
    words = ["compare", "grid", "--axis", "any", "--metric", "epoch_seconds", "--format", "csv"]
    rows = rows_of(command(*words).out)
    assert {row["axis"] for row in rows} == {"batch_size", "device"}
    assert {row["metric"] for row in rows} == {"epoch_seconds"}
    (row,) = [row for row in rows if row["device"] == "cpu"]
    assert (row["baseline_value"], row["candidate_value"], row["speedup"]) == ("1.0", "0.1", "10.0")
    text = command(*words[:-2]).out
    assert "batch_size=100 is 10.0 times as fast as batch_size=1000 by epoch_seconds" in " ".join(text.split())


def test_crossover_that_was_asked_for_is_answered(command: Callable, sweep: SweepPaths) -> None:
    for format_ in ("text", "markdown"):
        text = " ".join(command("compare", "grid", "--crossover", "batch_size", "--format", format_).out.split())
        assert "No crossover along batch_size: no two sides were both measured at two of its values." in text


def test_what_bounds_the_compared_runs_stands_below_the_table(command: Callable, sweep: SweepPaths) -> None:
    for path in sweep.runs.glob("*/epochs.jsonl"):
        epochs = [msgspec.json.decode(line, type=EpochRecord) for line in path.read_bytes().splitlines()]
        slow = [msgspec.structs.replace(epoch, data_seconds=0.75 * (epoch.epoch_seconds or 0)) for epoch in epochs]
        path.write_bytes(b"".join(msgspec.json.encode(epoch) + b"\n" for epoch in slow))
    found = " ".join(command("compare", "grid").out.split())
    assert "cpu (input): 75% of the training epoch waits for data (" in found
    assert "at most 4.00 times as fast in training, and so at most " in found
    assert "waits for data (" in command("compare", "grid", "--format", "markdown").out


def test_seeds_are_one_row_unless_each_is_asked_for(command: Callable, tmp_path: Path) -> None:
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
    assert each.count("finished") == 2
    assert len(rows_of(command("table", str(paths.root), "--format", "csv").out)) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--axis", "devise"], "`--axis` must be a setting of the runs, got 'devise'; did you mean 'device'?"),
        (["--baseline", "mps"], "`--baseline` must be a value of 'device', got 'mps'; its values are cpu, cuda."),
        (["--drift", "2"], "`--drift` must be at least 0 and below 1, got 2.0; 0.1 means 10%."),
        (["--format", "excel"], "format"),
        (["--metric", "epoch_secs"], "did you mean 'epoch_seconds'"),
        (["--axis", "any", "--baseline", "cpu"], "name the axis"),
        (["--crossover", "lr", "--format", "csv"], "it is a sentence"),
        (["--crossover", "device"], "that is not compared itself"),
    ],
)
def test_comparison_that_cannot_be_is_refused(
    command: Callable, sweep: SweepPaths, words: list[str], said: str
) -> None:
    done = command("compare", "grid", *words)
    assert (done.status, done.out) == (2, "")
    assert said in done.err


def test_where_there_is_nothing_to_compare_only_that_is_said(command: Callable, sweep: SweepPaths) -> None:
    said = command("compare", "grid", "--axis", "num_workers").out
    assert "Nothing to compare" in said.splitlines()[0]
    assert "speedup" not in said


def test_comparison_formats(command: Callable, sweep: SweepPaths) -> None:
    axes = [row["axis"] for row in json.loads(command("compare", "grid", "--format", "json").out)]
    assert axes == ["device", "device"]
    assert "compared as well" in " ".join(command("compare", "grid").out.split())
    assert "| verdict |" in command("compare", "grid", "--format", "markdown").out


def test_reader_that_leaves_early_is_no_error(sweep: SweepPaths, mortal: Callable) -> None:
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
    """Event files as tracking writes them, of two runs."""
    from runmanager.tracking.tensorboard.event_writer import EventWriter

    for name, accuracies in (("first", [0.5, 0.75]), ("second", [0.75, 0.625])):
        folder = tmp_path / "logs" / name
        folder.mkdir(parents=True)
        writer = EventWriter(folder)
        for step, accuracy in enumerate(accuracies):
            writer.scalars({"val/accuracy": accuracy}, step)
        writer.close()
    return tmp_path / "logs"


def test_event_files_of_other_programs_have_a_table(command: Callable, logged: Path) -> None:
    found = rows_of(command("table", str(logged), "--events", "--format", "csv").out)
    assert [(row["run"], row["val/accuracy"]) for row in found] == [("first", "0.75"), ("second", "0.625")]
    by_last = command("table", "--events", str(logged), "--format", "csv", "--sort", "best val/accuracy").out
    assert [row["best val/accuracy"] for row in rows_of(by_last)] == ["0.75", "0.75"]
    text = command("table", "--events", str(logged), "--sort", "val/accuracy").out
    assert text.index("first") < text.index("second")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing", "--events"], "SWEEP must be a folder with `--events`, got 'nothing'"),
        (["logs", "--events", "--each"], "`--each` must go without --events"),
        (["logs", "--events", "--sort", "val/acc"], "did you mean 'val/accuracy'?"),
    ],
)
def test_a_table_of_event_files_that_cannot_be_is_refused(
    command: Callable, logged: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(logged.parent)
    done = command("table", *words)
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


def test_a_damaged_event_file_is_said_beside_the_file(command: Callable, logged: Path) -> None:
    path = next((logged / "first").iterdir())
    path.write_bytes(path.read_bytes()[:-3] + b"abc")
    done = command("table", str(logged), "--events", "--format", "csv")
    assert done.err.startswith(f"warning: not read: {path} is damaged")
    assert rows_of(done.out)[0]["val/accuracy"] == "0.5"


def test_the_work_of_runs_that_counted_none_is_an_empty_table(command: Callable, sweep: SweepPaths) -> None:
    done = command("table", "grid", "--work", "--format", "csv")
    assert (done.status, len(done.out.splitlines())) == (0, 1)
    assert done.out.startswith("run,lr,batch_size,num_workers,device,flop_per_step,flop_per_second,flop_share,")
    refused = command("table", "grid", "--work", "--each")
    assert (refused.status, refused.err.count("`--each` must go without --work")) == (2, 1)
