"""On a GPU: the step loop never waits for it, times are those of the device, and all measurements are recorded."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runmanager import RunManager
from runmanager.errors import ConfigurationError
from runmanager.records.run.run_record import Grant
from runmanager.records.storage.reader import read_run
from runmanager.tracking.device.transfer import SideStream, prefetch, to_device
from runmanager.tracking.epoch_metrics.epoch_meter import CorrectCounter
from runmanager.tracking.epoch_metrics.evaluation import Evaluation
from runmanager.tracking.monitoring.calibration import calibrate
from runmanager.tracking.timing.timer import PhaseTimer, clock_for
from runmanager.training.datasets.array_dataset import as_floats
from runmanager.training.datasets.registry import load_dataset
from runmanager.training.loading.loaders import build_loaders
from runmanager.training.loop import evaluate_epoch, train_epoch
from runmanager.training.options.dataset import FakeOptions
from runmanager.training.options.groups import (
    AdamOptions,
    DataLoaderOptions,
    OneCycleOptions,
    ResidentOptions,
    SgdOptions,
)
from runmanager.training.options.job import Precision
from runmanager.training.speed_race import train_contender
from runmanager.training.step.amp import float32_precision, precision_faults, scaler_for
from runmanager.training.step.cuda_graphs import CudaGraphs
from runmanager.training.step.micro_batches import MicroBatches
from runmanager.training.step.optimizers import build_optimizer, build_scheduler
from runmanager.training.step.stepper import Forward, Stepper

from ..job_options import job_options
from .gpu_device import DEVICE, IS_CUDA, needs_cuda, needs_device

pytestmark = needs_device


def build(lr: float = 0.1) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    network = nn.Sequential(*layers).to(DEVICE)
    dataset = TensorDataset(torch.rand(600, 1, 8, 8), torch.randint(3, (600,)))
    # Pinned, as copies of pageable memory are waited for.
    loader = DataLoader(dataset, batch_size=20, shuffle=True, pin_memory=IS_CUDA)
    return network, torch.optim.Adam(network.parameters(), lr=lr), loader


def test_predictions_on_several_devices_are_counted_and_kept_together() -> None:
    torch.manual_seed(0)
    matches, evaluation = CorrectCounter(), Evaluation()
    given = [(torch.randn(size, 3), torch.randint(3, (size,))) for size in (4, 4, 4, 70_000, 5)]
    for place, (preds, labels) in enumerate(given):
        where = torch.device("cpu") if place % 2 else DEVICE
        matches.add(preds.to(where), labels.to(where))
        evaluation.add(preds.to(where), labels.to(where), matches.prediction_format)
    scores, labels = (torch.cat(parts) for parts in zip(*given, strict=True))
    assert matches.total() == (int((scores.argmax(dim=1) == labels).sum()), len(labels))
    kept = evaluation.scores()
    assert kept is not None and torch.equal(kept.scores, scores) and torch.equal(kept.labels, labels)


def test_the_loop_of_an_epoch_never_waits(tmp_path: Path, waiting_is_an_error: Any) -> None:
    network, optimizer, loader = build()
    manager = RunManager(tmp_path / "sweep", console=False)
    with manager.run({"device": str(DEVICE)}, network, loader, optimizer=optimizer) as run:
        for epoch in run.epochs(3):
            with waiting_is_an_error:
                train_epoch(Stepper(Forward(network), optimizer), epoch.batches(loader), track=epoch.track)
                evaluate_epoch(Stepper(Forward(network)), epoch.eval_batches(loader), track=epoch.track_eval)
    stored = read_run(run.paths)
    assert [epoch.samples for epoch in stored.epochs] == [600] * 3
    for epoch in stored.epochs:
        parts = [getattr(epoch, f"{name}_seconds") for name in ("data", "transfer", "compute", "eval", "tracking")]
        assert sum(parts) == pytest.approx(epoch.wall_seconds, rel=0.05)


def test_logging_metrics_never_waits(tmp_path: Path, waiting_is_an_error: Any) -> None:
    network, _, loader = build()
    with RunManager(tmp_path / "sweep", console=False).run({"device": str(DEVICE)}, network, loader) as run:
        for epoch in run.epochs(2):
            with waiting_is_an_error:
                total = torch.zeros((), device=DEVICE)
                for images, labels in epoch.batches(loader):
                    total += images.new_ones(())
                    epoch.track(images.mean(), samples=len(labels), tokens=3, metrics={"n": total, "half": 0.5})
                    epoch.log(total=total, mean=images.mean())
    for stored in read_run(run.paths).epochs:
        assert stored.metrics and stored.metrics["total"] == 30.0 and stored.metrics["n"] == 15.5
        assert stored.metrics["mean"] is not None and stored.metrics["half"] == 0.5
        assert stored.units == {"tokens": 90}


@needs_cuda
@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP16])
def test_a_loop_with_autocast_never_waits(tmp_path: Path, waiting_is_an_error: Any, precision: Precision) -> None:
    network, _, loader = build()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01, fused=True)
    stepper = Stepper(Forward(network, precision=precision), optimizer, scaler=scaler_for(precision, DEVICE))
    manager = RunManager(tmp_path / "sweep", console=False)
    with manager.run({"device": str(DEVICE)}, network, loader, optimizer=optimizer) as run:
        for epoch in run.epochs(2):
            with waiting_is_an_error:
                train_epoch(stepper, epoch.batches(loader), track=epoch.track)
    assert run.record.status == "finished" and stepper.num_skipped < run.num_steps


@needs_cuda
def test_products_are_rounded_to_the_precision() -> None:
    left, right = torch.rand(512, 512, device=DEVICE), torch.rand(512, 512, device=DEVICE)
    errors = {}
    for precision in (Precision.FP32, Precision.TF32):
        with float32_precision(precision):
            errors[precision] = (left @ right - left.double() @ right.double()).abs().max().item()
    assert errors[Precision.FP32] < 1e-3
    if not precision_faults(Precision.TF32, DEVICE):
        assert errors[Precision.TF32] > 3 * errors[Precision.FP32]


class Greedy(nn.Module):
    """Allocates an eighth of the GPU's memory for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 3)
        self.wanted = torch.cuda.get_device_properties(DEVICE).total_memory // 8

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        torch.empty(len(images) * self.wanted, dtype=torch.uint8, device=images.device)
        return self.layer(images.flatten(1))


