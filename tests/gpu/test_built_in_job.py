"""The built-in job on a GPU: it trains like on a CPU in every configuration of its steps, and resumes after a kill."""

import gc
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from benchmarks.our_training import Listener, composed, train
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.storage.reader import StoredRun, read_run

from .gpu_device import DEVICE, IS_CUDA, needs_cuda, needs_device

pytestmark = [
    needs_device,
    # A warning of the compiler about what `precision` decides.
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
]

EXACT, ROUNDED = 1e-2, 8e-2  # after about forty steps, each of which amplifies an error in the last digit
# Each epoch ends with a smaller batch. At twice this learning rate an error in the fifth digit becomes one of 2%.
CELL = (
    *("dataset=digits", "dataset.size=2050", "dataset.val_size=500", "model=cnn", "optimizer=adam", "lr=0.002"),
    *("batch_size=100", "epochs=2", "tensorboard.enabled=false"),
)
UNFUSED = ("graphs=true", "optimizer.fused=false")
TRACKED = ("tensorboard.enabled=true", "tensorboard.histograms=true", "log_every=1", "checkpoint.keep_best=val_loss")
CONFIGURATIONS = {
    "plainly": ([], EXACT),
    "from data on the GPU": (["loader=resident"], EXACT),
    "with a worker": (["num_workers=1"], EXACT),
    "sent ahead": (["loader.prefetch_to_device=true"], EXACT),
    "prefetched by a worker": (["loader.prefetch_to_device=true", "num_workers=1"], EXACT),
    "channels last": (["channels_last=true"], EXACT),
    "in pieces": (["micro_batch=40"], EXACT),
    "captured": (["graphs=true", "loader=resident"], EXACT),
    "captured but for its update": (UNFUSED, EXACT),
    "captured, prefetched": (["graphs=true", "loader.prefetch_to_device=true"], EXACT),
    "captured in pieces": (["graphs=true", "micro_batch=40"], EXACT),
    "captured, everything tracked": (["graphs=true", "loader=resident", *TRACKED], EXACT),
    "tf32": (["precision=tf32"], ROUNDED),
    "bf16": (["precision=bf16"], ROUNDED),
    "fp16": (["precision=fp16"], ROUNDED),
    "captured bf16": (["graphs=true", "precision=bf16", "channels_last=true"], ROUNDED),
    "captured fp16": (["graphs=true", "precision=fp16"], ROUNDED),
    "compiled": (["compile=true"], EXACT),
    "compiled and captured": (["compile=true", "graphs=true", "loader=resident"], EXACT),
}
ONLY_ON_CUDA = ("tf32", "fp16", "captured fp16", "compiled and captured")


def trained(
    folder: Path, *overrides: str, device: torch.device = DEVICE, listener: Listener | None = None
) -> StoredRun:
    """Train one cell in this process, and return the stored run."""
    train(composed([*CELL, *overrides, f"device={device}"]), folder, listener=listener)
    return stored(folder)


def stored(folder: Path) -> StoredRun:
    return read_run(SweepPaths(folder).run("run"))


def losses(run: StoredRun) -> list[float | None]:
    return [value for epoch in run.epochs for value in (epoch.loss, epoch.val_loss)]


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return trained(tmp_path_factory.mktemp("cpu"), device=torch.device("cpu"))


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_steps_in_every_configuration_train_like_on_a_cpu(
    tmp_path: Path, on_cpu: StoredRun, configuration: str
) -> None:
    if configuration in ONLY_ON_CUDA and not IS_CUDA:
        pytest.skip("needs a CUDA device")
    overrides, tolerance = CONFIGURATIONS[configuration]
    run = trained(tmp_path, *overrides)
    assert run.record.status == "finished" and not run.record.deviations
    assert not [note for note in run.record.notes if "graph" in note or "compile" in note]
    assert losses(run) == pytest.approx(losses(on_cpu), rel=tolerance)
    assert run.epochs[-1].val_accuracy == pytest.approx(on_cpu.epochs[-1].val_accuracy, abs=0.05)
    assert on_cpu.epochs[-1].val_loss < 0.8 * on_cpu.epochs[0].loss  # there was something to learn


