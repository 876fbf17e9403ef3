"""Regression on the diabetes data of scikit-learn: no accuracy, early stopping by R², resumed after a kill.

python examples/regression.py
python examples/regression.py        # the second time the finished run is kept
"""

import argparse

import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset, random_split
from torchmetrics.regression import R2Score

import runmanager


def diabetes() -> TensorDataset:
    """442 patients: ten standardized measurements and the disease's progression, standardized, as (1,)."""
    measurements, progression = load_diabetes(return_X_y=True)
    inputs = torch.tensor(measurements, dtype=torch.float32)
    targets = torch.tensor(progression, dtype=torch.float32).unsqueeze(1)
    return TensorDataset(inputs / inputs.std(dim=0), (targets - targets.mean()) / targets.std())


def build_model(hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(10, hidden), nn.Tanh(), nn.Dropout(0.1), nn.Linear(hidden, 1))


def train(lr: float, hidden: int, epochs: int, seed: int) -> None:
    torch.manual_seed(seed)
    train_set, test_set = random_split(diabetes(), [342, 100], torch.Generator().manual_seed(0))
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=100)
    model = build_model(hidden)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    runmanager.define_metric("val_r2", better="max")
    options = runmanager.RunOptions(early_stop=runmanager.EarlyStopOptions(metric="val_r2", patience=5))
    with runmanager.start_run(
        model,
        train_loader,
        root="outputs/regression",
        params={"lr": lr, "hidden": hidden, "epochs": epochs, "seed": seed},
        optimizer=optimizer,
        state={"optimizer": optimizer, "scheduler": scheduler},
        options=options,
    ) as run:
        r2 = R2Score().to(run.device)
        for epoch in run.epochs(epochs):
            model.train()
            for inputs, targets in epoch.batches(train_loader):
                loss = mse_loss(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                epoch.track(loss, samples=len(inputs))
            scheduler.step()
            model.eval()
            with torch.no_grad():
                for inputs, targets in epoch.eval_batches(test_loader):
                    predictions = model(inputs)
                    epoch.track_eval(mse_loss(predictions, targets), samples=len(inputs))
                    r2.update(predictions, targets)
            epoch.log(val_r2=r2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    train(**vars(parser.parse_args()))
