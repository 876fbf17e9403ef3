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
