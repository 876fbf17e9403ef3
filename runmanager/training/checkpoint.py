"""The training state of a run on disk: model, optimizer, scheduler, random states, and how far the run has come."""

from pathlib import Path
from typing import Any

import msgspec
import torch

from runmanager.errors import RecordError
from runmanager.records.files import replacement
from runmanager.tracking.options import Progress
from runmanager.tracking.randomness import random_states, restore_random_states

__all__ = ["TrainingState"]

_VERSION = 1


class TrainingState:
    """Saves and restores what training needs to go on as if it had never stopped."""

    def __init__(
        self,
        network: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Any,
        *,
        every: int,
        num_epochs: int,
    ) -> None:
        self._parts = {"model": network, "optimizer": optimizer, "scheduler": scheduler}
        self._every = every
        self._num_epochs = num_epochs

    def is_due(self, epoch: int) -> bool:
        """Whether to save after this epoch."""
        return self._every > 0 and epoch > 0 and (epoch % self._every == 0 or epoch == self._num_epochs)

    def save(self, path: Path, progress: Progress) -> None:
        """Write the state, atomically."""
        state = {name: part.state_dict() for name, part in self._parts.items()}
        state |= {"version": _VERSION, "random": random_states(), "progress": msgspec.to_builtins(progress)}
        with replacement(path) as file:
            torch.save(state, file)

    def load(self, path: Path) -> Progress:
        """Put the state back. Raises `RecordError` for a file that is damaged, or is of another version."""
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # pickle, zip and torch each have errors of their own
            # Not in their words: torch's advise to load the file in a way that runs whatever code is in it.
            way_out = "delete it, and the run starts anew"
            raise RecordError(f"{path} is damaged ({type(error).__name__}); {way_out}.") from error
        version = state.get("version") if isinstance(state, dict) else None
        if version != _VERSION:
            raise RecordError(
                f"{path} must be a checkpoint of version {_VERSION}, got {version}; "
                "use the runmanager that wrote it, or resume=never."
            )
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        restore_random_states(state["random"])
        return msgspec.convert(state["progress"], Progress)
