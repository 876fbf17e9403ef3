"""Checkpoints: the state of model, optimizer, scheduler and random generators, and the progress of the run."""

import math
from pathlib import Path
from typing import Any

import msgspec
import torch

from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import replacement
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import EpochRecord
from runmanager.tracking.device.rng import random_states, restore_random_states
from runmanager.tracking.options import Progress, is_better
from runmanager.training.datasets.registry import Data
from runmanager.training.step.stepper import Stepper

__all__ = ["TrainingState", "read_state"]

_VERSION = 1


class _Best(msgspec.Struct, frozen=True):
    """The epoch with the best value of `metric` so far."""

    metric: str
    value: float
    record: EpochRecord


class TrainingState:
    """Saves and restores everything that a resumed run needs to continue as an uninterrupted one would.

    With `keep_best`, the name of a metric, the weights of the best epoch are also kept, in best.pt. The sample shape
    and the number of classes of `data` are stored too, so that the network can be built again without the data.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Any,
        *,
        every: int,
        num_epochs: int,
        keep_best: str | None = None,
        data: Data | None = None,
        stepper: Stepper | None = None,
    ) -> None:
        self._parts = {"model": network, "optimizer": optimizer, "scheduler": scheduler}
        if stepper is not None:
            self._parts["step"] = stepper
        parameter = next(network.parameters(), None)
        self._device = torch.device("cpu") if parameter is None else parameter.device
        self._every = every
        self._num_epochs = num_epochs
        self._keep_best = keep_best
        self._best: _Best | None = None
        self._built_for = {} if data is None else {"in_shape": list(data.in_shape), "num_classes": data.num_classes}

    def observe(self, record: EpochRecord) -> None:
        """Note whether this epoch is the best so far."""
        value = getattr(record, self._keep_best) if self._keep_best else None
        if self._keep_best is None or value is None or not math.isfinite(value) or record.epoch == 0:
            return
        if is_better(self._keep_best, value, self._best.value if self._best else None):
            self._best = _Best(self._keep_best, value, record)

    def is_due(self, epoch: int) -> bool:
        """Whether to save after this epoch.

        The best epoch so far always is; otherwise a kill could leave best.pt with the weights of a lost epoch.
        """
        if self._every == 0 or epoch == 0:
            return False
        return epoch % self._every == 0 or epoch == self._num_epochs or self._is_best(epoch)

    def _is_best(self, epoch: int) -> bool:
        return self._best is not None and self._best.record.epoch == epoch

    def save(self, path: Path, progress: Progress) -> None:
        """Write the state atomically, and then best.pt in the same folder if this epoch is the best."""
        state = {name: part.state_dict() for name, part in self._parts.items()}
        state |= {"version": _VERSION, "random": random_states(self._device), "progress": msgspec.to_builtins(progress)}
        if self._best is not None:
            state["best"] = msgspec.to_builtins(self._best)
        _write(path, state | self._built_for)
        if self._is_best(progress.record.epoch):
            self._save_best(RunPaths(path.parent).best)

    def _save_best(self, path: Path) -> None:
        weights = {"version": _VERSION, "model": self._parts["model"].state_dict()}
        _write(path, weights | {"best": msgspec.to_builtins(self._best)} | self._built_for)

    def load(self, path: Path) -> Progress:
        """Restore the state. Raises `RecordError` for a damaged file or one of another version."""
        state = read_state(path)
        for name, part in self._parts.items():
            if name in state or name != "step":  # older versions did not store it
                part.load_state_dict(state[name])
        progress = msgspec.convert(state["progress"], Progress)
        best = msgspec.convert(state["best"], _Best) if "best" in state else None
        if best is not None and best.metric == self._keep_best:
            self._best = best
            if self._is_best(progress.record.epoch):
                self._save_best(
                    RunPaths(path.parent).best
                )  # the run may have been killed between writing the two files
        restore_random_states(state["random"], self._device)
        return progress


def _write(path: Path, state: dict[str, Any]) -> None:
    with replacement(path) as file:
        torch.save(state, file)


def read_state(path: Path) -> dict[str, Any]:
    """Read a checkpoint or best.pt to the CPU, restricted to weights and plain values.

    Raises `RecordError` for a damaged file or one of another version.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and torch raise different errors
        # Their messages are not shown, because torch's suggests loading the file in a way that runs the code in it.
        way_out = "delete it, and the run starts again"
        raise RecordError(f"{path} is damaged ({type(error).__name__}); {way_out}.") from error
    version = state.get("version") if isinstance(state, dict) else None
    if version != _VERSION:
        raise RecordError(
            f"{path} must be a checkpoint of version {_VERSION}, got {version}; "
            "use the runmanager that wrote it, or resume=never."
        )
    assert isinstance(state, dict)
    return state
