"""Tests that arguments that cannot apply are refused in one line."""

from collections.abc import Callable

import pytest

from runmanager.records.files.paths import SweepPaths


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
