"""An epoch in a process of its own, for the memory that it takes: a plain loop's, or a run's with one of its loaders.

python -m benchmarks.resident_run plain|dataloader|resident tensors|samples [--device cuda]
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from runmanager.records.files.paths import SweepPaths
from runmanager.tracking.device.devices import peak_host_bytes, peak_memory_bytes
from runmanager.tracking.manager import RunManager
from runmanager.training.datasets.array_dataset import ArrayDataset, as_floats
from runmanager.training.datasets.registry import Data, load_dataset
from runmanager.training.job import train_run
from runmanager.training.models.builtin_models import build_model
from runmanager.training.options.dataset import FakeOptions
from runmanager.training.options.groups import (
    ConstantOptions,
    DataLoaderOptions,
    LogisticOptions,
    ResidentOptions,
    SgdOptions,
)
from runmanager.training.options.job import TrainingOptions

__all__ = ["DATA_BYTES", "Samples"]

_NUM_SAMPLES = {"tensors": 640_000, "samples": 160_000}
_NUM_VALIDATION = 40_000
DATA_BYTES = {"tensors": _NUM_SAMPLES["tensors"] * 784, "samples": _NUM_SAMPLES["samples"] * 784 * 4}
"""The size of a set's images, of both parts: bytes in tensors, or floats that a dataset makes one by one."""
_SETS: dict[str, Any] = {
    "tensors": FakeOptions(size=_NUM_SAMPLES["tensors"] - _NUM_VALIDATION, val_size=_NUM_VALIDATION),
    "samples": {"name": "custom", "_target_": "benchmarks.resident_run.Samples", "holdout": _NUM_VALIDATION},
}
_LOADERS = {"dataloader": DataLoaderOptions(), "resident": ResidentOptions()}
_BATCH_SIZE = 1000
_RATE = 0.01


class Samples(Dataset[tuple[Tensor, int]]):
    """Somebody's own dataset, which holds nothing itself."""

    classes = tuple(range(10))

    def __len__(self) -> int:
        return _NUM_SAMPLES["samples"]

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((1, 28, 28), index / len(self)), index % len(self.classes)


def _plain_loop(data: Data, device: torch.device) -> None:
    """What somebody would write who tracks nothing: PyTorch's loader over the same samples."""
    network = build_model(LogisticOptions(), in_shape=data.in_shape, num_classes=data.num_classes).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=_RATE)
    train, validation = (
        TensorDataset(*part.tensors()) if isinstance(part, ArrayDataset) else part
        for part in (data.train, data.validation)
    )
    for images, labels in DataLoader(train, _BATCH_SIZE, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(network(as_floats(images.to(device))), labels.to(device)).backward()
        optimizer.step()
    with torch.no_grad():
        for images, labels in DataLoader(validation, _BATCH_SIZE):
            F.cross_entropy(network(as_floats(images.to(device))), labels.to(device))


def _run(loader: str, dataset: Any, device: str) -> None:
    options = TrainingOptions(
        lr=_RATE,
        batch_size=_BATCH_SIZE,
        device=device,
        epochs=1,
        dataset=dataset,
        model=LogisticOptions(),
        optimizer=SgdOptions(),
        scheduler=ConstantOptions(),
        loader=_LOADERS[loader],
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = SweepPaths(Path(folder))
        train_run(
            RunManager(folder, console=False, owns_sweep=False),
            options,
            params={"device": device},
            folder=paths.run(loader),
            when_claimed=lambda run: None,
        )


def main() -> None:
    """Train as the command line says, and print the peak of memory in bytes: the device's, on the CPU the process's."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resident_run", description=__doc__)
    parser.add_argument("loader", choices=["plain", *_LOADERS])
    parser.add_argument("set", choices=_SETS)
    parser.add_argument("--device", default="cpu")
    words = parser.parse_args()
    torch.set_num_threads(1)  # nothing is timed, and threads that wait for each other crawl on a busy machine
    device = torch.device(words.device)
    if words.loader == "plain":
        _plain_loop(load_dataset(_SETS[words.set], data_root=Path("unused"), seed=0), device)
    else:
        _run(words.loader, _SETS[words.set], words.device)
    print(peak_host_bytes() if device.type == "cpu" else peak_memory_bytes(device))


if __name__ == "__main__":
    main()
