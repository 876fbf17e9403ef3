"""Inference after training: what is called and how, what is stored, and that none of it counts as training."""

import csv
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import runmanager
from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.results.result_files import write_tables

from .conftest import stored_runs

_COLUMNS = (
    "run,batch_size,latency_p50_seconds,latency_p90_seconds,latency_p99_seconds,inference_samples_per_second,"
    "peak_memory_bytes"
)


class Slow(nn.Module):
    """A network that takes 10 s a call, and every tenth time 40 s, by a clock that it moves; it notes its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.calls: list[tuple[int, bool, bool]] = []
        self.offset = 0.0
        seconds, nanoseconds = time.perf_counter, time.perf_counter_ns
        monkeypatch.setattr(time, "perf_counter", lambda: seconds() + self.offset)
        monkeypatch.setattr(time, "perf_counter_ns", lambda: nanoseconds() + round(self.offset * 1e9))

    def forward(self, inputs: torch.Tensor) -> Any:
        if not self.training:
            self.offset += 40.0 if len(self.calls) % 10 == 9 else 10.0
            self.calls.append((len(inputs), torch.is_inference_mode_enabled(), inputs.is_inference()))
        return self.layer(inputs)


def train(network: nn.Module, folder: Path, *sizes: int, seconds: float = 1e-6, **settings: Any) -> None:
    inputs, labels = torch.rand(8, 4), torch.tensor([0, 1] * 4)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=4)
    with runmanager.start_run(network, loader, params=settings, root=folder) as run:
        for epoch in run.epochs(2):
            for batch, targets in epoch.batches(loader):
                scores = network(batch)
                epoch.track(nn.functional.cross_entropy(scores, targets), scores, targets)
        run.measure_inference(network, inputs, sizes, seconds=seconds)


def test_each_batch_size_has_quantiles_of_its_calls_and_training_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Slow(monkeypatch)
    train(network, tmp_path / "sweep", 1, 32, seconds=1000.0)
    assert network.training
    assert {size for size, _, _ in network.calls} == {1, 32}
    assert all(is_inference for _, is_inference, _ in network.calls)
    text = (tmp_path / "sweep" / "inference.csv").read_text()
    assert text.splitlines()[0] == _COLUMNS
    (run,) = stored_runs(tmp_path / "sweep")
    for size, row in zip((1, 32), csv.DictReader(text.splitlines()), strict=True):
        assert (row["run"], int(row["batch_size"]), row["peak_memory_bytes"]) == (run.record.name, size, "")
        assert float(row["latency_p50_seconds"]) == pytest.approx(10.0, rel=0.01)
        assert float(row["latency_p99_seconds"]) == pytest.approx(40.0, rel=0.01)
        measured = next(each for each in run.record.measurements.inference or () if each.batch_size == size)
        assert 20 <= measured.num_calls <= 100
        rate = float(row["inference_samples_per_second"])
        assert size / 15 < rate < size / 11  # of the time of all calls, of which a tenth takes 40 s
    assert run.record.run_seconds is not None and run.record.run_seconds < 10.0
    assert [epoch.epoch for epoch in run.epochs] == [1, 2]
    assert all((epoch.wall_seconds or 0.0) < 10.0 for epoch in run.epochs)


@pytest.mark.parametrize(
    ("example", "called"),
    [
        ((torch.ones(2, 4), torch.zeros(2, 4)), "args"),
        ({"one": torch.ones(2, 4), "other": torch.zeros(2, 4)}, "kwargs"),
    ],
)
def test_an_example_has_the_arguments_of_a_call(tmp_path: Path, example: Any, called: str) -> None:
    class Two(nn.Module):
        seen: tuple[Any, ...] = ()

        def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            self.seen = one.shape, float(one.min()), float(other.max())
            return one + other

    network = Two()
    with runmanager.start_run(params={"as": called}, root=tmp_path) as run:
        run.measure_inference(network, example, (3,), seconds=1e-6)
    assert network.seen == (torch.Size([3, 4]), 1.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "named", "says"),
    [
        ((torch.ones(1, 4), ()), {}, "`batch_sizes` must be whole numbers above 0"),
        ((torch.ones(1, 4), (1, 0)), {}, "`batch_sizes` must be whole numbers above 0"),
        ((torch.ones(1, 4), (1.5,)), {}, "`batch_sizes` must be whole numbers above 0"),
        ((torch.ones(1, 4), (1,)), {"seconds": 0}, "`seconds` must be a number above 0"),
        (("an image", (1,)), {}, "`example` must hold a tensor"),
    ],
)
def test_bad_arguments_are_refused(tmp_path: Path, arguments: Any, named: Any, says: str) -> None:
    with runmanager.start_run(params={}, root=tmp_path) as run:
        run.log(loss=1.0)
        with pytest.raises(UsageError, match=says):
            run.measure_inference(nn.Linear(4, 2), *arguments, **named)


def test_it_must_come_after_an_epoch(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="epoch 1 still open"), runmanager.start_run(params={}, root=tmp_path) as run:
        for _ in run.epochs(1):
            run.measure_inference(nn.Linear(4, 2), torch.ones(1, 4))


def test_a_finished_run_is_not_measured_again(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(4, 2))
    train(network, tmp_path / "sweep", 1, lr=1)
    before = (tmp_path / "sweep" / "inference.csv").read_bytes()
    train(network, tmp_path / "sweep", 1, lr=1)
    assert (tmp_path / "sweep" / "inference.csv").read_bytes() == before


def test_its_file_keeps_no_row_of_a_run_that_is_gone(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "sweep")
    train(nn.Sequential(nn.Linear(4, 2)), sweep.root, 1)
    (run,) = stored_runs(sweep.root)
    shutil.rmtree(run.paths.root)
    write_tables(sweep)
    assert sweep.inference_csv.read_text() == f"{_COLUMNS}\n"


def test_runs_that_differ_in_a_setting_end_well(tmp_path: Path) -> None:
    for seed in range(3):
        for lr in (1, 2):
            train(nn.Sequential(nn.Linear(4, 2)), tmp_path / "sweep", 1, 8, lr=lr, seed=seed)
    assert len((tmp_path / "sweep" / "inference.csv").read_text().splitlines()) == 1 + 6 * 2


def test_a_fault_of_the_tables_is_told_and_ends_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("no table today")

    monkeypatch.setattr("runmanager.results.result_files.write_tables", fail)
    train(nn.Sequential(nn.Linear(4, 2)), tmp_path / "sweep", 1)
    (run,) = stored_runs(tmp_path / "sweep")
    assert run.record.status == "finished"
    assert "the tables could not be written: ValueError: no table today" in "".join(capsys.readouterr())
