"""Refusing to be one of several ranks that share a run, as `torchrun` starts them. Loads no torch."""

import os
import sys
from typing import Any

from runmanager.errors import UsageError

__all__ = ["refuse_several_ranks"]


def refuse_several_ranks() -> None:
    """Raise `UsageError` where this process is one of several ranks of a program, in each of them alike.

    They are known by `WORLD_SIZE`, which torchrun, accelerate and deepspeed set, and by PyTorch's process group. Tasks
    of Slurm's that know nothing of one another are no ranks.
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