@needs_cuda
def test_batches_that_do_not_fit_the_gpu_are_halved() -> None:
    network = Greedy().to(DEVICE)
    notes: list[str] = []
    pieces = MicroBatches(halve_on_oom=True, notify=notes.append)
    stepper = Stepper(Forward(network), torch.optim.SGD(network.parameters(), lr=0.1), pieces=pieces)
    images, labels = torch.rand(32, 1, 8, 8, device=DEVICE), torch.zeros(32, dtype=torch.int64, device=DEVICE)
    _, preds = stepper.train(images, labels)
    assert pieces.size is not None and pieces.size < 8 and len(notes) >= 3
    assert preds.shape == (32, 3)


@needs_cuda
def test_a_loop_that_waits_raises(waiting_is_an_error: Any) -> None:
    number = torch.ones(1, device=DEVICE)
    with pytest.raises(RuntimeError), waiting_is_an_error:
        number.item()


def test_bytes_become_the_same_floats_as_on_the_cpu() -> None:
    images = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(as_floats(images.to(DEVICE)).cpu(), as_floats(images))


@pytest.mark.parametrize("options", [DataLoaderOptions(), ResidentOptions()], ids=lambda options: options.name)
def test_batches_on_the_gpu_equal_those_on_the_cpu(options: Any) -> None:
    data = load_dataset(FakeOptions(size=103, val_size=31), data_root=Path("unused"), seed=0)

    def batches(device: torch.device) -> list[Any]:
        sizes = {"batch_size": 20, "eval_batch_size": 16, "num_workers": 0}
        loader = build_loaders(options, data, device=device, seed=0, notify=print, **sizes).train
        found = []
        for number in (1, 2, 4):
            loader.set_epoch(number)
            found += [to_device(batch, device) for batch in loader]
        return found

    for (images, labels), (expected, its_labels) in zip(batches(DEVICE), batches(torch.device("cpu")), strict=True):
        assert images.device.type == DEVICE.type
        assert torch.equal(images.cpu(), expected) and torch.equal(labels.cpu(), its_labels)


