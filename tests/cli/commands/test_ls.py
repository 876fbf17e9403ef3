"""Tests of `runmanager ls`."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.results.load.several_sweeps import sweep_size

from ..conftest import rows_of, write_sweep


def bytes_of(folder: Path) -> int:
    """The size of all files of a sweep but for the caches of its reading, which the listing itself writes."""
    files = (Path(base) / name for base, _, names in os.walk(folder) for name in names)
    return sum(file.stat().st_size for file in files if file.name not in (".summaries", ".sizes"))


def test_a_row_for_each_sweep_of_any_format(command: Callable, sweep: SweepPaths) -> None:
    write_sweep(sweep.root.parent / "project" / "wide", batch_sizes=(10, 100, 1000))
    write_sweep(sweep.root.parent / ".trash" / "gone")
    sizes = {"grid": bytes_of(sweep.root), "project/wide": bytes_of(sweep.root.parent / "project" / "wide")}
    rows = {row["sweep"]: row for row in json.loads(command("ls", "--format", "json").out)}
    assert set(rows) == {"grid", "project/wide"}
    wide = rows["project/wide"]
    assert (wide["cells"], wide["finished"], wide["skipped"], wide["failed"]) == (6, 3, 3, 0)
    assert (wide["states"], wide["axes"]) == ("3 finished, 3 skipped", "batch_size:3 device:2")
    assert (wide["metric"], wide["best"]) == ("val_accuracy", 0.889)
    assert (wide["command"], wide["folder"]) == ("runmanager sweep", "outputs/project/wide")
    assert {name: row["size_bytes"] for name, row in rows.items()} == sizes
    text = command("ls", "--columns", "sweep,created,states,axes,best,size_bytes,command").out
    assert all(word in text for word in ("project/wide", "batch_size:3", "0.8890", "runmanager", "MiB"))
    (selected,) = rows_of(command("ls", "--where", "cells>4", "--format", "csv").out)
    assert selected["sweep"] == "project/wide"
    best_first = rows_of(command("ls", "outputs", "--sort", "best", "--format", "csv").out)
    assert [row["sweep"] for row in best_first] == ["project/wide", "grid"]
    assert [row["sweep"] for row in rows_of(command("ls", "outputs/grid", "--format", "csv").out)] == ["grid"]


def test_a_sweep_is_listed_by_the_metric_that_it_was_given(command: Callable, sweep: SweepPaths) -> None:
    plan = json.loads(sweep.record.read_text())
    sweep.record.write_text(json.dumps(plan | {"metric": "val_loss"}))
    (row,) = json.loads(command("ls", "--format", "json").out)
    best = json.loads(command("best", "grid", "--format", "json").out)
    assert row["metric"] == best["metric"] == "val_loss"
    assert row["best"] == pytest.approx(best["best"]["mean"])


def test_a_folder_without_a_sweep_says_so(command: Callable, tmp_path: Path, sweep: SweepPaths) -> None:
    (tmp_path / "empty").mkdir()
    done = command("ls", "empty")
    assert (done.status, done.err) == (0, "")
    assert "There is no sweep in empty/ yet" in done.out


def test_a_damaged_sweep_is_named_and_the_others_are_listed(command: Callable, sweep: SweepPaths) -> None:
    other = write_sweep(sweep.root.parent / "other")
    other.record.write_text("{")
    sorted(sweep.runs.glob("*/run.json"))[0].write_text("{")
    done = command("ls", "--format", "csv")
    rows = {row["sweep"]: row for row in rows_of(done.out)}
    assert done.status == 0
    assert done.err.count("warning: not read: ") == 2
    assert (rows["grid"]["damaged"], rows["other"]["command"]) == ("1", "")
    assert rows["other"]["finished"] == "2"  # from its runs


def test_sizes_are_counted_again_where_files_come_or_go(sweep: SweepPaths) -> None:
    runs = sorted(sweep.runs.iterdir())
    deep = runs[0] / "files" / "deep"
    deep.mkdir(parents=True)
    later = max(folder.stat().st_mtime_ns for folder in (deep, *runs)) + 10**10
    ended = {run.name for run in runs}
    assert sweep_size(sweep, ended=ended, now_ns=later) == bytes_of(sweep.root)
    assert sweep.sizes.exists()
    (deep / "weights").write_bytes(b"x" * 1000)
    assert sweep_size(sweep, ended=ended, now_ns=later) == bytes_of(sweep.root)
    sweep.sizes.write_bytes(b"not a cache")
    assert sweep_size(sweep, ended=(), now_ns=later) == bytes_of(sweep.root)


def test_names_are_whole_at_80_columns_and_sizes_are_not_headed_bytes(
    command: Callable, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sweep(sweep.root.parent / "demo-2026-11-23_11-16-08")
    monkeypatch.setenv("COLUMNS", "80")
    lines = command("ls").out.splitlines()
    assert sum(line.startswith("demo-2026-11-23_11-16-08 ") for line in lines) == 1
    (heading,) = (line for line in lines if line.startswith("sweep "))
    assert "size" in heading and not any("bytes" in line for line in lines[:2]) and any("MiB" in line for line in lines)
