"""The charts of the Custom Scalars tab, as its plugin reads them from real runs."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

import runmanager.tracking.tensorboard.sink as module
from runmanager import RunManager
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.storage.reader import read_sweep
from runmanager.tracking.sinks import EpochDetails, RunStart
from runmanager.tracking.tensorboard.hparams import CHARTS, MAX_CHARTS, charts_of, scalar_layout
from runmanager.tracking.tensorboard.logdir import SweepLogdir, SweepSummaryWriter

from ..board import LOADER, Board


def record(sweep: SweepPaths, lr: float, *epochs: Mapping[str, float], tokens: int = 0) -> None:
    """Record a run that logs these metrics, an epoch each."""
    with RunManager(sweep.root, console=False).run({"lr": lr, "device": "cpu"}, torch.nn.Linear(1, 1), LOADER) as run:
        for epoch in run.epochs(len(epochs)):
            for _ in epoch.batches(LOADER):
                epoch.track(torch.tensor(1.0), samples=1, **({"tokens": tokens} if tokens else {}))
            epoch.log(epochs[epoch.number - 1])


def titles(*names: str, units: Sequence[str] = ()) -> list[str]:
    charts = charts_of(names, units)
    return [title for category in charts for title in charts[category] if title not in CHARTS[category]]


def test_each_chart_matches_exactly_the_tags_of_a_run() -> None:
    (value,) = scalar_layout().value
    assert (value.tag, value.metadata.plugin_data.plugin_name) == ("custom_scalars__config__", "custom_scalars")
    layout = Layout.FromString(value.tensor.string_val[0])
    written = set(re.findall(r"`(\w+/\w+)`", module.__doc__ or ""))
    charts = {chart.title: chart.multiline.tag for category in layout.category for chart in category.chart}
    assert {"loss", "accuracy", "samples a second"} <= set(charts)
    for title, patterns in charts.items():
        shown = {tag for tag in written for pattern in patterns if re.match(pattern, tag)}
        assert len(shown) == len(patterns), title
        assert not any(re.match(pattern, f"{tag}/more") for tag in written for pattern in patterns)


def test_logged_metrics_have_charts_as_they_appear_in_any_run(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "own")
    record(sweep, 0.1, {"f1": 0.25}, {"f1": 0.5, "val_f1": 0.75}, {"f1": 0.5})
    record(sweep, 0.2, {"val/f1": 0.5, "psnr(dB)": 30.0, "loss": 2.0}, tokens=7)
    (tmp_path / "served").mkdir()
    served = SweepLogdir(sweep, tmp_path / "served")
    served.refresh()
    board = Board(served.root)
    first, second = board.load()
    charts = board.charts()  # every title is there once, though both runs have a layout
    assert [title for title in charts if title not in {each for part in CHARTS.values() for each in part}] == [
        *("f1", "psnr(dB)", "loss (logged)", "tokens a second"),
    ]
    assert board.drawn(first, charts["f1"]) == {"metrics/f1": [0.25, 0.5, 0.5], "metrics/val_f1": [0.75]}
    assert board.drawn(second, charts["f1"]) == {"val/f1": [0.5]}
    assert board.drawn(second, charts["psnr(dB)"]) == {"metrics/psnr(dB)": [30.0]}
    assert board.drawn(second, charts["loss (logged)"]) == {"metrics/loss": [2.0]}
    assert list(board.drawn(second, charts["tokens a second"])) == ["throughput/tokens_per_second"]
    # The sweep's own folder has the same charts: for runs whose files lack them.
    SweepSummaryWriter(sweep, served).refresh()
    for run in (first, second):
        for file in (served.root / run).iterdir():
            file.unlink()
    alone = Board(served.root)
    assert alone.load() and {*alone.charts()} == {*charts}


def test_a_resumed_run_keeps_the_charts_of_before(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "own")
    record(sweep, 0.1, {"f1": 0.25})
    (run,) = read_sweep(sweep).runs
    network = torch.nn.Linear(1, 1)
    sink = module.TensorBoardSink()
    sink.begin(RunStart(run.record, run.paths, network, torch.device("cpu")))
    sink.epoch(EpochRecord(epoch=2, metrics={"psnr": 30.0}), EpochDetails(network))
    sink.end(run.record)
    board = Board(sweep.runs)
    board.load()
    assert {"f1", "psnr"} <= set(board.charts())


def test_names_of_one_quantity_share_a_chart_and_endless_names_end() -> None:
    assert titles("val_f1", "f1", "train/f1", "test_f1", "valid", "val_", "val_loss") == [
        *("f1", "valid", "val_", "loss (logged)"),
    ]
    assert len(titles(*(f"class_{number}" for number in range(1000)))) == MAX_CHARTS
