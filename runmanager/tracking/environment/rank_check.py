"""Which of several distributed ranks this process is, as `torchrun` starts them. Imports no torch."""

import os
import sys
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.host.process import RANKS, TASKS
from runmanager.tracking.environment.cell_process import CellProcess, is_in_cell


def rank_of_process(*, in_cell: bool) -> tuple[int, int]:
    """Return this process's rank and the number of ranks: of torch's process group, else of its environment.

    Those of `TASKS` count `in_cell`, the cell of a sweep.
    """
    distributed = _process_group()
    if distributed is not None:
        return int(distributed.get_rank()), int(distributed.get_world_size())
    for rank, size in (*RANKS, *([TASKS] if in_cell else [])):
        if (count := _number(size, 1)) > 1:
            return _number(rank, 0), count
    return 0, 1


def _number(variable: str, default: int) -> int:
    given = os.environ.get(variable, "").strip()
    return int(given) if given.isdecimal() else default


def is_apart() -> bool:
    """Whether this process takes part in a run without being one of the ranks that it knows of: it records nothing.

    It is a further process of a cell, or was started beside rank 0 by a launcher such as Lightning's, which sets no
    `RANK`: before there is a process group, rank 0 does not know of it.
    """
    if _process_group() is not None:
        return False
    ranks = [rank for rank, _ in RANKS]
    if _number("LOCAL_RANK", 0) and not any(rank in os.environ for rank in ranks):
        return True
    cell = CellProcess.of_environment()
    return cell is not None and cell.is_further and not cell.has_new_rank(*ranks, TASKS[0])


def refuse_several_ranks(*, of_sweep: bool = False) -> None:
    """Raise `UsageError` in every rank of a program that has several.

    The number of ranks is `WORLD_SIZE`, which torchrun, accelerate and deepspeed set, or the size of torch's process
    group. Independent tasks do not count as ranks, and for a sweep (`of_sweep`) not those of the cell that it is
    started in.
    """
    from_environment = 1 if of_sweep and is_in_cell() else _number("WORLD_SIZE", 1)
    group = _process_group()
    if (ranks := max(from_environment, 1 if group is None else int(group.get_world_size()))) > 1:
        raise UsageError(
            f"A run must have one rank, got WORLD_SIZE={ranks}: this process is one of several that a launcher has "
            "started, as torchrun and Lightning do, and nothing was written; start it once, or unset WORLD_SIZE. Ranks "
            "are for `start_run`, and for the cells of `runmanager sweep --processes`."
        )


def _process_group() -> Any | None:
    """Return torch's module for its process group; None without one."""
    distributed: Any = sys.modules.get("torch.distributed")
    is_used = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return distributed if is_used else None
