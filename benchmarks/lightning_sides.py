"""Sides of the comparison with PyTorch Lightning: epochs of its Trainer and of ours, one process per side.

python -m benchmarks.lightning_sides lightning --data DIR
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.mnist_sides import serve_our_epochs
from benchmarks.our_training import CNN_ON_MNIST, FASTEST, PLAIN_STEPS
from benchmarks.side_processes import Turns
from benchmarks.tutorial import LEARNING_RATE, TutorialNetwork, training_set, tutorial_loader
from runmanager.training.datasets.array_dataset import random_subset
from runmanager.training.datasets.registry import load_dataset
from runmanager.training.loading.loaders import ResidentLoader
from runmanager.training.models.builtin_models import Network
from runmanager.training.options.dataset import MnistOptions
from runmanager.training.step.micro_batches import keep_freed_memory

__all__ = ["BATCH_SIZE", "NUM_SAMPLES", "SIDES"]

NUM_SAMPLES, BATCH_SIZE = 20_000, 1000
_PLAIN = ("loader=resident", *PLAIN_STEPS)
"""The loader that Lightning gets too, and steps as it makes them."""


def _fastest(data: Path, device: str, turns: Turns) -> None:
    """Run our epochs with the fastest settings."""
    serve_our_epochs([*_args(data, device), *FASTEST], turns)


def _plain(data: Path, device: str, turns: Turns) -> None:
    """Run our epochs with Lightning's loader and plain steps, so that only the loop differs."""
    serve_our_epochs([*_args(data, device), *_PLAIN], turns)


def _args(data: Path, device: str) -> list[str]:
    size = (f"dataset.size={NUM_SAMPLES}", f"batch_size={BATCH_SIZE}")
    return [*CNN_ON_MNIST, *size, f"data_root={data}", f"device={device}"]


def _lightning(data: Path, device: str, turns: Turns) -> None:
    """Run the Trainer as in its documentation: torchvision's MNIST in a plain DataLoader."""
    dataset = random_subset(training_set(data), NUM_SAMPLES, seed=0, name="mnist")
    _serve_trainer(TutorialNetwork(), tutorial_loader(dataset, BATCH_SIZE), device, turns)


def _lightning_with_our_loader(data: Path, device: str, turns: Turns) -> None:
    """Run the Trainer with our loader, network and kept memory, so that only the loop differs."""
    keep_freed_memory()
    training = load_dataset(MnistOptions(size=NUM_SAMPLES), data_root=data, seed=0).train
    loader = ResidentLoader(training, BATCH_SIZE, shuffle=True, seed=0, device=torch.device(device))
    _serve_trainer(Network(), loader, device, turns)


def _serve_trainer(network: torch.nn.Module, loader: Any, device: str, turns: Turns) -> None:
    """Run the epochs of one `fit`; a callback times each one and waits for the turns."""
    import lightning.pytorch as lightning

    class Model(lightning.LightningModule):  # type: ignore[misc]  # untyped if not installed
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            images, labels = batch
            preds = self.network(images)
            loss = F.cross_entropy(preds, labels)
            correct = (preds.argmax(dim=1) == labels).float().mean()
            self.log_dict({"loss": loss, "accuracy": correct}, on_step=False, on_epoch=True, batch_size=len(labels))
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=LEARNING_RATE)

    class Clock(lightning.Callback):  # type: ignore[misc]
        def on_train_start(self, trainer: Any, model: Any) -> None:
            turns.wait()

        def on_train_epoch_start(self, trainer: Any, model: Any) -> None:
            self.start = time.perf_counter()

        def on_train_epoch_end(self, trainer: Any, model: Any) -> None:
            turns.report(time.perf_counter() - self.start)
            trainer.should_stop = not turns.wait()

    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator=device,
            devices=1,
            max_epochs=-1,
            logger=lightning.loggers.TensorBoardLogger(folder),
            callbacks=[Clock()],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Model(), loader)


SIDES: dict[str, Callable[[Path, str, Turns], None]] = {
    "ours": _fastest,
    "ours with nothing but the loader": _plain,
    "lightning": _lightning,
    "lightning with our loader": _lightning_with_our_loader,
}


def main() -> None:
    """Serve the side given by the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    SIDES[options.side](options.data, options.device, Turns())


if __name__ == "__main__":
    main()
