"""Measurements of a run, recorded for custom loops too."""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from runmanager import RunBuilder, RunManager
from runmanager.records.files.paths import device_peaks_file
from runmanager.records.host.gpus import DevicePeaks, save_device_peaks
from runmanager.records.run.run_record import DeviceReadings, Environment, EpochRecord, Measurements, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun
from runmanager.tracking.environment.environment import capture_environment
from runmanager.tracking.epoch import Epoch, EpochContext
from runmanager.tracking.introspect.step_cost import count_step_cost
from runmanager.tracking.lifecycle import run_measurements
from runmanager.tracking.lifecycle.run_measurements import RunMeasurements, precision_of
from runmanager.tracking.monitoring.device_meter import EnergyCounter, Reading
from runmanager.tracking.sinks import EpochDetails, MemorySink, RunStart

from ..conftest import Body, images

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def train_once(folder: Path, network: nn.Module, loader: Any, train: Body, **options: Any) -> None:
    with RunManager(folder, console=False).run({}, network, loader, **options) as run:
        train(run, network, loader)


def test_measurements_of_a_custom_loop(
    tmp_path: Path, network: nn.Module, loader: DataLoader[Any], train: Body, only_run: Callable[[], StoredRun]
) -> None:
    train_once(tmp_path / "sweep", network, loader, train)
    run = only_run()
    found = run.record.measurements
    work = count_step_cost(network, torch.rand(20, 1, 8, 8))
    assert (found.flop_per_step, found.operations_per_step, found.bytes_per_step) == (
        (work.flop, work.operations, work.bytes)
    )
    assert found.step_units == {"samples": 20.0}
    assert found.steps_per_epoch == 3 and found.precision == "fp32"
    assert found.first_batch_seconds is not None and 0 < found.first_batch_seconds <= (run.epochs[0].data_seconds or 0)
    assert found.peak_host_bytes is not None and found.peak_host_bytes >= (run.record.peak_memory_bytes or 0) > 0
    nothing = Measurements()
    for name in Measurements.__struct_fields__:
        if name.startswith("gpu_") or name in ("peak_allocated_bytes", "peak_reserved_bytes", "ceilings"):
            assert getattr(found, name) is getattr(nothing, name), f"{name} was not measured"
    assert run.record.notes == ()


