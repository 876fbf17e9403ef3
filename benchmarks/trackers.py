"""Trackers as their users write them into a loop: log each step's loss, and loss and accuracy of each epoch."""

import importlib.metadata
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from benchmarks.tutorial import Tally
from runmanager import RunManager
from runmanager.tracking.inactive_run import InactiveRun
from runmanager.tracking.options import RunOptions, TensorBoardOptions

__all__ = ["OURS", "PEERS", "UNTRACKED", "TrackedEpoch", "Tracker", "start_tracker", "version_of"]

OURS, UNTRACKED = "ours", "untracked"


class TrackedEpoch(Protocol):
    """A running epoch: passes batches on and tracks steps."""

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]: ...

    def track(self, loss: Tensor, preds: Tensor, labels: Tensor) -> None: ...


class Tracker(Protocol):
    """A tracked run."""

    def epoch(self) -> AbstractContextManager[TrackedEpoch]:
        """Return an epoch that is logged when its context exits."""
        ...

    def end(self) -> None:
        """End the run."""
        ...


class _Untracked:
    """No tracking; moves batches to the device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @contextmanager
    def epoch(self) -> Iterator[TrackedEpoch]:
        yield self

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        for images, labels in loader:
            yield images.to(self._device), labels.to(self._device)

    def track(self, loss: Tensor, preds: Tensor, labels: Tensor) -> None:
        pass

    def end(self) -> None:
        pass


class _Ours:
    """This package's run manager with times, record and event file."""

    def __init__(self, folder: Path, network: torch.nn.Module, device: torch.device) -> None:
        options = TensorBoardOptions(images=False, graph=False)
        manager = RunManager(folder, console=False, tensorboard=options)
        run = manager.run({"device": str(device)}, network, [], options=RunOptions(log_every=1))
        assert not isinstance(run, InactiveRun)  # new folder, available device
        self._run = run.__enter__()

    @contextmanager
    def epoch(self) -> Iterator[TrackedEpoch]:
        epoch = self._run.begin_epoch()
        yield epoch
        self._run.end_epoch(epoch)

    def end(self) -> None:
        self._run.end()


class _Peer(_Untracked):
    """A tracker that logs single values by `log(name, value, step)` and is flushed once per epoch."""

    def __init__(
        self,
        device: torch.device,
        log: Callable[[str, float, int], object],
        *,
        end: Callable[[], object],
        flush: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(device)
        self._log, self._flush, self._end = log, flush, end
        self._steps = self._epochs = 0
        self._tally = Tally()

    @contextmanager
    def epoch(self) -> Iterator[TrackedEpoch]:
        self._tally = Tally()
        self._epochs += 1
        yield self
        self._log("loss", self._tally.loss, self._epochs)
        self._log("accuracy", self._tally.accuracy, self._epochs)
        self._flush()

    def track(self, loss: Tensor, preds: Tensor, labels: Tensor) -> None:
        self._tally.track(loss, preds, labels)
        self._steps += 1
        self._log("step/loss", self._tally.step_losses[-1], self._steps)

    def end(self) -> None:
        self._end()


def _summary_writer(folder: Path, device: torch.device) -> Tracker:
    from torch.utils.tensorboard.writer import SummaryWriter

    writer: Any = SummaryWriter(str(folder))
    return _Peer(device, writer.add_scalar, flush=writer.flush, end=writer.close)


def _tensorboard_x(folder: Path, device: torch.device) -> Tracker:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(folder))
    return _Peer(device, writer.add_scalar, flush=writer.flush, end=writer.close)


def _wandb(folder: Path, device: torch.device) -> Tracker:
    import wandb

    quiet = wandb.Settings(silent=True, console="off")
    run = wandb.init(mode="offline", dir=str(folder), settings=quiet)
    # W&B has one step counter for all values, which must increase, so its counter is used instead of `step`.
    return _Peer(device, lambda name, value, _: run.log({name: value}), end=run.finish)


def _mlflow(folder: Path, device: torch.device) -> Tracker:
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.start_run()
    return _Peer(device, lambda name, value, step: mlflow.log_metric(name, value, step=step), end=mlflow.end_run)


PEERS: dict[str, tuple[str, Callable[[Path, torch.device], Tracker]]] = {
    "torch's SummaryWriter": ("torch", _summary_writer),
    "tensorboardX": ("tensorboardX", _tensorboard_x),
    "W&B offline": ("wandb", _wandb),
    "MLflow with SQLite": ("mlflow-skinny", _mlflow),
}
"""Required distribution and factory by the name shown in tables."""


def version_of(distribution: str) -> str | None:
    """Return the installed version, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def start_tracker(name: str, folder: Path, network: torch.nn.Module, device: torch.device) -> Tracker:
    """Start a run on `device` with the tracker of this name, `OURS` or `UNTRACKED`."""
    if name == UNTRACKED:
        return _Untracked(device)
    if name == OURS:
        return _Ours(folder, network, device)
    return PEERS[name][1](folder, device)
