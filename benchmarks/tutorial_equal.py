"""The tutorial's training and ours are the same training: equal losses, and the same accuracy over several seeds.

Both draw the same images in the same order and begin with the same weights. The tutorial's side decodes and steps as
there; ours has the settings whose speed is measured.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler

from benchmarks.command import Settings, carry_out
from benchmarks.interleaving import Patience
from benchmarks.mnist_files import MnistFiles, find_or_generate
from benchmarks.our_training import CNN_ON_MNIST, FASTEST, Listener, composed, train
from benchmarks.rows import Budget, Row
from benchmarks.tutorial import (
    LEARNING_RATE,
    Tally,
    TutorialNetwork,
    training_set,
    tutorial_epoch,
    tutorial_loader,
)
from runmanager.records.run.run_record import EpochRecord
from runmanager.tracking.device.rng import seed_everything
from runmanager.training.datasets.splits import random_subset
from runmanager.training.loading.batch_sampler import epoch_seed
from runmanager.training.models.builtin_models import Network

__all__ = ["Case", "DoubleNetwork", "Trained", "measure", "rows", "train_ours", "train_tutorial"]

_NUM_SAMPLES = 20_000
_NUM_EPOCHS = 3
_BATCH_SIZES = (1000, 10_000)
_FIRST_LOSS, _LOSSES, _ACCURACY = Budget(1e-5), Budget(1e-6), Budget(0.5, words="{:g} points".format)
_PATIENCE = Patience(min_rounds=5, max_rounds=5, max_seconds=120)


@dataclass(frozen=True)
class Case:
    """One training: `is_double` in float64."""

    images: MnistFiles
    device: str
    seed: int
    batch_size: int
    num_epochs: int = _NUM_EPOCHS
    num_samples: int = _NUM_SAMPLES
    is_double: bool = False


@dataclass(frozen=True)
class Trained:
    """What a training came to: the loss of its first step, each epoch's mean loss, the test images' accuracy."""

    first_loss: float
    losses: Sequence[float]
    accuracy: float


Pair = tuple[Trained, Trained]
"""Ours and the tutorial's."""


class _InDouble(nn.Module):
    """Computes in float64, whatever the images are."""

    def __init__(self) -> None:
        super().__init__()
        self.double()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = super().forward(images.double())
        return logits


class DoubleNetwork(_InDouble, Network):
    """Our network in float64."""


class DoubleTutorialNetwork(_InDouble, TutorialNetwork):
    """The tutorial's network in float64."""


def measure(settings: Settings) -> list[Row]:
    """The rows of the first loss, of all losses in float64, and of the accuracies."""
    with tempfile.TemporaryDirectory() as name:
        images = find_or_generate(Path(name))
        small, large = _BATCH_SIZES
        in_double = [_both(Case(images, settings.device, settings.seed, each, is_double=True)) for each in _BATCH_SIZES]
        first = _both(Case(images, settings.device, settings.seed, large, num_epochs=1))
        pairs: list[Pair] = []
        began, patience = time.monotonic(), settings.patience
        while len(pairs) < patience.min_rounds or (
            len(pairs) < patience.max_rounds and time.monotonic() - began < patience.max_seconds
        ):
            pairs.append(_both(Case(images, settings.device, settings.seed + len(pairs), small)))
    return rows(f"{_NUM_SAMPLES:,} of {images.name}", pairs, first, in_double)


def rows(
    what: str,
    pairs: Sequence[Pair],
    first: Pair,
    in_double: Sequence[Pair],
) -> list[Row]:
    """`pairs` are one a seed, `first` is with the large batches, `in_double` are one a batch size."""
    sizes = " and ".join(f"{each:,}" for each in _BATCH_SIZES)
    firsts = [(ours.first_loss, theirs.first_loss) for ours, theirs in (*pairs, first)]
    doubles = [pair for ours, theirs in in_double for pair in zip(ours.losses, theirs.losses, strict=True)]
    return [
        _difference(f"first step's loss, {what}, batch size {sizes}", firsts, _FIRST_LOSS),
        _difference(f"mean loss of each of {_NUM_EPOCHS} epochs in float64, the same", doubles, _LOSSES),
        _accuracy(f"accuracy on the test images after {_NUM_EPOCHS} epochs, mean over seeds, batch size", pairs),
    ]


