"""The table of event files: one row per folder, with the last and the best value of each tag."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import SummaryWriter

from runmanager.errors import UsageError
from runmanager.results.tables.terminal import render_results
from runmanager.results.tables.text_formats import to_csv, to_json, to_markdown
from runmanager.results.tfevents.table import event_rows, read_event_folders

Log = Callable[..., Path]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A function that writes an event file: for each tag the values at steps 1, 2, …, a second apart."""

    def written(name: str, began: float = 1000.0, **tags: list[float]) -> Path:
        path = tmp_path / name / "events.out.tfevents.1"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for tag, values in tags.items():
                for step, value in enumerate(values, start=1):
                    found = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                    event = Event(wall_time=began + step, step=step, summary=found)
                    RecordWriter(file).write(event.SerializeToString())
        return path

    return written


def rows(root: Path) -> list[dict[str, Any]]:
    return event_rows(read_event_folders(root)).rows


def test_each_folder_has_a_row_with_the_last_and_the_best_value(log: Log, tmp_path: Path) -> None:
    log("b", loss=[1.0, 0.25, 0.5], accuracy=[0.5, 0.75, 0.625], lr=[0.5, 0.25, 0.125])
    log("a/deep", began=2000.0, loss=[3.0, float("nan")])
    table = event_rows(read_event_folders(tmp_path))
    assert table.columns == [
        *("run", "steps", "loss", "accuracy", "lr", "best loss", "best accuracy", "seconds", "started_at")
    ]
    first, second = table.rows
    assert second.values == {
        **{"run": "b", "steps": 3, "loss": 0.5, "accuracy": 0.625, "lr": 0.125, "best loss": 0.25},
        **{"best accuracy": 0.75, "seconds": 2.0, "started_at": "1970-01-01T00:16:41+00:00"},
    }
    assert (first["run"], first["steps"], first["best loss"], first["accuracy"]) == ("a/deep", 2, 3.0, None)
    assert first["loss"] != first["loss"], "the last value is NaN"


def test_the_last_value_is_the_one_at_the_highest_step(log: Log, tmp_path: Path) -> None:
    log("a", loss=[1.0, 2.0, 3.0])
    path = tmp_path / "a" / "events.out.tfevents.2"  # of a process that continued from the first step
    (tmp_path / "a" / "events.out.tfevents.1").rename(path)
    log("a", loss=[4.0, 5.0, 6.0, 7.0])
    assert rows(tmp_path)[0]["loss"] == 7.0
    log("a", loss=[4.0, 5.0, 6.0])
    assert rows(tmp_path)[0]["loss"] == 3.0, "of two values at one step, the one written last"


def test_hyperparameters_are_settings(tmp_path: Path) -> None:
    for name, lr in (("a", 0.1), ("b", 0.2)):
        with SummaryWriter(str(tmp_path / name)) as writer:
            writer.add_hparams({"lr": lr, "batch": 8, "loss": "mse"}, {"loss": lr}, run_name=".")
    table = event_rows(read_event_folders(tmp_path))
    assert table.settings == ("batch", "settings.loss", "lr")
    assert [(row["lr"], row["batch"], row["settings.loss"], round(row["loss"], 6)) for row in table.rows] == [
        *((0.1, 8, "mse", 0.1), (0.2, 8, "mse", 0.2))
    ]
    assert table.shown[:3] == ("run", "lr", "steps")


def test_tags_may_have_the_names_of_other_columns(log: Log, tmp_path: Path) -> None:
    log("a", **{"run": [1.0], "steps": [2.0], "best loss": [3.0], "loss": [4.0]})
    (row,) = rows(tmp_path)
    assert (row["run"], row["steps"], row["value.run"], row["value.steps"]) == ("a", 1, 1.0, 2.0)
    assert (row["best loss"], row["loss"]) == (3.0, 4.0)


def test_empty_folders_and_damaged_files_are_noted(log: Log, tmp_path: Path) -> None:
    log("empty")
    damaged = log("damaged", loss=[1.0, 2.0])
    data = bytearray(damaged.read_bytes())
    data[-6] ^= 1
    damaged.write_bytes(data)
    table = event_rows(read_event_folders(tmp_path))
    assert [(row["run"], row["loss"]) for row in table.rows] == [("damaged", 1.0)]
    assert table.notes[0] == "Without scalars or hyperparameters: empty."
    assert table.notes[1].startswith("Not read: ") and str(damaged) in table.notes[1]


def test_the_table_is_rendered_in_every_format(log: Log, tmp_path: Path) -> None:
    from rich.console import Console

    log("a", loss=[1 / 3], **{f"metric number {number}": [number / 7] for number in range(30)})
    table = event_rows(read_event_folders(tmp_path))
    assert to_csv(table).splitlines()[1].startswith("a,1,0.3333333432674408,0.0,")
    assert json.loads(to_json(table))[0]["loss"] == 0.3333333432674408
    assert "| a | 1 | 0.3333 |" in to_markdown(table)
    console = Console(width=80)
    with console.capture() as capture:
        console.print(render_results(table, width=80))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= 80
    assert "0.3333" in text and "Omitted for lack of space: best loss, metric number 29, " in text


def test_a_folder_without_event_files_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="got none in"):
        read_event_folders(tmp_path)
    with pytest.raises(UsageError, match="must be a folder"):
        read_event_folders(tmp_path / "nothing")
