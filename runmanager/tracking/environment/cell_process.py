"""What the process of a cell tells those that it starts, and which of several distributed ranks this process is.

```
RUNMANAGER_SWEEPS   from each driver: its sweep, and the program and words that began it, after those around it
RUNMANAGER_CELL     from the process of a Hydra application's cell: the words of its job, and what else it was
```

Imports no torch.
"""

import base64
import contextlib
import hashlib
import os
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from runmanager.errors import UsageError
from runmanager.records.host.process import RANKS, TASKS, ProcessIdentity

RUN_VARIABLE = "RUNMANAGER_RUN"
"""Environment variable with the run folder of the cell that a program is."""

ATTEMPT_VARIABLE = "RUNMANAGER_ATTEMPT"
"""Environment variable with the attempt of that run, counted from 1."""

SWEEPS_VARIABLE = "RUNMANAGER_SWEEPS"
"""Environment variable with the sweeps that a process runs within, the innermost last, as JSON."""

CELL_VARIABLE = "RUNMANAGER_CELL"
"""Environment variable with a `CellProcess`, packed: a list of the environment shows no secret of its words."""

_LOCAL_RANK, _RANK = "LOCAL_RANK", "RANK"
_RANKS = (_LOCAL_RANK, *(rank for rank, _ in (*RANKS, TASKS)))
_MOST_CHARACTERS = 2**16  # Linux starts no process with a variable of twice that

# What says of a process that it is a cell's, or one of its ranks: nothing of it holds for the cells of a further sweep.
_OF_CELLS = (RUN_VARIABLE, ATTEMPT_VARIABLE, CELL_VARIABLE, "RUNMANAGER_OWN_PROCESS", "RUNMANAGER_GOES_ON")
_OF_RANKS = (
    *(_LOCAL_RANK, _RANK, "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
)


class _Sweep(msgspec.Struct, frozen=True):
    """A sweep's folder, and the command that drives it: its main module's file, and digests of its words."""

    folder: str
    program: str | None
    words: tuple[str, ...]


class CellProcess(msgspec.Struct, frozen=True, kw_only=True):
    """The process of a Hydra application's cell, or a rank of it, and the job that it runs.

    The job is what `words` compose, of the configuration `config_name`, in the folder `cwd`. `ranks` are the variables
    of ranks that the process was started with. `began` is by the monotonic clock. `is_further`: this is told by a
    further process of the cell.
    """

    config_name: str | None
    words: tuple[bytes, ...]
    job_id: str
    job_num: int
    cwd: bytes
    threads: int
    process: ProcessIdentity = msgspec.field(default_factory=ProcessIdentity.current)
    ranks: dict[str, str] = msgspec.field(default_factory=lambda: _ranks())
    began: float = msgspec.field(default_factory=time.monotonic)
    is_further: bool = False

    def has_new_rank(self, *names: str) -> bool:
        """Whether one of these variables of a rank was set inside the cell."""
        return any(name in os.environ and os.environ[name] != self.ranks.get(name) for name in names)

    @classmethod
    def of_environment(cls) -> "CellProcess | None":
        """Return what the cell has told that this process is, or runs in; None outside of one."""
        packed = os.environ.get(CELL_VARIABLE)
        return None if packed is None else msgspec.msgpack.decode(zlib.decompress(base64.b64decode(packed)), type=cls)


@contextlib.contextmanager
def telling_cell(cell: CellProcess) -> Iterator[None]:
    """Tell the processes that are started in the block which cell they are of."""
    packed = base64.b64encode(zlib.compress(msgspec.msgpack.encode(cell))).decode()
    with _environment(CELL_VARIABLE, packed if len(packed) <= _MOST_CHARACTERS else None):
        yield


@contextlib.contextmanager
def telling_sweep(folder: Path) -> Iterator[None]:
    """Tell the processes that are started in the block that they run within the sweep that this process drives."""
    own = _Sweep(_real(folder), _program(), tuple(map(_digest, sys.argv[1:])))
    with _environment(SWEEPS_VARIABLE, msgspec.json.encode([*_sweeps(), own]).decode()):
        yield


def runs_within(folder: Path) -> bool:
    """Whether this process runs in a cell of the sweep in this folder, or of a sweep within one."""
    return any(each.folder == _real(folder) for each in _sweeps())


def is_started_again() -> bool:
    """Whether this process is the program of the cell that it runs in, started again.

    Its words are the command's, apart from further ones of Hydra, or it has a rank that was set inside the cell.
    """
    cell, sweeps = CellProcess.of_environment(), _sweeps()
    if cell is None or not sweeps or sweeps[-1].program is None or sweeps[-1].program != _program():
        return False
    return cell.has_new_rank(_LOCAL_RANK, _RANK) or _adds_only_to_hydra(sys.argv[1:], sweeps[-1].words)


def of_cells_alone() -> Sequence[str]:
    """Return the variables of this process that hold for the cell that it runs in, and for no sweep that it begins."""
    return (*_OF_CELLS, *_OF_RANKS) if is_in_cell() else ()


def leave_cell() -> None:
    """Let nothing in this process's environment say any more that it runs in a cell of the innermost sweep."""
    for name in of_cells_alone():
        os.environ.pop(name, None)
    os.environ[SWEEPS_VARIABLE] = msgspec.json.encode(_sweeps()[:-1]).decode()


def is_in_cell() -> bool:
    """Whether this process runs in a cell."""
    return RUN_VARIABLE in os.environ or CELL_VARIABLE in os.environ


@contextlib.contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """Set a variable in the block; None removes it."""
    earlier = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if earlier is not None:
            os.environ[name] = earlier


def _sweeps() -> list[_Sweep]:
    return msgspec.json.decode(os.environ.get(SWEEPS_VARIABLE, "[]"), type=list[_Sweep])


def _program() -> str | None:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return None if file is None else _real(file)


def _real(path: str | Path) -> str:
    """Return a path without links; bytes outside UTF-8 are escaped."""
    return os.fsencode(os.path.realpath(path)).decode(errors="backslashreplace")


def _adds_only_to_hydra(words: Sequence[str], command: Sequence[str]) -> bool:
    digests = [_digest(word) for word in words]
    further = Counter(digests) - Counter(command)
    return not Counter(command) - Counter(digests) and all(
        word.lstrip("+~").startswith(("hydra.", "hydra/"))
        for word, digest in zip(words, digests, strict=True)
        if digest in further
    )


def _digest(word: str) -> str:
    """Stand for a word, which may hold a secret."""
    return hashlib.sha256(word.encode(errors="surrogatepass")).hexdigest()[:16]


def _ranks() -> dict[str, str]:
    return {name: os.environ[name] for name in _RANKS if name in os.environ}


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