def _difference(what: str, pairs: Sequence[tuple[float, float]], budget: Budget) -> Row:
    off = [abs(ours / theirs - 1) for ours, theirs in pairs]
    ours, theirs = pairs[off.index(max(off))]
    return Row(
        what,
        f"{ours:.9g}",
        f"{theirs:.9g}",
        f"off by {max(off):.2g} at most",
        str(len(pairs)),
        str(budget),
        budget.verdict(max(off), max(off), max(off)),
    )


def _accuracy(what: str, pairs: Sequence[Pair]) -> Row:
    ours, theirs = (mean(side) for side in zip(*((a.accuracy, b.accuracy) for a, b in pairs), strict=True))
    points = 100 * abs(ours - theirs)
    widest = 100 * max(abs(a.accuracy - b.accuracy) for a, b in pairs)
    return Row(
        f"{what} {_BATCH_SIZES[0]:,}",
        f"{ours:.2%}",
        f"{theirs:.2%}",
        f"off by {points:.2g} points, in one seed by {widest:.2g} at most",
        str(len(pairs)),
        str(_ACCURACY),
        _ACCURACY.verdict(points, points, points),
    )


def _both(case: Case) -> Pair:
    return train_ours(case), train_tutorial(case)


def train_ours(case: Case) -> Trained:
    """This package's training of the case."""
    first: list[float] = []
    records: list[EpochRecord] = []

    def ended(record: EpochRecord, step_losses: Sequence[float]) -> bool:
        records.append(record)
        first.extend(step_losses[:1])
        return True

    target = "benchmarks.tutorial_equal.DoubleNetwork"
    words = [
        *(*CNN_ON_MNIST, f"data_root={case.images.root}", f"dataset.size={case.num_samples}"),
        *(("model=custom", f"model._target_={target}") if case.is_double else ()),
        *(f"seed={case.seed}", f"batch_size={case.batch_size}", f"epochs={case.num_epochs}", f"device={case.device}"),
        *("log_every=1", "checkpoint.every=0", *FASTEST),
    ]
    with tempfile.TemporaryDirectory() as folder:
        train(composed(words), Path(folder), listener=Listener(lambda: None, ended))
    last = records[-1]
    assert last.val_accuracy is not None
    return Trained(first[0], [float(record.loss or 0) for record in records], last.val_accuracy)


def train_tutorial(case: Case) -> Trained:
    """The tutorial's training of the case: its own loader and loop, and PyTorch's own sampler."""
    seed_everything(case.seed)
    network = (DoubleTutorialNetwork() if case.is_double else TutorialNetwork()).to(case.device)
    dataset: Any = random_subset(training_set(case.images.root), case.num_samples, seed=case.seed, name="mnist")
    generator = torch.Generator()
    sampler = RandomSampler(dataset, generator=generator)
    loader = tutorial_loader(dataset, case.batch_size, sampler=sampler)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    tallies = []
    for epoch in range(1, case.num_epochs + 1):
        generator.manual_seed(epoch_seed(case.seed, epoch))
        tallies.append(Tally())
        tutorial_epoch(network, loader, optimizer, tallies[-1])
    return Trained(
        tallies[0].step_losses[0], [tally.loss for tally in tallies], _test_accuracy(case.images.root, network)
    )


@torch.no_grad()
def _test_accuracy(root: Path, network: nn.Module) -> float:
    dataset: Any = torchvision.datasets.MNIST(root, train=False, transform=torchvision.transforms.ToTensor())
    device = next(network.parameters()).device
    correct = 0
    for images, labels in DataLoader(dataset, batch_size=1000):
        correct += int(network(images.to(device)).argmax(dim=1).eq(labels.to(device)).sum())
    return correct / len(dataset)


if __name__ == "__main__":
    carry_out("tutorial_equal", measure, summary=__doc__, patience=_PATIENCE, has_device=True)
