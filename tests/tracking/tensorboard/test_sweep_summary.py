"""The sweep as a run in TensorBoard, read by TensorBoard's loader and queried as its HParams tab does."""

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_record, run_names
from runmanager.records.storage.versioned_file import encode_record
from runmanager.tracking.tensorboard.event_writer import EventWriter
from runmanager.tracking.tensorboard.hparams import METRICS, session_start
from runmanager.tracking.tensorboard.logdir import SweepLogdir, SweepSummaryWriter

from ...results.conftest import SweepMaker, timed_epochs
from ..board import CELLS, Board, begin

SECONDS = {("cpu", 100): 2.0, ("cpu", 1000): 1.0, ("cuda", 100): 1.0, ("cuda", 1000): 0.1}


class Clock:
    """A clock that advances by a second per call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


class Served:
    """A stored sweep `outputs/grid` and its TensorBoard log directory."""

    def __init__(self, folder: Path) -> None:
        self.maker = SweepMaker(folder / "outputs" / "grid")
        self.paths: SweepPaths = self.maker.paths
        (folder / "served").mkdir()
        self.clock = Clock()
        self.runs = SweepLogdir(self.paths, folder / "served")
        self.sweep = SweepSummaryWriter(self.paths, self.runs, clock=self.clock)
        self.root = self.runs.root

    def add(self, config: dict[str, Any], seconds: float = 2.0, **fields: Any) -> str:
        """Store a run of seven epochs with an event file, finished unless `fields` differ; return its name."""
        config = {"lr": 0.1, **config}
        name = self.maker.run(config, timed_epochs([9.0] + [seconds] * 6), **fields)
        writer = EventWriter(self.paths.run(name).root)
        writer.summary(session_start(config))
        writer.scalars({"train/loss": 0.5}, 1)
        writer.close()
        return name

    def refresh(self) -> bool:
        """Refresh as the command does, long after the last time."""
        self.clock.now += 1000
        self.runs.refresh()
        return self.sweep.refresh()

    @property
    def shown(self) -> list[str]:
        """Names of the sweep's folders."""
        return sorted(path.name for path in self.root.iterdir() if path.name.startswith("sweep"))

    def events(self) -> EventAccumulator:
        """Load the events of its only folder."""
        (name,) = self.shown
        return EventAccumulator(str(self.root / name)).Reload()

    def text(self, name: str) -> str:
        ((tensor),) = self.events().Tensors(f"across_runs/{name}")
        (text,) = tensor.tensor_proto.string_val
        return text.decode()


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


@pytest.fixture
def grid(served: Served) -> Served:
    """Two devices and two batch sizes."""
    for (device, size), seconds in SECONDS.items():
        served.add({"batch_size": size, "device": device}, seconds)
    return served


