"""Tests that commands report damaged files and still read the other runs."""

from collections.abc import Callable, Sequence

import pytest

from runmanager.records.files.paths import RunPaths, SweepPaths

READERS = [
    ("table", "grid", "--format", "csv"),
    ("compare", "grid", "--axis", "batch_size", "--format", "csv"),
    ("best", "grid"),
    ("report", "grid"),
    ("watch", "grid", "--once"),
    ("export", "grid", "--to", "parquet"),
]


@pytest.mark.parametrize("arguments", READERS, ids=[arguments[0] for arguments in READERS])
def test_a_file_that_is_not_utf8_drops_only_its_own_run(
    command: Callable, sweep: SweepPaths, arguments: Sequence[str]
) -> None:
    damaged = RunPaths(sorted(sweep.runs.iterdir())[0])
    for path, text in ((damaged.record, b'"host": "here'), (sweep.record, b'"signature": "')):
        whole = path.read_bytes()
        assert text in whole
        path.write_bytes(whole.replace(text, text + b"\xff", 1))
        done = command(*arguments)
        text = done.out + done.err + (sweep.report.read_text() if arguments[0] == "report" else "")
        assert f"{path.relative_to(sweep.root.parents[1])} is damaged: its text must be UTF-8" in text
        is_refused = arguments[0] == "watch" and path == sweep.record  # it cannot know which cells remain
        assert done.status == (2 if is_refused else 1 if arguments[0] == "watch" else 0)
        path.write_bytes(whole)
