"""The folder that TensorBoard is shown: read by its own loader, and asked as its HParams tab asks."""

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from runmanager import RunManager
from runmanager.errors import RecordError
from runmanager.records.paths import SweepPaths
from runmanager.records.store import run_names
from runmanager.records.sweep import plan_cell, write_cells
from runmanager.tracking.hparams import METRICS
from runmanager.tracking.served import ServedRuns

from .conftest import event_files

CELLS: tuple[dict[str, Any], ...] = (
    {"lr": 0.1, "batch_size": 1000, "model": {"width": None}, "chunk": "auto", "amp": True, "betas": [0.9, 0.999]},
    {"lr": 0.02, "batch_size": 200, "model": {"width": 64}, "chunk": 100, "amp": False, "betas": [0.8, 0.9]},
    {"lr": 0.003, "batch_size": 10000, "model": {"width": 8}, "chunk": 20, "amp": False, "betas": [0.8, 0.9]},
)


LOADER = [torch.zeros(1, 1)]

_STATES = ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]


def begin(sweep: SweepPaths, *cells: dict[str, Any], validates: bool = True) -> None:
    """A run of one epoch for each cell."""
    manager = RunManager(sweep.root, console=False)
    for at, cell in enumerate(cells):
        with manager.run({**cell, "device": "cpu"}, torch.nn.Linear(1, 1), LOADER) as run:
            for epoch in run.epochs(1):
                for _ in epoch.batches(LOADER):
                    epoch.track(torch.tensor(float(at)), samples=1)
                if validates:
                    epoch.track_eval(torch.tensor(10.0 * at), samples=1)