def test_a_run_with_a_torch_newer_than_tested_has_a_note(
    tmp_path: Path,
    network: nn.Module,
    loader: DataLoader[Any],
    train: Body,
    only_run: Callable[[], StoredRun],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runmanager.tracking.torch_internals.CHECKED_VERSIONS", ("2.1", "2.3"))
    train_once(tmp_path / "sweep", network, loader, train)
    run = only_run()
    assert run.record.status == "finished"
    assert run.record.notes == (f"torch {torch.__version__} is newer than 2.3, the newest that was tested",)


def test_the_work_of_a_full_batch_is_counted_from_a_few_samples(
    tmp_path: Path, network: nn.Module, train: Body, only_run: Callable[[], StoredRun]
) -> None:
    train_once(tmp_path / "sweep", network, DataLoader(images(200), batch_size=100), train)
    assert only_run().record.measurements.flop_per_step == count_step_cost(network, torch.rand(100, 1, 8, 8)).flop


def test_the_work_with_a_one_shot_loader_is_counted_in_the_first_epoch(
    tmp_path: Path, network: nn.Module, train: Body, only_run: Callable[[], StoredRun]
) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(images())

    train_once(tmp_path / "sweep", network, DataLoader(Stream(), batch_size=25), train)
    run = only_run()
    assert run.record.measurements.flop_per_step == count_step_cost(network, torch.rand(25, 1, 8, 8)).flop
    assert run.epochs[0].warmup and (run.epochs[0].tracking_seconds or 0) > 0


def test_measurements_of_the_tutorials_calls(tmp_path: Path, only_run: Callable[[], StoredRun]) -> None:
    (run,) = RunBuilder.get_runs(OrderedDict(lr=[0.1]))
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    loader = DataLoader(images(), batch_size=20)
    manager = RunManager(tmp_path / "sweep", console=False)
    manager.begin_run(run, network, loader)
    manager.begin_epoch()
    for batch in loader:
        preds = network(batch[0])
        preds.sum().backward()
        manager.track_loss(preds.sum(), batch)
        manager.track_num_correct(preds, batch[1])
    manager.end_epoch()
    manager.end_run()
    found = only_run().record.measurements
    assert found.flop_per_step == 2 * 2 * 20 * 64 * 3 and found.steps_per_epoch == 3
    assert found.first_batch_seconds is None, "they do not use epoch.batches"


class ValueDependent(nn.Linear):
    """A layer whose work depends on the values of its inputs."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.flatten(1)) if float(inputs.sum()) > 0 else inputs


def test_a_model_whose_work_cannot_be_counted_trains_with_a_note(
    tmp_path: Path, train: Body, only_run: Callable[[], StoredRun]
) -> None:
    train_once(tmp_path / "sweep", ValueDependent(64, 3), DataLoader(images(), batch_size=20), train)
    record = only_run().record
    assert record.status == "finished" and record.measurements.flop_per_step is None
    assert record.measurements.steps_per_epoch == 3
    (note,) = record.notes
    assert note.startswith("the work of a step is not known: it cannot be followed without data (")


def test_batches_of_any_size_are_counted(
    tmp_path: Path, network: nn.Module, train: Body, only_run: Callable[[], StoredRun]
) -> None:
    sampler = [[0, 1, 2], [3, 4]]
    train_once(tmp_path / "sweep", network, DataLoader(images(), batch_sampler=sampler), train)
    found = only_run().record.measurements
    assert found.flop_per_step == count_step_cost(network, torch.rand(3, 1, 8, 8)).flop
    assert found.step_units == {"samples": 3.0}


def test_measurements_are_recorded_before_the_runs_end(
    tmp_path: Path, network: nn.Module, loader: DataLoader[Any]
) -> None:
    manager = RunManager(tmp_path / "sweep", console=False)
    run = manager.run({}, network, loader)
    run.__enter__()
    for epoch in run.epochs(2):
        for inputs, labels in epoch.batches(loader):
            epoch.track(torch.tensor(1.0), network(inputs), labels)
        if epoch.number == 2:
            assert run.record.measurements.steps_per_epoch == 3 and run.record.measurements.flop_per_step
    run.end()


def test_known_ceilings_of_the_device_are_recorded(
    tmp_path: Path, network: nn.Module, loader: DataLoader[Any], train: Body, only_run: Callable[[], StoredRun]
) -> None:
    path = device_peaks_file()
    assert path is not None
    name = capture_environment(CPU).device_name or ""
    of_this = DevicePeaks(device_name=name, threads=1, torch=str(torch.__version__), flops_per_second={"fp32": 1e11})
    of_others = DevicePeaks(device_name=name, threads=64, torch=str(torch.__version__))
    save_device_peaks(path, [of_others, of_this])
    train_once(tmp_path / "sweep", network, loader, train)
    assert only_run().record.measurements.ceilings == of_this


@pytest.mark.parametrize(
    ("network", "facts", "expected"),
    [
        (nn.Linear(2, 2), {}, "fp32"),
        (nn.Linear(2, 2), {"tf32_matmul": True}, "tf32"),
        (nn.Linear(2, 2), {"tf32_cudnn": True}, "fp32"),
        (nn.Conv2d(1, 1, 1), {"tf32_cudnn": True}, "tf32"),
        (nn.ConvTranspose2d(1, 1, 1), {"tf32_cudnn": True}, "tf32"),
        (nn.LSTM(2, 2), {"tf32_cudnn": True}, "tf32"),
        (nn.Sequential(nn.GRU(2, 2)), {"tf32_cudnn": True}, "tf32"),
        (nn.LSTM(2, 2), {"tf32_matmul": False, "tf32_cudnn": False}, "fp32"),
        (nn.Conv2d(1, 1, 1), {"tf32_cudnn": True, "compute_capability": "7.5"}, "fp32"),
        (nn.Conv2d(1, 1, 1), {"tf32_cudnn": True, "tf32_matmul": True, "cuda": None}, "fp32"),  # AMD's
        (nn.Linear(2, 2, dtype=torch.bfloat16), {"tf32_matmul": True}, "bf16"),
        (nn.Linear(2, 2, dtype=torch.float16), {}, "fp16"),
        (nn.Linear(2, 2, dtype=torch.float64), {}, "fp64"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).half()), {}, None),
        (nn.Flatten(), {}, None),
    ],
)
def test_precision(network: nn.Module, facts: dict[str, Any], expected: str | None) -> None:
    environment = Environment(**{"compute_capability": "9.0", "cuda": "13.0", **facts})
    assert precision_of(network, torch.device("cuda"), environment) == expected


def test_the_cpu_has_no_tf32() -> None:
    assert precision_of(nn.Linear(2, 2), CPU, Environment(tf32_matmul=True)) == "fp32"


class Meter:
    """A GPU whose counter of energy is read once more with each step of it."""

    is_of_host = False

    def __init__(self) -> None:
        reads = itertools.count(1)
        self.energy = EnergyCounter(lambda: 100.0 * next(reads) ** 2, step_seconds=1e-9)

    def read(self, own: Any) -> Reading:
        return Reading(0.5, 1.5e9, True, False)


def test_a_gpus_meters_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = SimpleNamespace(max_memory_allocated=lambda device: 3, max_memory_reserved=lambda device: 4)
    monkeypatch.setattr(torch, "get_device_module", lambda device: counts)
    monkeypatch.setattr(run_measurements, "open_meter", lambda device, *, is_shared: Meter())
    in_use = [torch.device("cuda", 0)]
    monkeypatch.setattr(run_measurements, "devices_in_use", lambda: in_use)
    measurements = RunMeasurements(torch.device("cuda"))
    joules = []
    for number in range(1, 5):
        measurements.epoch_begins()
        found = measurements.readings()
        assert isinstance(found, DeviceReadings)
        joules.append(found.joules)
        assert (found.utilization, found.clock_hertz, found.throttled_share, found.others_share) == (0.5, 1.5e9, 1, 0)
        epoch = Epoch(number, EpochContext(timer=None, device=CPU))  # type: ignore[arg-type]  # its times are not used
        measurements.epoch_ends(epoch, num_steps=10)
        if number == 3:
            in_use.append(torch.device("cuda", 1))
    assert joules == [300, 700, 1100, None]  # the last epoch was computed on two GPUs, of which one was read
    whole = measurements.measurements()
    assert (whole.peak_allocated_bytes, whole.peak_reserved_bytes) == (3, 4)
    assert whole.steps_per_epoch == 10


def test_memory_used_for_drawing_the_model_is_excluded_from_training(
    tmp_path: Path, network: nn.Module, loader: DataLoader[Any], train: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class RecordingSink(MemorySink):
        def begin(self, start: RunStart) -> Sequence[str]:
            events.append("drawn")
            return ()

        def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
            events.append("epoch")
            return ()

    monkeypatch.setattr(run_measurements, "reset_peak_memory", lambda device: events.append("peak reset"))
    with RunManager(tmp_path / "sweep", console=False, sinks=[RecordingSink()]).run({}, network, loader) as run:
        train(run, network, loader)
    assert events[:4] == ["peak reset", "drawn", "peak reset", "epoch"]


def test_a_resumed_run_keeps_the_measurements_of_its_first_attempt(network: nn.Module) -> None:
    measured = Measurements(first_batch_seconds=0.25, steps_per_epoch=7, flop_per_step=5)
    record = RunRecord(name="a", signature="b", status=Status.RUNNING, config={}, measurements=measured)
    measurements = RunMeasurements(CPU)
    measurements.begin(network, record)
    epoch = Epoch(3, EpochContext(timer=None, device=CPU))  # type: ignore[arg-type]  # its times are not used
    measurements.epoch_begins()
    measurements.epoch_ends(epoch, num_steps=9)
    found = measurements.measurements()
    assert (found.first_batch_seconds, found.steps_per_epoch, found.flop_per_step) == (0.25, 7, 5)
    assert found.precision == "fp32" and found.peak_host_bytes


def test_compilation_in_a_loop_is_measured(
    tmp_path: Path, network: nn.Module, loader: DataLoader[Any], train: Body
) -> None:
    with RunManager(tmp_path / "plain", console=False).run({}, network, loader) as plain:
        train(plain, network, loader)
    assert plain.record.measurements.compile_seconds is None
    compiled: Any = torch.compile(network, backend="eager")  # compiles in the first step
    with RunManager(tmp_path / "compiled", console=False).run({}, network, loader) as run:
        train(run, compiled, loader)
    seconds, whole = run.record.measurements.compile_seconds, run.record.run_seconds
    assert seconds is not None and whole is not None and 0 < seconds < whole


def test_compilation_of_an_earlier_attempt_is_not_added_up(network: nn.Module) -> None:
    record = RunRecord(
        name="a", signature="b", status=Status.RUNNING, config={}, measurements=Measurements(compile_seconds=900.0)
    )
    measurements = RunMeasurements(CPU)
    measurements.begin(network, record)
    for number in (1, 2):
        epoch = Epoch(number, EpochContext(timer=None, device=CPU))  # type: ignore[arg-type]  # its times are not used
        torch._dynamo.reset()
        torch.compile(lambda values: values + 1, backend="eager")(torch.ones(number))
        measurements.epoch_ends(epoch, num_steps=1)
    seconds = measurements.measurements().compile_seconds
    assert seconds is not None and 0 < seconds < 900
