"""Check that the tutorial's training and ours are the same: equal losses, and equal accuracy over several seeds.

Both use the same images in the same order and the same initial weights. The tutorial's side decodes and steps as the
tutorial does; ours uses the settings whose speed is measured.
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

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule
from benchmarks.mnist_files import MnistFiles, find_or_generate
from benchmarks.our_training import CNN_ON_MNIST, FASTEST, EpochListener, compose_cell, train
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
from runmanager.tracking.device.devices import seed_everything
from runmanager.training.datasets.array_dataset import random_subset
from runmanager.training.loading.batch_sampler import epoch_seed
from runmanager.training.models.builtin_models import Network
from runmanager.training.step.automatic_step import fast_piece_size

__all__ = ["Case", "Float64Network", "Trained", "measure", "rows", "train_ours", "train_tutorial"]

_NUM_SAMPLES = 20_000
_NUM_EPOCHS = 3
_BATCH_SIZES = (1000, 10_000)
_FIRST_LOSS, _LOSSES, _ACCURACY = Budget(1e-5), Budget(1e-6), Budget(0.5, format="{:g} points".format)
_AS_CHOSEN = ("channels_last=true", f"micro_batch={fast_piece_size(Network(), (1, 28, 28))}")
"""What `auto` becomes for our network on a CPU, for a class of which that is not known."""
_STOPPING_RULE = StoppingRule(min_rounds=5, max_rounds=5, max_seconds=120)


@dataclass(frozen=True)
class Case:
    """Settings of one training, in float64 if `is_float64`."""

    images: MnistFiles
    device: str
    seed: int
    batch_size: int
    num_epochs: int = _NUM_EPOCHS
    num_samples: int = _NUM_SAMPLES
    is_float64: bool = False


@dataclass(frozen=True)
class Trained:
    """Result of a training: loss of the first step, mean loss of each epoch, accuracy on the test images."""

    first_loss: float
    losses: Sequence[float]
    accuracy: float


Pair = tuple[Trained, Trained]
"""Ours and the tutorial's."""


class _Float64(nn.Module):
    """Computes in float64 for images of any type."""

    def __init__(self) -> None:
        super().__init__()
        self.double()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = super().forward(images.double())
        return logits


class Float64Network(_Float64, Network):
    """Our network in float64."""


class Float64TutorialNetwork(_Float64, TutorialNetwork):
    """The tutorial's network in float64."""


def measure(settings: Settings) -> list[Row]:
    """Return the rows of the first loss, of all losses in float64, and of the accuracies."""
    with tempfile.TemporaryDirectory() as name:
        images = find_or_generate(Path(name))
        small, large = _BATCH_SIZES
        in_float64 = [
            _both(Case(images, settings.device, settings.seed, each, is_float64=True)) for each in _BATCH_SIZES
        ]
        first = _both(Case(images, settings.device, settings.seed, large, num_epochs=1))
        pairs: list[Pair] = []
        start, stopping_rule = time.monotonic(), settings.stopping_rule
        while len(pairs) < stopping_rule.min_rounds or (
            len(pairs) < stopping_rule.max_rounds and time.monotonic() - start < stopping_rule.max_seconds
        ):
            pairs.append(_both(Case(images, settings.device, settings.seed + len(pairs), small)))
    return rows(f"{_NUM_SAMPLES:,} of {images.name}", pairs, first, in_float64)


def rows(
    what: str,
    pairs: Sequence[Pair],
    first: Pair,
    in_float64: Sequence[Pair],
) -> list[Row]:
    """Return the rows from a pair per seed, the first step with large batches, and a float64 pair per batch size."""
    sizes = " and ".join(f"{each:,}" for each in _BATCH_SIZES)
    firsts = [(ours.first_loss, theirs.first_loss) for ours, theirs in (*pairs, first)]
    doubles = [pair for ours, theirs in in_float64 for pair in zip(ours.losses, theirs.losses, strict=True)]
    return [
        _difference(f"first step's loss, {what}, batch size {sizes}", firsts, _FIRST_LOSS),
        _difference(f"mean loss of each of {_NUM_EPOCHS} epochs in float64, the same data", doubles, _LOSSES),
        _accuracy(f"accuracy on the test images after {_NUM_EPOCHS} epochs, mean over seeds, batch size", pairs),
    ]


def _difference(what: str, pairs: Sequence[tuple[float, float]], budget: Budget) -> Row:
    differences = [abs(ours / theirs - 1) for ours, theirs in pairs]
    ours, theirs = pairs[differences.index(max(differences))]
    return Row(
        what,
        f"{ours:.9g}",
        f"{theirs:.9g}",
        f"differs by at most {max(differences):.2g}",
        str(len(pairs)),
        str(budget),
        budget.verdict(max(differences), max(differences), max(differences)),
    )


def _accuracy(what: str, pairs: Sequence[Pair]) -> Row:
    ours, theirs = (mean(side) for side in zip(*((a.accuracy, b.accuracy) for a, b in pairs), strict=True))
    points = 100 * abs(ours - theirs)
    widest = 100 * max(abs(a.accuracy - b.accuracy) for a, b in pairs)
    return Row(
        f"{what} {_BATCH_SIZES[0]:,}",
        f"{ours:.2%}",
        f"{theirs:.2%}",
        f"differs by {points:.2g} points, by at most {widest:.2g} in one seed",
        str(len(pairs)),
        str(_ACCURACY),
        _ACCURACY.verdict(points, points, points),
    )


def _both(case: Case) -> Pair:
    return train_ours(case), train_tutorial(case)


def train_ours(case: Case) -> Trained:
    """Train the case with this package."""
    first: list[float] = []
    records: list[EpochRecord] = []

    def ended(record: EpochRecord, step_losses: Sequence[float]) -> bool:
        records.append(record)
        first.extend(step_losses[:1])
        return True

    target = "benchmarks.tutorial_equal.Float64Network"
    args = [
        *(*CNN_ON_MNIST, f"data_root={case.images.root}", f"dataset.size={case.num_samples}"),
        *(("model=custom", f"model._target_={target}", *_AS_CHOSEN) if case.is_float64 else ()),
        *(f"seed={case.seed}", f"batch_size={case.batch_size}", f"epochs={case.num_epochs}", f"device={case.device}"),
        *("log_every=1", "checkpoint.every=0", *FASTEST),
    ]
    with tempfile.TemporaryDirectory() as folder:
        train(compose_cell(args), Path(folder), listener=EpochListener(lambda: None, ended))
    last = records[-1]
    assert last.val_accuracy is not None
    return Trained(first[0], [float(record.loss or 0) for record in records], last.val_accuracy)


def train_tutorial(case: Case) -> Trained:
    """Train the case with the tutorial's loader and loop, and PyTorch's sampler."""
    seed_everything(case.seed)
    network = (Float64TutorialNetwork() if case.is_float64 else TutorialNetwork()).to(case.device)
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
    run_benchmark("tutorial_equal", measure, summary=__doc__, stopping_rule=_STOPPING_RULE, has_device=True)
