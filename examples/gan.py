"""A GAN on a ring of eight Gaussians: two networks, two optimizers, two losses, and a metric of the generated points.

python examples/gan.py
runmanager sweep examples/gan.py lr=0.001,0.0003 seed=0,1
"""

import argparse
import math

import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

import runmanager

NUM_MODES = 8


def ring(num_points: int, generator: torch.Generator) -> torch.Tensor:
    """Points of the eight Gaussians, (num_points, 2)."""
    angles = torch.randint(NUM_MODES, (num_points,), generator=generator) * (2 * math.pi / NUM_MODES)
    centers = torch.stack([angles.cos(), angles.sin()], dim=1)
    return centers + 0.05 * torch.randn(num_points, 2, generator=generator)


def build_networks() -> nn.ModuleDict:
    generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    discriminator = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    return nn.ModuleDict({"generator": generator, "discriminator": discriminator})


def modes_found(points: torch.Tensor) -> torch.Tensor:
    """The number of modes with at least 1% of the points within 0.2 of their center."""
    angles = torch.arange(NUM_MODES) * (2 * math.pi / NUM_MODES)
    distances = torch.cdist(points.cpu(), torch.stack([angles.cos(), angles.sin()], dim=1))
    return ((distances < 0.2).float().mean(dim=0) >= 0.01).sum()


def bce(logits: torch.Tensor, target: float) -> torch.Tensor:
    return binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))


def train(lr: float, epochs: int, seed: int) -> None:
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(ring(2048, torch.Generator().manual_seed(0))), batch_size=256, shuffle=True)
    networks = build_networks()
    generator, discriminator = networks["generator"], networks["discriminator"]
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=lr, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=lr, betas=(0.5, 0.999))
    state = {"g_optimizer": g_optimizer, "d_optimizer": d_optimizer}
    with runmanager.start_run(networks, loader, params={"lr": lr, "seed": seed}, state=state) as run:
        for epoch in run.epochs(epochs):
            for (real,) in epoch.batches(loader):
                fake = generator(torch.randn(len(real), 8, device=real.device))
                d_loss = bce(discriminator(real), 1.0) + bce(discriminator(fake.detach()), 0.0)
                d_optimizer.zero_grad()
                d_loss.backward()
                d_optimizer.step()
                g_loss = bce(discriminator(fake), 1.0)
                g_optimizer.zero_grad()
                g_loss.backward()
                g_optimizer.step()
                epoch.track(d_loss, samples=len(real), metrics={"g_loss": g_loss})
            with epoch.evaluating(), torch.no_grad():
                points = generator(torch.randn(1000, 8, device=run.device))
                epoch.log(val_modes=modes_found(points))
        figure = Figure(figsize=(3, 3))
        figure.add_subplot().scatter(*points.cpu().unbind(1), s=2)
        run.log_figure("generated points", figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    train(**vars(parser.parse_args()))
