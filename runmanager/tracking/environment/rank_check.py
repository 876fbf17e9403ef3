"""Check that this process is not one of several distributed ranks, as `torchrun` starts them. Imports no torch."""

import os
import sys
from typing import Any

from runmanager.errors import UsageError

__all__ = ["refuse_several_ranks"]


def refuse_several_ranks() -> None:
    """Raise `UsageError` in every rank of a program that has several.

    The number of ranks is `WORLD_SIZE`, which torchrun, accelerate and deepspeed set, or the size of torch's process
    group. Independent Slurm tasks do not count as ranks.
    """
    if (ranks := max(_from_environment(), _from_process_group())) > 1:
        raise UsageError(
            f"A run must have one rank, got WORLD_SIZE={ranks}: several ranks are not supported yet, and nothing was "
            "written; start the program without torchrun, or unset WORLD_SIZE."
        )


def _from_environment() -> int:
    given = os.environ.get("WORLD_SIZE", "").strip()
    return int(given) if given.isdecimal() else 1


def _from_process_group() -> int:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())
