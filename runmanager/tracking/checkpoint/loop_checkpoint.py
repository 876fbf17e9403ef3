"""The checkpointer of a custom loop, from what its program passes to `RunManager.run`."""

from collections.abc import Mapping
from typing import Any

import torch

from runmanager.errors import UsageError
from runmanager.tracking.checkpoint.custom_state import CustomState
from runmanager.tracking.checkpoint.training_state import TrainingState
from runmanager.tracking.options import RunOptions

__all__ = ["loop_checkpointer"]


def loop_checkpointer(
    network: torch.nn.Module | None,
    loader: Any,
    state: Mapping[str, Any] | None,
    *,
    optimizer: torch.optim.Optimizer | None,
    options: RunOptions,
    allows_none: bool = False,
) -> TrainingState | None:
    """Return what saves and restores `state` with the network, and the best weights; None if neither is asked for.

    Where it `allows_none`, a state may come without a network.

    Raises `UsageError` for a state that cannot be stored, a metric of unknown direction, or without a network.
    """
    if state is None and options.keep_best is None:
        return None
    if network is None and (state is None or options.keep_best is not None or not allows_none):
        given = "state" if options.keep_best is None else "keep_best"
        raise UsageError(f"`{given}` must come with a network, got none; pass the network to the same call.")
    custom = None if state is None else CustomState(state, optimizer=optimizer, loader=loader)
    parts = {} if network is None else {"model": network}
    return TrainingState(parts, keep_best=options.keep_best, only_best=state is None, custom=custom)