def modification_times(folder: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


def test_figures_findings_and_tables_are_shown_as_a_run(grid: Served) -> None:
    before = modification_times(grid.paths.root)
    assert grid.refresh()
    assert modification_times(grid.paths.root) == before  # the sweep's folder does not change
    assert grid.shown == ["sweep of 4 runs"]

    events = grid.events()
    tags = events.Tags()
    assert tags["images"][:3] == [
        *("across_runs/1-speedups", "across_runs/2-throughput-by-batch_size", "across_runs/3-throughput"),
    ]
    for tag in tags["images"]:
        (image,) = events.Images(tag)
        picture = Image.open(io.BytesIO(image.encoded_image_string))
        assert (picture.format, picture.size) == ("PNG", (image.width, image.height))
        assert len(picture.convert("L").getcolors() or range(99)) > 2
        assert image.width == 702
    assert "- cuda is 2.0 to 10.0 times as fast as cpu, depending on batch_size" in grid.text("answers")
    assert "4 runs: 4 finished." in grid.text("answers")
    assert grid.text("comparison").count("| faster |") == 2
    assert grid.text("results").count("| finished |") == 4
    assert "**speedups**: The speedup of each pair" in grid.text("figures")


def test_the_sweep_adds_neither_a_row_of_hparams_nor_a_curve(grid: Served) -> None:
    grid.refresh()
    board = Board(grid.root)
    assert "sweep of 4 runs" in board.load()
    assert len(board.rows()) == 4
    assert not any("sweep" in row for row in board.rows())
    assert set(board.hparams()) == {"batch_size", "device"}
    assert not grid.events().Tags()["scalars"]


def test_a_single_cell_has_its_table_and_no_figure(served: Served) -> None:
    served.add({"batch_size": 100, "device": "cpu"})
    served.refresh()
    assert served.shown == ["sweep of 1 run"]
    assert not served.events().Tags()["images"]
    assert "| finished |" in served.text("results")


def test_when_a_run_ends_the_sweep_is_drawn_under_a_new_name(grid: Served) -> None:
    name = grid.add({"batch_size": 10, "device": "cpu"}, status=Status.RUNNING, owner=ProcessIdentity.current())
    assert grid.refresh()
    board = Board(grid.root)
    assert "sweep, 4 of 5 runs ended" in board.load()
    assert not grid.refresh()  # nothing has changed
    run = grid.paths.run(name)
    replace_file(run.record, encode_record(msgspec.structs.replace(read_record(run), status=Status.FINISHED)))
    assert grid.refresh()
    assert [each for each in board.load() if each.startswith("sweep")] == ["sweep of 5 runs"]
    assert "5 runs: 5 finished." in grid.text("answers")


def test_a_changed_status_is_drawn_even_if_as_many_runs_have_ended(grid: Served) -> None:
    grid.refresh()
    run = grid.paths.run(run_names(grid.paths)[0])
    replace_file(run.record, encode_record(msgspec.structs.replace(read_record(run), status=Status.KILLED)))
    assert grid.refresh()
    assert grid.shown == ["sweep of 4 runs"]
    assert "3 finished, 1 killed." in grid.text("answers")


def test_before_a_run_has_ended_only_columns_are_written(served: Served) -> None:
    served.add({"device": "cpu"}, status=Status.RUNNING, owner=ProcessIdentity.current())
    served.refresh()
    assert served.shown == ["sweep, 0 of 1 run ended"]
    assert not served.events().Tags()["images"] and not served.events().Tags()["tensors"]
    board = Board(served.root)
    board.load()
    assert board.metrics() == [metric.tag for metric in METRICS]


def test_logged_metrics_have_columns_after_the_others(served: Served) -> None:
    """Also those of a later run alone, once the sweep is drawn; before the server starts, those of the first runs."""
    for number, names in enumerate((["f1", "val/iou"], [], ["fid"])):
        metrics: dict[str, float | None] = dict.fromkeys(names, 0.5)
        epochs = [msgspec.structs.replace(each, metrics=metrics or msgspec.UNSET) for each in timed_epochs([2.0] * 3)]
        name = served.maker.run({"number": number}, epochs)
        writer = EventWriter(served.paths.run(name).root)
        writer.summary(session_start({"number": number}))
        writer.close()
    served.runs.refresh()
    fixed = [metric.tag for metric in METRICS]
    served.sweep.declare()
    board = Board(served.root)
    board.load()
    assert board.metrics() == [*fixed, "metrics/f1", "val/iou"]
    assert served.refresh()
    board = Board(served.root)
    board.load()
    assert board.metrics() == [*fixed, "metrics/f1", "val/iou", "metrics/fid"]


def test_a_sweep_without_a_run_is_not_shown(served: Served) -> None:
    served.maker.plan({"lr": 0.1})
    served.sweep.declare()
    assert not served.refresh() and not served.shown


def test_drawing_takes_a_limited_share_of_the_time(grid: Served) -> None:
    assert grid.refresh()
    grid.add({"batch_size": 10, "device": "cpu"})
    assert grid.refresh()  # it takes a second: the clock advances once meanwhile
    grid.add({"batch_size": 20, "device": "cpu"})
    grid.runs.refresh()
    grid.clock.now += 15
    assert not grid.sweep.refresh()
    grid.clock.now += 5
    assert grid.sweep.refresh()


def test_a_failed_drawing_keeps_what_is_shown_and_is_tried_again(grid: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert grid.refresh() and (shown := grid.shown)
    grid.add({"batch_size": 10, "device": "cpu"})
    with monkeypatch.context() as broken:
        broken.setattr("runmanager.results.sweep_snapshot.SweepSnapshot.read", lambda *_, **__: {}[0])
        with pytest.raises(KeyError):
            grid.refresh()
    assert grid.shown == shown
    assert grid.refresh() and grid.shown == ["sweep of 5 runs"]


def test_columns_are_declared_before_drawing(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "grid")
    begin(sweep, *CELLS)
    (tmp_path / "served").mkdir()
    runs = SweepLogdir(sweep, tmp_path / "served")
    runs.refresh()
    SweepSummaryWriter(sweep, runs).declare()
    board = Board(runs.root)
    assert len(board.load()) == 4
    columns = board.hparams()
    assert set(columns) == {"lr", "batch_size", "model.width", "chunk", "amp", "betas"}
    assert all(column["differs"] for column in columns.values())
    assert columns["lr"]["domainInterval"] == {"minValue": 0.003, "maxValue": 0.1}
    assert columns["chunk"]["domainDiscrete"] == ["auto", "100", "20"]
    assert board.metrics() == [
        *("val/loss", "train/loss", "throughput/samples_per_second", "time/epoch_seconds"),
    ]  # these runs measure no accuracy
    assert board.sorted_by("lr") == [0.003, 0.02, 0.1]
    assert board.sorted_by("batch_size") == [200, 1000, 10000]  # sorted as numbers
    assert board.sorted_by("model.width") == [8, 64, None]
    assert board.sorted_by("amp") == [False, False, True]
    assert board.sorted_by("chunk") == ["100", "20", "auto"]
    assert board.sorted_by("betas") == ["[0.8, 0.9]", "[0.8, 0.9]", "[0.9, 0.999]"]


def test_new_values_and_metrics_are_added_to_the_columns(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "grid")
    begin(sweep, {"lr": 0.1, "loader": "one"}, {"lr": 0.2, "loader": "two"}, validates=False)
    (tmp_path / "served").mkdir()
    runs = SweepLogdir(sweep, tmp_path / "served")
    shown = SweepSummaryWriter(sweep, runs, clock=Clock())
    runs.refresh()
    shown.declare()
    board = Board(runs.root)
    board.load()
    assert "val/loss" not in board.metrics()
    begin(sweep, {"lr": 0.4, "loader": "three"})
    runs.refresh()
    assert shown.refresh()
    board.load()
    assert board.hparams()["loader"]["domainDiscrete"] == ["one", "two", "three"]
    assert board.hparams()["lr"]["domainInterval"] == {"minValue": 0.1, "maxValue": 0.4}
    assert "val/loss" in board.metrics()


def test_a_damaged_run_hides_no_other(grid: Served) -> None:
    grid.paths.run(grid.add({"batch_size": 7, "device": "cpu"})).record.write_text("{")
    assert grid.refresh()
    assert grid.text("results").count("| finished |") == 4
