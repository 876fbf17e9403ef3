"""Tests that commands report damaged files and still read the other runs."""

import os
from collections.abc import Callable, Sequence

import msgspec
import pytest

from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.versioned_file import encode_record

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


@pytest.mark.parametrize("arguments", [each for each in READERS if each[0] != "watch"], ids=lambda words: words[0])
@pytest.mark.parametrize("num_left", [3, None])
def test_a_finished_run_that_has_lost_epochs_is_named(
    command: Callable, sweep: SweepPaths, arguments: Sequence[str], num_left: int | None
) -> None:
    cut = RunPaths(min(path for path in sweep.runs.iterdir() if "device=cpu" in path.name))
    lines = cut.epochs.read_bytes().splitlines(keepends=True)
    replace_file(cut.record, encode_record(msgspec.structs.replace(read_record(cut), num_records=len(lines))))
    damage = f"epochs.jsonl is damaged: the run finished with {len(lines)} lines in it, got"
    for left in (len(lines), num_left):
        cut.epochs.unlink()
        if left is not None:
            cut.epochs.write_bytes(b"".join(lines[:left]))
        done = command(*arguments)
        text = done.out + done.err + (sweep.report.read_text() if arguments[0] == "report" else "")
        is_named = left != len(lines)
        assert (f"{damage} {left or 0}" in " ".join(text.split())) is is_named
        assert done.status == 0
    shown = command("show", f"outputs/grid/runs/{cut.name}")
    assert (shown.status, damage in shown.err) == (2, True)


LITTLE_MEMORY = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))"


def test_a_file_that_stands_for_more_zeros_than_memory_holds_is_named_and_the_other_runs_are_read(
    process: Callable, sweep: SweepPaths
) -> None:
    small, large, skipped, _ = sorted(map(RunPaths, sweep.runs.iterdir()), key=lambda run: "cuda" in run.name)
    os.truncate(large.epochs, 20 << 30)
    os.truncate(skipped.record, 1 << 30)  # few enough to be read, but as many zeros
    sweep.labels.touch()
    os.truncate(sweep.labels, 20 << 30)
    done = process("table", "grid", "--format", "csv", before=LITTLE_MEMORY)
    assert done.status == 0
    for path, got in (
        (large.epochs, "it must have at most 2,147,483,648 bytes, got 21,474,836,480"),
        (skipped.record, "it must be text, got 1,048,576 zero bytes in a row"),
        (sweep.labels, "it must have at most 2,147,483,648 bytes, got 21,474,836,480"),
    ):
        assert f"{path.relative_to(sweep.root.parents[1])} is damaged: {got}" in done.err
    (row,) = [line for line in done.out.splitlines() if small.name in line]
    assert ",finished," in row and ",7," in row
