"""Reimplementation of the tutorial: its network, training loop and run manager.

It does the same work in the same places as the tutorial: images are decoded and converted to tensors one by one, each
step fetches its loss and correct predictions from the device, and the run manager logs the whole first batch, traces
the graph on it, and in each epoch writes histograms of all weights and gradients and rebuilds its table.
"""

import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.tensorboard.writer import SummaryWriter

__all__ = [
    "LEARNING_RATE",
    "Tally",
    "TutorialManager",
    "TutorialNetwork",
    "training_set",
    "tutorial_epoch",
    "tutorial_loader",
]

LEARNING_RATE = 0.01


class TutorialNetwork(nn.Module):
    """Two convolutions, each followed by ReLU and pooling, and three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=5)
        self.conv2 = nn.Conv2d(6, 12, kernel_size=5)
        self.fc1 = nn.Linear(12 * 4 * 4, 120)
        self.fc2 = nn.Linear(120, 60)
        self.out = nn.Linear(60, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (batch, 10) of images (batch, 1, 28, 28)."""
        features = F.max_pool2d(F.relu(self.conv1(images)), 2, 2)
        features = F.max_pool2d(F.relu(self.conv2(features)), 2, 2)
        features = F.relu(self.fc1(features.reshape(-1, 12 * 4 * 4)))
        logits: Tensor = self.out(F.relu(self.fc2(features)))
        return logits


def training_set(root: Path) -> Dataset[Any]:
    """Return torchvision's MNIST, which converts a PIL image to a float tensor on each access."""
    found: Dataset[Any] = torchvision.datasets.MNIST(root, train=True, transform=torchvision.transforms.ToTensor())
    return found


def tutorial_loader(dataset: Dataset[Any], batch_size: int, *, sampler: Sampler[int] | None = None) -> DataLoader[Any]:
    """Return a plain DataLoader that shuffles or uses `sampler`."""
    return DataLoader(dataset, batch_size=batch_size, shuffle=sampler is None, sampler=sampler)


class StepTracker(Protocol):
    """Tracks steps."""

    def track(self, loss: Tensor, preds: Tensor, labels: Tensor) -> None: ...


class Tally:
    """Loss and correct predictions of an epoch, fetched from the device after each step."""

    def __init__(self) -> None:
        self.step_losses: list[float] = []
        self._sum, self._correct, self._samples = 0.0, 0, 0

    def track(self, loss: Tensor, preds: Tensor, labels: Tensor) -> None:
        self.step_losses.append(loss.item())
        self._sum += self.step_losses[-1] * len(labels)
        self._correct += int(preds.argmax(dim=1).eq(labels).sum().item())
        self._samples += len(labels)

    @property
    def loss(self) -> float:
        return self._sum / self._samples

    @property
    def accuracy(self) -> float:
        return self._correct / self._samples


def tutorial_epoch(
    network: nn.Module, loader: DataLoader[Any], optimizer: torch.optim.Optimizer, tracker: StepTracker
) -> None:
    """Run one epoch of the tutorial's loop on the network's device."""
    device = next(network.parameters()).device
    for batch in loader:
        images = batch[0].to(device)
        labels = batch[1].to(device)
        preds = network(images)
        loss = F.cross_entropy(preds, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker.track(loss, preds, labels)


class TutorialManager:
    """The tutorial's run manager: torch's SummaryWriter, one row per epoch, and a table rebuilt each time."""

    def __init__(self, folder: Path, network: nn.Module, loader: DataLoader[Any], **settings: Any) -> None:
        self._network, self._settings = network, settings
        self._start = time.time()
        self._rows: list[dict[str, Any]] = []
        self.table = pd.DataFrame()
        self._writer = SummaryWriter(str(folder))
        images, _ = next(iter(loader))
        self._writer.add_image("images", torchvision.utils.make_grid(images))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about deprecated tracing
            self._writer.add_graph(network, images.to(next(network.parameters()).device))

    def epochs(self, num_epochs: int) -> Iterator[Tally]:
        """Yield a tally for each epoch; the epoch is logged when the next one is requested."""
        for number in range(1, num_epochs + 1):
            start, tally = time.time(), Tally()
            yield tally
            self._end_epoch(number, tally, start)

    def _end_epoch(self, number: int, tally: Tally, start: float) -> None:
        durations = {"epoch duration": time.time() - start, "run duration": time.time() - self._start}
        self._writer.add_scalar("Loss", tally.loss, number)
        self._writer.add_scalar("Accuracy", tally.accuracy, number)
        for name, parameter in self._network.named_parameters():
            self._writer.add_histogram(name, parameter, number)
            self._writer.add_histogram(f"{name}.grad", parameter.grad, number)
        row = {"run": 1, "epoch": number, "loss": tally.loss, "accuracy": tally.accuracy}
        self._rows.append({**row, **durations, **self._settings})
        self.table = pd.DataFrame(self._rows)

    def save(self, path: Path) -> None:
        """End the run and write its files and table."""
        self._writer.close()
        self.table.to_csv(path.with_suffix(".csv"))
        self.table.to_json(path.with_suffix(".json"), orient="records", indent=4)
