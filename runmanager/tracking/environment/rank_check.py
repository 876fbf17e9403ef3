"""Check that this process is not one of several distributed ranks, as `torchrun` starts them. Imports no torch."""

import os
import sys
from typing import Any

from runmanager.errors import UsageError

__all__ = ["rank_of_process", "refuse_several_ranks"]

_RANKS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
_TASKS = ("SLURM_PROCID", "SLURM_NTASKS")


def rank_of_process(*, in_cell: bool) -> tuple[int, int]:
    """Return this process's rank and the number of ranks: of torch's process group, else of its environment.

    Slurm's tasks may be independent of one another, but not `in_cell`, the cell of a sweep.
    """
    distributed = _process_group()
    if distributed is not None:
        return int(distributed.get_rank()), int(distributed.get_world_size())
    for rank, size in (*_RANKS, *([_TASKS] if in_cell else [])):
        if (count := _number(size, 1)) > 1:
            return _number(rank, 0), count
    return 0, 1


def _number(variable: str, default: int) -> int:
    given = os.environ.get(variable, "").strip()
    return int(given) if given.isdecimal() else default


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
    return _number("WORLD_SIZE", 1)


def _from_process_group() -> int:
    distributed = _process_group()
    return 1 if distributed is None else int(distributed.get_world_size())


def _process_group() -> Any | None:
    """Return torch's module for its process group; None without one."""
    distributed: Any = sys.modules.get("torch.distributed")
    is_used = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return distributed if is_used else None
