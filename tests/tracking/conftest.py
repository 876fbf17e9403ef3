"""Fixtures for the tests of tracking: a small network with state, images to train on, and a plain loop."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.storage.reader import StoredRun, read_run, read_sweep
from runmanager.tracking import options

NUM_SAMPLES = 50


class Timeline:
    """A clock that the test advances; a mark is the time at which it was made."""

    def __init__(self) -> None:
        self.now = 0.0
        self.num_waits = 0

    def synchronize(self) -> None:
        self.num_waits += 1

    def mark(self) -> float:
        return self.now

    def has_passed(self, mark: float) -> bool:
        return True

    def seconds(self, earlier: float, later: float) -> float:
        return later - earlier

    def host_seconds(self, mark: float) -> float:
        return mark

    def release(self, mark: float) -> None:
        pass


class SelfReferencing(nn.Module):
    """Calls its layer through a closure over itself, which a copy of the network shares."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.call = lambda inputs: self.norm(inputs)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.call(inputs)


class Stateful(nn.Sequential):
    """A network whose state a forward pass changes: BatchNorm's statistics and dropout's random numbers."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(144, 3)
        )


def images(count: int = NUM_SAMPLES, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    return TensorDataset(torch.rand(count, 1, 8, 8, generator=generator), labels)


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return Stateful()


@pytest.fixture
def loader() -> DataLoader[Any]:
    """Batches of 20, 20 and 10, shuffled."""
    return DataLoader(images(), batch_size=20, shuffle=True)


@pytest.fixture
def own_directions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the directions that a test declares, as they hold for the whole process."""
    monkeypatch.setattr(options, "_declared", {})
    yield


Body = Callable[..., None]


@pytest.fixture(scope="session")
def train() -> Body:
    """Return the body of a tracked run: trains, and evaluates if `validation` is given."""

    def train_and_evaluate(
        run: Any,
        network: nn.Module,
        loader: Any,
        *,
        epochs: int = 2,
        lr: float = 0.05,
        validation: Any = None,
        units: Mapping[str, int] | None = None,
        logged: Mapping[str, Any] | None = None,
    ) -> None:
        optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9)
        for epoch in run.epochs(epochs):
            network.train()
            for inputs, labels in epoch.batches(loader):
                optimizer.zero_grad()
                preds = network(inputs)
                loss = F.cross_entropy(preds, labels)
                loss.backward()
                optimizer.step()
                epoch.track(loss, preds, labels, **(units or {}))
            if validation is not None:
                network.eval()
                with torch.no_grad():
                    for inputs, labels in epoch.eval_batches(validation):
                        preds = network(inputs)
                        epoch.track_eval(F.cross_entropy(preds, labels), preds, labels)
            if logged:
                epoch.log(logged)

    return train_and_evaluate


@pytest.fixture
def only_run(tmp_path: Path) -> Callable[[], StoredRun]:
    """Return a function that reads the only run of the sweep `tmp_path/sweep`."""

    def read() -> StoredRun:
        contents = read_sweep(SweepPaths(tmp_path / "sweep"))
        assert not contents.damaged
        (run,) = contents.runs
        return read_run(run.paths)

    return read


def stored_runs(folder: Path) -> Sequence[StoredRun]:
    contents = read_sweep(SweepPaths(folder))
    assert not contents.damaged
    return contents.runs


def event_files(paths: RunPaths) -> list[Path]:
    return sorted(paths.root.glob("events.out.tfevents.*"))