@pytest.mark.parametrize("options", [DataLoaderOptions(), ResidentOptions()], ids=lambda options: options.name)
def test_loading_never_waits(options: Any, waiting_is_an_error: Any) -> None:
    data = load_dataset(FakeOptions(size=103, val_size=31), data_root=Path("unused"), seed=0)
    sizes = {"batch_size": 20, "eval_batch_size": 16, "num_workers": 0}
    loaders = build_loaders(options, data, device=DEVICE, seed=0, notify=print, **sizes)
    with waiting_is_an_error:
        for loader in (loaders.train, loaders.validation):
            assert sum(len(to_device(batch, DEVICE)[1]) for batch in loader) == loader.num_samples


def test_event_times_equal_the_wall_time_of_synchronized_work() -> None:
    """Within 1% in the best of several windows, as disturbances of the host lengthen its time, not the device's."""
    large, small = torch.rand(2048, 2048, device=DEVICE), torch.rand(64, 64, device=DEVICE)
    timer = PhaseTimer(clock_for(DEVICE))
    off = []
    for _ in range(5):
        timer.start()
        begin = time.perf_counter()
        for phase, matrix in (("data", small), ("compute", large), ("eval", large)):
            for _ in range(400 if IS_CUDA else 2):
                matrix @ matrix
            timer.mark(phase)
        seconds = timer.resolve()
        off.append(abs(sum(seconds.values()) / (time.perf_counter() - begin) - 1))
    assert min(off) < 0.01, off


@needs_cuda
def test_the_clock_measures_device_time_and_not_launch_time() -> None:
    clock = clock_for(DEVICE)
    timer = PhaseTimer(clock)
    large = torch.rand(4096, 4096, device=DEVICE)
    timer.start()
    for _ in range(20):
        large @ large
    timer.mark("compute")
    timer.mark("eval")
    seconds = timer.resolve()
    assert seconds["compute"] > 100 * seconds["eval"]


@needs_cuda
def test_memory_precision_and_work_are_measured(tmp_path: Path) -> None:
    network, optimizer, loader = build()
    manager = RunManager(tmp_path / "sweep", console=False)
    with manager.run({"device": str(DEVICE)}, network, loader, optimizer=optimizer) as run:
        for epoch in run.epochs(2):
            train_epoch(Stepper(Forward(network), optimizer), epoch.batches(loader), track=epoch.track)
    found = run.record.measurements
    assert found.peak_allocated_bytes and found.peak_reserved_bytes
    assert found.peak_reserved_bytes >= found.peak_allocated_bytes == run.record.peak_memory_bytes
    assert found.precision in ("fp32", "tf32")
    assert found.flop_per_step and found.operations_per_step and found.bytes_per_step


@needs_cuda
def test_the_gpu_has_ceilings() -> None:
    ceilings = calibrate(DEVICE, seconds=0.5)
    assert {"fp32", "bf16", "fp16"} <= set(ceilings.flops_per_second)
    assert ceilings.threads is None
    assert ceilings.copy_bytes_per_second and ceilings.transfer_bytes_per_second and ceilings.dispatch_seconds