class Board:
    """TensorBoard on a folder: its own loader and the HParams tab's own answers, without a server."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._runs = EventMultiplexer()
        provider = MultiplexerDataProvider(self._runs, self._folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorBoard's own copy of a library warns when it is imported
            from tensorboard.plugins.hparams.hparams_plugin import HParamsPlugin
        self._routes = HParamsPlugin(TBContext(logdir=self._folder, data_provider=provider)).get_plugin_apps()

    def load(self) -> list[str]:
        """The runs that it shows."""
        return sorted(self._runs.AddRunsFromDirectory(self._folder).Reload().Runs())

    def hparams(self) -> dict[str, Any]:
        """The columns of settings, by name."""
        return {info["name"]: info for info in self._ask("/experiment")["hparamInfos"]}

    def metrics(self) -> list[str]:
        """The tags of the columns of metrics, in order."""
        return [info["name"]["tag"] for info in self._ask("/experiment")["metricInfos"]]

    def sorted_by(self, hparam: str) -> list[Any]:
        """The values of a setting in the order of the rows, when somebody sorts by it."""
        column = {"hparam": hparam, "order": "ORDER_ASC", "includeInResult": True}
        found = self._ask("/session_groups", colParams=[column], allowedStatuses=_STATES, startIndex=0, sliceSize=100)
        return [group["hparams"].get(hparam) for group in found["sessionGroups"]]

    def _ask(self, route: str, **asked: Any) -> Any:
        answer = Client(self._routes[route]).post(route, json={"experimentName": "", "includeMetrics": True, **asked})
        assert answer.status_code == 200, answer.text
        return answer.json


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    return SweepPaths(tmp_path / "outputs" / "grid")


@pytest.fixture
def served(sweep: SweepPaths, tmp_path: Path) -> ServedRuns:
    (tmp_path / "served").mkdir()
    return ServedRuns(sweep, tmp_path / "served")


def test_every_axis_and_metric_is_a_column_that_sorts(sweep: SweepPaths, served: ServedRuns) -> None:
    begin(sweep, *CELLS)
    served.refresh()
    board = Board(served.root)
    assert len(board.load()) == 3
    columns = board.hparams()
    assert set(columns) == {"lr", "batch_size", "model.width", "chunk", "amp", "betas"}
    assert all(column["differs"] for column in columns.values())
    assert columns["lr"]["domainInterval"] == {"minValue": 0.003, "maxValue": 0.1}
    assert columns["chunk"]["domainDiscrete"] == ["auto", "100", "20"]
    assert board.metrics() == [
        *("val/loss", "train/loss", "throughput/samples_per_second", "time/epoch_seconds"),
    ]  # these runs measure no accuracy
    assert board.sorted_by("lr") == [0.003, 0.02, 0.1]
    assert board.sorted_by("batch_size") == [200, 1000, 10000]  # as numbers: as text 1000 would be first
    assert board.sorted_by("model.width") == [8, 64, None]
    assert board.sorted_by("amp") == [False, False, True]
    assert board.sorted_by("chunk") == ["100", "20", "auto"]
    assert board.sorted_by("betas") == ["[0.8, 0.9]", "[0.8, 0.9]", "[0.9, 0.999]"]


def test_a_plain_tensorboard_on_the_runs_shows_all_settings_and_tags(sweep: SweepPaths) -> None:
    begin(sweep, {"lr": 0.1}, {"width": 8})
    board = Board(sweep.runs)
    assert board.load() == run_names(sweep)
    assert set(board.hparams()) == {"lr", "width", "device"}
    assert {"train/loss", "val/loss", "time/epoch_seconds", "time/eval_seconds"} <= set(board.metrics())


def test_runs_have_short_names_and_no_copy(sweep: SweepPaths, served: ServedRuns) -> None:
    begin(sweep, {"lr": 0.1, "batch_size": 5}, {"lr": 0.01, "batch_size": 5})
    served.refresh()
    assert Board(served.root).load() == ["lr=0.01", "lr=0.1"]
    links = [path for path in served.root.rglob("*") if path.is_symlink()]
    assert {path.resolve() for path in links} == {
        path.resolve() for run in sweep.runs.iterdir() for path in run.glob("events*")
    }


def test_runs_that_begin_while_it_serves_appear(sweep: SweepPaths, served: ServedRuns) -> None:
    first, second, third = ({"lr": lr} for lr in (0.1, 0.01, 0.001))
    begin(sweep, first, second)
    served.refresh()
    board = Board(served.root)
    assert board.load() == ["lr=0.01", "lr=0.1"]
    served.refresh()  # with nothing new
    begin(sweep, third)
    served.refresh()
    assert board.load() == ["lr=0.001", "lr=0.01", "lr=0.1"]
    assert board.sorted_by("lr") == [0.001, 0.01, 0.1]  # the experiment was declared before it, and does not hide it


def test_a_new_axis_renames_the_runs_and_is_a_column(sweep: SweepPaths, served: ServedRuns) -> None:
    begin(sweep, {"lr": 0.1, "seed": 0}, {"lr": 0.01, "seed": 0})
    served.refresh()
    board = Board(served.root)
    board.load()
    begin(sweep, {"lr": 0.1, "seed": 1})
    served.refresh()
    assert board.load() == ["lr=0.01,seed=0", "lr=0.1,seed=0", "lr=0.1,seed=1"]
    assert board.sorted_by("seed") == [0, 0, 1]
    assert set(board.hparams()) == {"lr", "seed"}


def test_an_earlier_attempt_is_not_shown(sweep: SweepPaths, served: ServedRuns) -> None:
    with (
        pytest.raises(ValueError, match="no"),
        RunManager(sweep.root, console=False).run({"lr": 1, "device": "cpu"}, torch.nn.Linear(1, 1), LOADER),
    ):
        raise ValueError("no")
    (run,) = sweep.runs.iterdir()
    (first,) = run.glob("events*")
    first.rename(first.with_name("events.out.tfevents.1700000000.host.1.0"))  # as if it had begun long ago
    served.refresh()
    begin(sweep, {"lr": 1})
    served.refresh()
    assert Board(served.root).load() == ["grid"]
    (again,) = event_files(sweep.run(run.name))
    assert [path.resolve() for path in served.root.rglob("events*") if path.is_symlink()] == [again.resolve()]


def test_before_a_run_has_ended_all_metrics_are_columns(sweep: SweepPaths, served: ServedRuns) -> None:
    with RunManager(sweep.root, console=False).run({"lr": 1}, torch.nn.Linear(1, 1), LOADER):
        served.refresh()
        board = Board(served.root)
        assert board.load() == ["grid"]
        assert board.metrics() == [metric.tag for metric in METRICS]


def test_a_sweep_whose_runs_have_not_begun_is_empty(sweep: SweepPaths, served: ServedRuns) -> None:
    write_cells(sweep, [plan_cell("a" * 64, "lr=1-aaaaaaaa", {"lr": 1})], axes={"lr": [1]}, command=["x"])
    served.refresh()
    assert Board(served.root).load() == []


def test_a_damaged_plan_leaves_what_is_shown(sweep: SweepPaths, served: ServedRuns) -> None:
    begin(sweep, {"lr": 0.1}, {"lr": 0.01})
    served.refresh()
    sweep.record.write_text("{")
    with pytest.raises(RecordError, match=re.escape(str(sweep.record))):
        served.refresh()
    assert Board(served.root).load() == ["lr=0.01", "lr=0.1"]


def test_a_run_whose_folder_is_removed_is_shown_no_more(sweep: SweepPaths, served: ServedRuns) -> None:
    begin(sweep, *CELLS)
    served.refresh()
    before = {folder.name for folder in served.root.iterdir()}
    shutil.rmtree(sweep.run(run_names(sweep)[-1]).root)
    served.refresh()
    shown = {folder.name for folder in served.root.iterdir()}
    assert len(before - shown) == 1
    assert all(link.exists() for folder in served.root.iterdir() for link in folder.iterdir())
