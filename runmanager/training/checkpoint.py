"""What the built-in job checkpoints: the network, its optimizer, schedule and steps, and what it was built for."""

from typing import Any

import torch

from runmanager.tracking.checkpoint.training_state import TrainingState
from runmanager.training.datasets.registry import Data
from runmanager.training.step.stepper import Stepper

__all__ = ["job_state"]


def job_state(
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: Any,
    *,
    every: int,
    num_epochs: int,
    keep_best: str | None = None,
    data: Data | None = None,
    stepper: Stepper | None = None,
) -> TrainingState:
    """Return the training state of a job.

    The sample shape and the number of classes of `data` are stored too, so that the network can be built again without
    the data. Raises `UsageError` if it is not known which values of the metric `keep_best` are better.
    """
    parts: dict[str, Any] = {"model": network, "optimizer": optimizer, "scheduler": scheduler}
    if stepper is not None:
        parts["step"] = stepper
    return TrainingState(
        parts,
        every=every,
        num_epochs=num_epochs,
        keep_best=keep_best,
        facts=None if data is None else {"in_shape": list(data.in_shape), "num_classes": data.num_classes},
        added_later=("step",),  # older versions did not store it
    )