@needs_cuda
def test_prefetched_batches_arrive_whole_and_nothing_waits(waiting_is_an_error: Any) -> None:
    copier = SideStream(DEVICE)
    batches = [(torch.full((64, 3, 224, 224), n % 251, dtype=torch.uint8), torch.full((64,), n)) for n in range(20)]
    pinned = [(images.pin_memory(), labels.pin_memory()) for images, labels in batches]
    busy, sums = torch.rand(2048, 2048, device=DEVICE), []
    with waiting_is_an_error:
        for sent in prefetch(pinned, copier):
            images, labels = sent.arrived()
            for _ in range(5):
                busy = torch.tanh(busy @ busy)
            sums.append(images.sum(dtype=torch.int64) + labels.sum())
    expected = [int(images.sum(dtype=torch.int64) + labels.sum()) for images, labels in batches]
    assert torch.stack(sums).tolist() == expected


@needs_cuda
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16, Precision.FP16])
@pytest.mark.parametrize("options", [AdamOptions(), SgdOptions(momentum=0.9, fused=True), SgdOptions(momentum=0.9)])
def test_captured_steps_train_like_others(options: Any, precision: Precision) -> None:
    losses, notes = [], []
    for is_graphed in (False, True):
        network, _, _ = build()
        optimizer = build_optimizer(options, network.parameters(), lr=0.05)
        stepper = Stepper(Forward(network, precision=precision), optimizer, scaler=scaler_for(precision, DEVICE))
        if is_graphed:
            stepper.use_graphs(CudaGraphs(DEVICE), num_warmups=3, required=True, notify=notes.append)
        schedule = build_scheduler(OneCycleOptions(), optimizer, num_epochs=3, steps_per_epoch=8)
        found = []
        for step in range(24):
            size = 7 if step % 8 == 7 else 20
            generator = torch.Generator().manual_seed(step)
            images, labels = torch.rand(size, 1, 8, 8, generator=generator), torch.arange(size) % 3
            # A copy, as the next replay writes to the same memory.
            found.append(stepper.train(images.to(DEVICE), labels.to(DEVICE))[0].clone())
            schedule.step()
        losses.append(torch.stack(found))
    # Some kernels add up in varying order, and each step amplifies an error in the last digit.
    assert torch.allclose(*losses, rtol=1e-2 if precision is Precision.FP32 else 0.1)
    assert not notes


@needs_cuda
def test_replaying_a_step_never_waits(waiting_is_an_error: Any) -> None:
    network, _, _ = build()
    stepper = Stepper(Forward(network), build_optimizer(AdamOptions(), network.parameters(), lr=0.05))
    stepper.use_graphs(CudaGraphs(DEVICE), num_warmups=2, required=True, notify=print)
    images, labels = torch.rand(20, 1, 8, 8, device=DEVICE), torch.arange(20, device=DEVICE) % 3
    for _ in range(2):
        stepper.train(images, labels)
    with waiting_is_an_error:
        for _ in range(10):
            stepper.train(images, labels)


@needs_cuda
def test_a_step_that_waits_is_not_captured() -> None:
    class Waiting(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) * float(inputs.max())

    for must in (False, True):
        network, notes = Waiting(4, 3).to(DEVICE), []
        stepper = Stepper(Forward(network), build_optimizer(AdamOptions(), network.parameters(), lr=0.05))
        stepper.use_graphs(CudaGraphs(DEVICE), num_warmups=1, required=must, notify=notes.append)
        batch = torch.rand(5, 4, device=DEVICE), torch.zeros(5, dtype=torch.int64, device=DEVICE)
        if must:
            with pytest.raises(ConfigurationError, match="cannot be captured"):
                stepper.train(*batch)
        else:
            for _ in range(3):
                stepper.train(*batch)
            assert "waits for the device" in notes[0]


@needs_cuda
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16])
def test_captured_steps_draw_the_same_random_numbers_as_others(precision: Precision) -> None:
    """Otherwise captured steps or a resume would change a run; each replay must also draw new numbers."""
    losses, states = [], []
    images = torch.rand(64, 1, 8, 8, device=DEVICE)
    labels = torch.arange(64, device=DEVICE) % 3
    for is_graphed in (False, True):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3)).to(
            DEVICE
        )
        optimizer = build_optimizer(AdamOptions(), network.parameters(), lr=0.0001)
        stepper = Stepper(Forward(network, precision=precision), optimizer, scaler=scaler_for(precision, DEVICE))
        if is_graphed:
            stepper.use_graphs(CudaGraphs(DEVICE), num_warmups=2, required=True, notify=print)
        losses.append(torch.stack([stepper.train(images, labels)[0].clone() for _ in range(12)]))
        states.append(torch.cuda.get_rng_state(DEVICE))
    assert torch.allclose(*losses, rtol=1e-3)
    assert torch.equal(*states)
    assert len(set(losses[1].tolist())) == 12


