"""Run one epoch in this process and print its peak memory: a plain loop, or a run with one of the loaders.

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

from runmanager.app.run_cell import train_cell
from runmanager.records.files.paths import SweepPaths
from runmanager.tracking.device.devices import peak_host_bytes, peak_memory
from runmanager.training.datasets.array_dataset import ArrayDataset, as_floats
from runmanager.training.datasets.registry import Data, load_dataset
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
"""Size of the images of both splits: bytes in tensors, or floats that a dataset creates one by one."""
_SETS: dict[str, Any] = {
    "tensors": FakeOptions(size=_NUM_SAMPLES["tensors"] - _NUM_VALIDATION, val_size=_NUM_VALIDATION),
    "samples": {"name": "custom", "_target_": "benchmarks.resident_run.Samples", "holdout": _NUM_VALIDATION},
}
_LOADERS = {"dataloader": DataLoaderOptions(), "resident": ResidentOptions()}
_BATCH_SIZE = 1000
_RATE = 0.01


class Samples(Dataset[tuple[Tensor, int]]):
    """Custom dataset that creates each sample on access."""

    classes = tuple(range(10))

    def __len__(self) -> int:
        return _NUM_SAMPLES["samples"]

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((1, 28, 28), index / len(self)), index % len(self.classes)


def _plain_loop(data: Data, device: torch.device) -> None:
    """Run a plain loop without tracking: PyTorch's DataLoader over the same samples."""
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
        train_cell(paths.run(loader), options, {"device": device})


def main() -> None:
    """Run the given variant and print its peak memory in bytes: of the device, or on the CPU of the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resident_run", description=__doc__)
    parser.add_argument("loader", choices=["plain", *_LOADERS])
    parser.add_argument("set", choices=_SETS)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)  # nothing is timed, and threads that wait for each other are slow on a busy machine
    device = torch.device(args.device)
    if args.loader == "plain":
        _plain_loop(load_dataset(_SETS[args.set], data_root=Path("unused"), seed=0), device)
    else:
        _run(args.loader, _SETS[args.set], args.device)
    print(peak_host_bytes() if device.type == "cpu" else peak_memory(device))


if __name__ == "__main__":
    main()
