"""On a GPU: the step loop never waits for it, times are the device's own, and everything that is measured is there."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runmanager import RunManager
from runmanager.records.store import read_run
from runmanager.tracking.calibration import calibrate
from runmanager.tracking.timer import PhaseTimer, clock_for
from runmanager.tracking.transfer import to_device
from runmanager.training.arrays import as_floats
from runmanager.training.datasets import load_dataset
from runmanager.training.loaders import build_loaders
from runmanager.training.loop import evaluate_epoch, train_epoch
from runmanager.training.options import DataLoaderOptions, FakeOptions, ResidentOptions

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="wants a CUDA device")

CUDA = torch.device("cuda")


@pytest.fixture
def waiting_is_an_error() -> Any:
    """Whatever waits for the GPU raises, while it is entered."""

    class Mode:
        def __enter__(self) -> None:
            torch.cuda.set_sync_debug_mode("error")

        def __exit__(self, *error: object) -> None:
            torch.cuda.set_sync_debug_mode("default")

    return Mode()


def build(lr: float = 0.1) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).to(CUDA)
    dataset = TensorDataset(torch.rand(600, 1, 8, 8), torch.randint(3, (600,)))
    # Pinned: a batch of pageable memory is waited for, and rightly so.
    loader = DataLoader(dataset, batch_size=20, shuffle=True, pin_memory=True)
    return network, torch.optim.Adam(network.parameters(), lr=lr), loader


def test_the_loop_of_an_epoch_never_waits(tmp_path: Path, waiting_is_an_error: Any) -> None:
    network, optimizer, loader = build()
    manager = RunManager(tmp_path / "sweep", console=False)
    with manager.run({"device": "cuda"}, network, loader, optimizer=optimizer) as run:
        for epoch in run.epochs(3):
            with waiting_is_an_error:
                train_epoch(network, epoch.batches(loader), optimizer, track=epoch.track)
                evaluate_epoch(network, epoch.eval_batches(loader), track=epoch.track_eval)
    stored = read_run(run.folder.paths)
    assert [epoch.samples for epoch in stored.epochs] == [600] * 3
    for epoch in stored.epochs:
        parts = [getattr(epoch, f"{name}_seconds") for name in ("data", "transfer", "compute", "eval", "tracking")]
        assert sum(parts) == pytest.approx(epoch.wall_seconds, rel=0.05)


def test_a_loop_that_waits_would_be_seen(waiting_is_an_error: Any) -> None:
    number = torch.ones(1, device=CUDA)
    with pytest.raises(RuntimeError), waiting_is_an_error:
        number.item()


def test_bytes_become_the_same_floats_as_on_the_cpu() -> None:
    images = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(as_floats(images.to(CUDA)).cpu(), as_floats(images))


@pytest.mark.parametrize("options", [DataLoaderOptions(), ResidentOptions()], ids=lambda options: options.name)
def test_batches_on_the_gpu_are_those_of_the_cpu(options: Any) -> None:
    data = load_dataset(FakeOptions(size=103, val_size=31), data_root=Path("unused"), seed=0)

    def batches(device: torch.device) -> list[Any]:
        sizes = {"batch_size": 20, "eval_batch_size": 16, "num_workers": 0}
        loader = build_loaders(options, data, device=device, seed=0, tell=print, **sizes).train
        return [to_device(batch, device) for batch in loader]

    for (images, labels), (expected, its_labels) in zip(batches(CUDA), batches(torch.device("cpu")), strict=True):
        assert images.device.type == "cuda"
        assert torch.equal(images.cpu(), expected) and torch.equal(labels.cpu(), its_labels)


@pytest.mark.parametrize("options", [DataLoaderOptions(), ResidentOptions()], ids=lambda options: options.name)
def test_loading_never_waits(options: Any, waiting_is_an_error: Any) -> None:
    data = load_dataset(FakeOptions(size=103, val_size=31), data_root=Path("unused"), seed=0)
    sizes = {"batch_size": 20, "eval_batch_size": 16, "num_workers": 0}
    loaders = build_loaders(options, data, device=CUDA, seed=0, tell=print, **sizes)
    with waiting_is_an_error:
        for loader in (loaders.train, loaders.validation):
            assert sum(len(to_device(batch, CUDA)[1]) for batch in loader) == loader.num_samples


def test_the_clock_shows_the_devices_time_and_not_the_launching() -> None:
    clock = clock_for(CUDA)
    timer = PhaseTimer(clock)
    large = torch.rand(4096, 4096, device=CUDA)
    timer.start()
    for _ in range(20):
        large @ large
    timer.mark("compute")
    timer.mark("eval")
    seconds = timer.resolve()
    assert seconds["compute"] > 100 * seconds["eval"]


def test_memory_precision_and_work_are_measured(tmp_path: Path) -> None:
    network, optimizer, loader = build()
    manager = RunManager(tmp_path / "sweep", console=False)
    with manager.run({"device": "cuda"}, network, loader, optimizer=optimizer) as run:
        for epoch in run.epochs(2):
            train_epoch(network, epoch.batches(loader), optimizer, track=epoch.track)
    found = run.record.measurements
    assert found.peak_allocated_bytes and found.peak_reserved_bytes
    assert found.peak_reserved_bytes >= found.peak_allocated_bytes == run.record.peak_memory_bytes
    assert found.precision in ("fp32", "tf32")
    assert found.flop_per_step and found.operations_per_step and found.bytes_per_step


def test_the_gpu_has_ceilings() -> None:
    ceilings = calibrate(CUDA, seconds=0.5)
    assert {"fp32", "bf16", "fp16"} <= set(ceilings.flops_per_second)
    assert ceilings.threads is None
    assert ceilings.copy_bytes_per_second and ceilings.transfer_bytes_per_second and ceilings.dispatch_seconds