class Synchronizing(nn.Module):
    """Draws, and waits for the GPU in a way that sync debug mode does not detect and a capture does not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.dropout = nn.Linear(4, 3), nn.Dropout(0.1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        inputs = self.dropout(inputs)
        torch.cuda.synchronize()
        scores: torch.Tensor = self.layer(inputs)
        return scores


@needs_cuda
def test_a_step_whose_capture_fails_is_run_without_capture_and_does_not_affect_others() -> None:
    network, notes = Synchronizing().to(DEVICE), []
    stepper = Stepper(Forward(network), build_optimizer(AdamOptions(), network.parameters(), lr=0.5))
    stepper.use_graphs(CudaGraphs(DEVICE), num_warmups=1, required=False, notify=notes.append)
    batch = torch.rand(5, 4, device=DEVICE), torch.zeros(5, dtype=torch.int64, device=DEVICE)
    before = torch.cuda.current_stream(DEVICE)
    losses = [stepper.train(*batch)[0].item() for _ in range(8)]
    assert len(notes) == 1 and torch.cuda.current_stream(DEVICE) == before
    assert losses[-1] < losses[0]
    torch.cuda.empty_cache()
    sound, _, _ = build()
    another = Stepper(Forward(sound), build_optimizer(AdamOptions(), sound.parameters(), lr=0.05))
    another.use_graphs(CudaGraphs(DEVICE), num_warmups=1, required=True, notify=print)
    images, labels = torch.rand(20, 1, 8, 8, device=DEVICE), torch.arange(20, device=DEVICE) % 3
    assert all(another.train(images, labels)[0].isfinite() for _ in range(4))


@needs_cuda
def test_a_step_that_does_not_fit_next_to_the_captured_one_is_out_of_memory() -> None:
    class Larger(nn.Linear):
        """Allocates more memory than there is while it is captured."""

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if torch.cuda.is_current_stream_capturing():
                torch.empty(2**50, dtype=torch.uint8, device=inputs.device)
            return super().forward(inputs)

    batch = torch.rand(5, 4, device=DEVICE), torch.zeros(5, dtype=torch.int64, device=DEVICE)
    for must in (False, True):
        network, notes = Larger(4, 3).to(DEVICE), []
        stepper = Stepper(Forward(network), build_optimizer(AdamOptions(), network.parameters(), lr=0.05))
        stepper.use_graphs(CudaGraphs(DEVICE), num_warmups=1, required=must, notify=notes.append)
        if must:
            with pytest.raises(torch.OutOfMemoryError):
                stepper.train(*batch)
        else:
            losses = [stepper.train(*batch)[0].item() for _ in range(5)]
            assert "out of memory" in notes[0] and losses == sorted(losses, reverse=True)


class EightTurns:
    """Grants so many turns."""

    session, again, family = "", False, None
    left = 8

    def ask(self, **_: object) -> Grant | None:
        self.left -= 1
        return Grant() if self.left >= 0 else None


@needs_cuda
@pytest.mark.parametrize("graphs", [False, True])
def test_a_contender_of_a_race_takes_its_turns_on_the_gpu(graphs: bool) -> None:
    job = job_options(
        device="cuda", dataset=FakeOptions(size=400, val_size=20), batch_size=20, micro_batch=None, graphs=graphs
    )
    seen = train_contender(job, EightTurns())
    assert seen["device"] == "cuda" and {"data", "transfer", "compute"} <= set(seen["shares"])
