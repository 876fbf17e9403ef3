"""Tests that arguments that cannot apply are refused in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runmanager.records.files.paths import SweepPaths

from .conftest import shown_in_terminal


def test_errors_and_warnings_are_wrapped_in_a_terminal_and_whole_in_a_pipe(
    command: Callable, sweep: SweepPaths
) -> None:
    next(sweep.runs.iterdir()).joinpath("run.json").write_text("{")
    for words in (["table", "grid", "--sort", "val_acuracyy"], ["best", "grid", "--format", "json"]):
        (whole,) = command(*words).err.splitlines()
        assert len(whole) > 80
        lines = shown_in_terminal(*words, columns=80)
        begin = next(index for index, line in enumerate(lines) if line.startswith(("error: ", "warning: ")))
        assert " ".join(lines[begin:]).startswith(whole)
        assert all(len(line) <= 80 or " " not in line for line in lines)


@pytest.mark.parametrize(
    "words",
    [
        *(["ls"], ["table", "first"], ["ui", "--no-open", "--port", "0"], ["adopt", "."], ["demo"], ["doctor"]),
        *(["sweep", "lr=0.1"], ["sweep", "train.py", "lr=0.1"], ["run", "/train.py"]),
    ],
)
def test_a_current_folder_that_was_removed_is_one_line(
    words: list[str], command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = command(*words)
    assert (done.status, done.out) == (2, "")
    assert done.err == "error: The current folder must exist, got one that was removed; change to another one.\n"


@pytest.mark.parametrize(
    ("words", "expected"),
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
        (["table", "grid", "grid2"], "Did you mean 'grid'?"),
        (["table", "grid", "outputs", "--events"], "`--events` must go with one sweep, got 2"),
        (["ls", "nothing"], "ROOT must be a folder, got 'nothing': nothing there."),
        (["ls", "--where", "faild>0"], "did you mean 'failed'?"),
        (["ls", "--sort", "sise_bytes"], "did you mean 'size_bytes'?"),
        (["tag", "grib", "x"], "Did you mean 'grid'?"),
        (["tag", "grid"], "Missing argument 'TAG"),
        (["tag", "grid", "one,two"], "`TAG` must be a word without commas, got 'one,two'."),
        (["tag", "grid", "x", "--remove"], "A tag to remove must be one of none, got 'x'."),
        (["note", "grid", "one\nline"], "`TEXT` must be a line"),
        (["mv", "grid", "other/name"], "`NAME` must be the name of one folder, got 'other/name'."),
        (["mv", "grid", ".hidden"], "`NAME` must be the name of one folder"),
        (["mv", "grid", "n" * 400], f"`NAME` must be at most 255 bytes long, got 400 in '{'n' * 40}'…; shorten it."),
        (["mv", "grid", "a\u200b"], "with U+200B (ZERO WIDTH SPACE) as character 2; leave it out."),
        (["show", "n" * 400], "A name must be at most 255 bytes long, got 400 in"),
        (["mv", "grid", "grid"], "`NAME` must be a new name, got 'grid'"),
        (["rm"], "must have either a SWEEP or RUN, or `--empty-trash`, got neither."),
        (["rm", "grid", "--empty-trash"], "got both."),
        (["rm", "grid", "--output-root", "x", "--yes"], "`--output-root` must go with `--empty-trash`"),
        (["report", "grid", "--figures", "pdf"], "'pdf' is not one of 'svg', 'png', 'both'"),
    ],
)
def test_invalid_arguments_are_one_line_with_status_2(
    command: Callable, sweep: SweepPaths, words: list[str], expected: str
) -> None:
    done = command(*words)
    assert (done.status, done.out) == (2, "")
    assert expected in done.err
    assert done.err.count("\n") == 1
