"""Segmentation of discs and squares, with the mean intersection over union of torchmetrics.

python examples/segmentation.py
runmanager best outputs/<sweep> --metric val_miou
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import JaccardIndex

import runmanager

NUM_CLASSES, SIZE = 3, 32


def shapes(num_images: int, seed: int) -> TensorDataset:
    """Images (1, SIZE, SIZE) of a disc and a square in noise, with class labels (SIZE, SIZE): 0 background."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    centers = torch.randint(6, SIZE - 6, (num_images, 2, 2, 1, 1), generator=generator)
    disc = (rows - centers[:, 0, 0]) ** 2 + (columns - centers[:, 0, 1]) ** 2 <= 36
    square = torch.maximum((rows - centers[:, 1, 0]).abs(), (columns - centers[:, 1, 1]).abs()) <= 5
    labels = torch.where(disc, 1, 0)
    labels = torch.where(square, 2, labels)
    images = labels.float() / 2 + 0.3 * torch.randn(num_images, SIZE, SIZE, generator=generator)
    return TensorDataset(images.unsqueeze(1), labels)


def build_model(width: int) -> nn.Module:
    """Logits (batch, classes, SIZE, SIZE)."""
    return nn.Sequential(
        nn.Conv2d(1, width, 5, padding=2), nn.ReLU(),
        nn.Conv2d(width, width, 5, padding=2), nn.ReLU(),
        nn.Conv2d(width, NUM_CLASSES, 1),
    )  # fmt: skip


def train(lr: float, width: int, epochs: int, seed: int) -> None:
    torch.manual_seed(seed)
    train_loader = DataLoader(shapes(256, seed=0), batch_size=32, shuffle=True)
    test_loader = DataLoader(shapes(64, seed=1), batch_size=64)
    model = build_model(width)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    params = {"lr": lr, "width": width, "seed": seed}
    with runmanager.start_run(model, train_loader, params=params, state={"optimizer": optimizer}) as run:
        miou = JaccardIndex("multiclass", num_classes=NUM_CLASSES).to(run.device)
        for epoch in run.epochs(epochs):
            model.train()
            for images, labels in epoch.batches(train_loader):
                logits = model(images)
                loss = cross_entropy(logits, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                epoch.track(loss, logits, labels, task="multiclass")  # the accuracy is that of pixels
            model.eval()
            with torch.no_grad():
                for images, labels in epoch.eval_batches(test_loader):
                    logits = model(images)
                    epoch.track_eval(cross_entropy(logits, labels), logits, labels, task="multiclass")
                    miou.update(logits, labels)
            epoch.log(val_miou=miou)  # computed and reset at the epoch's end


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    train(**vars(parser.parse_args()))
