"""A contrastive loss on two views of the digits: batches as dictionaries, gradient accumulation, bf16 products.

python examples/contrastive.py
runmanager sweep examples/contrastive.py temperature=0.1,0.5
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, Dataset

import runmanager

ACCUMULATED = 4  # batches per step of the optimizer


class TwoViews(Dataset[dict[str, torch.Tensor]]):
    """Two noisy views of each digit, `first` and `second` (64,), with its `label`."""

    def __init__(self, num_digits: int) -> None:
        images, labels = load_digits(return_X_y=True)
        self.images = torch.tensor(images[:num_digits], dtype=torch.float32) / 16
        self.labels = torch.tensor(labels[:num_digits])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        noise = torch.randn(2, 64, generator=torch.Generator().manual_seed(index)) * 0.2
        first, second = self.images[index] + noise
        return {"first": first, "second": second, "label": self.labels[index]}


def build_encoder() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))


def similarities(encoder: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Cosines of all first views with all second views, (batch, batch)."""
    return normalize(encoder(batch["first"])) @ normalize(encoder(batch["second"])).T


def train(lr: float, temperature: float, epochs: int, seed: int) -> None:
    torch.manual_seed(seed)
    loader = DataLoader(TwoViews(1024), batch_size=64, shuffle=True)
    encoder = build_encoder()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=lr)
    params = {"lr": lr, "temperature": temperature, "seed": seed}
    with runmanager.start_run(encoder, loader, params=params, state={"optimizer": optimizer}) as run:
        for epoch in run.epochs(epochs):
            for number, batch in enumerate(epoch.batches(loader), start=1):
                with torch.autocast(run.device.type, torch.bfloat16):
                    cosines = similarities(encoder, batch)
                pairs = torch.arange(len(cosines), device=run.device)
                loss = cross_entropy(cosines.float() / temperature, pairs)
                (loss / ACCUMULATED).backward()
                if number % ACCUMULATED == 0 or number == len(loader):
                    optimizer.step()
                    optimizer.zero_grad()
                hits = (cosines.argmax(dim=1) == pairs).float().mean()
                epoch.track(loss.detach(), samples=len(pairs), metrics={"top1": hits}, pairs=len(pairs) ** 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--temperature", type=float, default=0.2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    train(**vars(parser.parse_args()))