def test_phases_sum_to_the_wall_time(tmp_path: Path) -> None:
    names = ("data", "transfer", "compute", "eval", "tracking")
    for epoch in trained(tmp_path, f"dataset.size={40_000 if IS_CUDA else 4000}").epochs:
        parts = [getattr(epoch, f"{name}_seconds") for name in names]
        assert all(part >= 0 for part in parts)
        assert sum(parts) == pytest.approx(epoch.wall_seconds, rel=0.01)


class Killed(Listener):
    """Interrupts the run after its second epoch."""

    def __init__(self) -> None:
        super().__init__(lambda: None, self._ended)

    def _ended(self, record: EpochRecord, losses: Sequence[float]) -> bool:
        if record.epoch == 2:
            raise KeyboardInterrupt
        return True


@pytest.mark.parametrize("overrides", [("graphs=true",), UNFUSED, ("loader=resident", "precision=fp16")])
def test_a_resumed_run_ends_like_an_uninterrupted_one(tmp_path: Path, overrides: Sequence[str]) -> None:
    if not IS_CUDA and "precision=fp16" in overrides:
        pytest.skip("needs a CUDA device")
    overrides = [*overrides, "epochs=3"]
    whole = trained(tmp_path / "whole", *overrides)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "broken", *overrides, listener=Killed())
    assert stored(tmp_path / "broken").record.status == "killed"
    resumed = trained(tmp_path / "broken", *overrides)
    assert resumed.record.status == "finished" and [epoch.epoch for epoch in resumed.epochs] == [1, 2, 3]
    # Some GPU kernels add up in varying order, so only a CPU gives the same last digit.
    assert losses(resumed) == pytest.approx(losses(whole), rel=EXACT if IS_CUDA else 0)


HUNGRY = '''
import torch

class Hungry(torch.nn.Module):
    """Allocates more memory than any device has, if it is `hungry`."""

    def __init__(self, in_shape, num_classes, hungry=True):
        super().__init__()
        self.layer = torch.nn.Linear(in_shape[1] * in_shape[2], num_classes)
        self.hungry = hungry

    def forward(self, images):
        if self.hungry:
            torch.empty(2**50, dtype=torch.uint8, device=images.device)
        return self.layer(images.flatten(1))
'''


def test_out_of_memory_is_recorded_and_does_not_affect_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hungry_network.py").write_text(HUNGRY)
    monkeypatch.syspath_prepend(tmp_path)
    overrides = ("model=custom", "model._target_=hungry_network.Hungry")
    with pytest.raises(RuntimeError, match=r"out of memory|[Cc]an't allocate|not enough memory"):
        trained(tmp_path / "first", *overrides)
    failed = stored(tmp_path / "first").record
    assert (failed.status, failed.reason) == ("failed", "out_of_memory")
    assert "batch_size=100" in failed.message
    after = trained(tmp_path / "second", *overrides, "+model.hungry=false")
    assert after.record.status == "finished" and not after.record.deviations


@needs_cuda
def test_peak_memory_is_measured_per_run(tmp_path: Path) -> None:
    small = ("loader=resident",)
    alone = trained(tmp_path / "alone", *small).record.peak_memory_bytes
    large = trained(tmp_path / "large", "batch_size=2000", "model=mlp", "model.hidden=[4096,4096]").record
    gc.collect()  # schedulers and optimizers reference each other
    after = trained(tmp_path / "after", *small).record.peak_memory_bytes
    assert alone and after and large.peak_memory_bytes
    assert large.peak_memory_bytes > 2 * alone
    assert after == pytest.approx(alone, rel=0.1)


@needs_cuda
def test_device_facts_are_recorded(tmp_path: Path) -> None:
    record = trained(tmp_path, "loader=resident").record
    facts, found = record.environment, record.measurements
    assert facts.device_name == torch.cuda.get_device_name(DEVICE)
    assert facts.cuda == torch.version.cuda and facts.cudnn
    assert facts.driver or not Path("/proc/driver/nvidia/version").exists()
    assert found.precision == "fp32" and facts.tf32_matmul is False and facts.tf32_cudnn is False
    assert found.peak_reserved_bytes >= found.peak_allocated_bytes == record.peak_memory_bytes > 0
