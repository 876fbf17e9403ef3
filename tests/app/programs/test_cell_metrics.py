"""Metrics that a program left without logging them: what it returned, Lightning's tables, event files."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from runmanager.app.programs.cell_metrics import (
    FoundMetrics,
    diverged_metric,
    logged_only,
    merged_metrics,
    returned_metrics,
)
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.tracking.tensorboard.event_writer import EventWriter


def record(**fields: object) -> RunRecord:
    return RunRecord(name="run", signature="0" * 64, status=Status.RUNNING, config={}, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "metrics", "number"),
    [
        (3, {"score": 3.0}, 3.0),
        (torch.tensor([2.5]), {"score": 2.5}, 2.5),
        (np.float32(0.5), {"score": 0.5}, 0.5),
        (np.array([[4]]), {"score": 4.0}, 4.0),
        (math.inf, {"score": None}, math.inf),
        (10**400, {"score": None}, math.inf),
        ({"score": -(10**400)}, {"score": None}, -math.inf),
        ({"score": torch.tensor(1.0), "loss": math.nan}, {"score": 1.0, "loss": None}, 1.0),
        (None, {}, None),
    ],
)
def test_numbers_and_mappings_are_metrics(value: object, metrics: dict, number: float | None) -> None:
    found = returned_metrics(value, name="score")
    assert (found.returned, found.value, found.notes) == (metrics, number, [])
    assert returned_metrics(2, name=None).returned == {"objective": 2.0}


@pytest.mark.parametrize(
    "value", ["text", True, [1, 2], torch.zeros(2), {"x": "text"}, {"x": True}, {"": 1}, {"x\ny": 1}, {"`x`": 1}]
)
def test_anything_else_is_ignored_with_a_note(value: object) -> None:
    found = returned_metrics(value, name="score")
    assert (found.returned, found.value) == ({}, None) and len(found.notes) == 1


def test_the_more_trusted_source_gives_the_value(tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "version_0"
    logs.mkdir(parents=True)
    (logs / "metrics.csv").write_text("epoch,step,a,b,c,d\n0,9,1,1,1,1\n1,19,,2,2,nan\n")
    with SummaryWriter(str(tmp_path / "tensorboard")) as writer:
        for step, value in enumerate((5.0, 6.0)):
            writer.add_scalar("e", value, step)
            writer.add_scalar("hp_metric", -1, step)
    earlier = tmp_path / "attempts" / "1"
    earlier.mkdir(parents=True)
    (earlier / "metrics.csv").write_text("f\n1\n")
    found = FoundMetrics(returned={"a": 7.0, "b": 7.0}, printed={"b": 8.0, "c": 8.0})
    known, changes = merged_metrics(RunPaths(tmp_path), record(summary={"a": 9.0}), found)
    assert known.summary == {"a": 9.0, "b": 7.0, "c": 8.0, "d": None, "e": 6.0}
    assert known.origins == {"b": "returned", "c": "printed", "d": "metrics.csv", "e": "event file"}
    assert changes["summary"] == known.summary


def test_what_an_earlier_attempt_left_is_found_again_with_its_present_value(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("a,b\n1,2\n")
    earlier = record(summary={"a": 9.0, "b": 9.0, "c": 9.0}, origins={"b": "metrics.csv", "c": "returned"})
    known, _ = merged_metrics(RunPaths(tmp_path), logged_only(earlier), FoundMetrics())
    assert known.summary == {"a": 9.0, "b": 2.0} and known.origins == {"b": "metrics.csv"}


def test_event_files_of_other_writers_count_also_in_the_folder_itself(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("val/acc", 0.5, 1)
    assert merged_metrics(RunPaths(tmp_path), record(), FoundMetrics())[0].summary == {"val_accuracy": 0.5}
    (event_file,) = tmp_path.iterdir()
    event_file.unlink()
    own = EventWriter(tmp_path)
    own.scalars({"val/acc": 0.5}, 1)
    own.close()
    logged = merged_metrics(RunPaths(tmp_path), record(summary={"x": 1.0}), FoundMetrics())[0]
    assert logged.summary == {"x": 1.0}  # the file there is that of its own metrics


@pytest.mark.parametrize(
    ("name", "diverged"),
    [("loss", True), ("val/loss", True), ("val_loss_step", True), ("lossless", False), ("fid", False)],
)
def test_a_loss_that_is_not_finite_has_diverged(name: str, diverged: bool) -> None:
    assert (diverged_metric(record(summary={name: None}), []) == name) is diverged
    assert diverged_metric(record(summary={name: 1.0}), []) is None
