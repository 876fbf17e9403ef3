"""A rank of a Hydra application's cell: `python -m runmanager.app.programs.application.rank_main FILE`, by torchrun.

The process becomes what a cell's own process is: it has the driver's import path, arguments and main module, and runs
the task with the cell's configuration.
"""

import os
import pickle
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from runmanager.app.programs.application.started_again import telling_job, write_apart
from runmanager.app.programs.cell_metrics import FoundMetrics, returned_metrics
from runmanager.app.programs.cell_output import in_program
from runmanager.launching.hydra_internals import keep_imported_main_quiet
from runmanager.launching.local.multiprocessing_internals import restore_interpreter_state
from runmanager.launching.work import Work, do_work
from runmanager.records.files.atomic_files import replace_file
from runmanager.signals import handle_signals

RETURNED = "returned.json"
"""The name of the file in which rank 0 leaves the metrics that the task returned."""


@dataclass(frozen=True)
class RankCall:
    """What a rank does: the pickled `work` of a job of Hydra, in the driver's `state`.

    Rank 0 leaves the metrics that the task returned in the file `returned`; `metric` is the name of a number.
    """

    state: Mapping[str, Any]
    work: bytes
    returned: Path
    metric: str | None


def read_returned(path: Path) -> FoundMetrics:
    """Return the metrics that rank 0 has left; none where it has not returned."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=FoundMetrics)
    except (OSError, msgspec.DecodeError):
        return FoundMetrics()


def _main(file: Path) -> None:
    call: RankCall = pickle.loads(file.read_bytes())  # noqa: S301  # of the supervisor
    keep_imported_main_quiet()
    restore_interpreter_state(call.state)
    work: Work = pickle.loads(call.work)  # noqa: S301  # after the main module, of which it may have objects
    sys.excepthook = _show_from_program
    run_rank(work, call.returned, metric=call.metric)


def run_rank(work: Work, returned: Path, *, metric: str | None) -> None:
    """Do the work of a rank; rank 0 leaves what the task returned in the file `returned`."""
    rank, config = int(os.environ.get("RANK", "0")), work.arguments[1]
    if rank:
        write_apart(config, f"rank{rank}")
    with handle_signals([signal.SIGTERM], _interrupt), telling_job(config.hydra):  # as in a cell's own process
        found = returned_metrics(do_work(work), name=metric)
    if rank == 0:
        replace_file(returned, msgspec.json.encode(found))


def _show_from_program(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith("<frozen runpy"):
        traceback = traceback.tb_next  # how `python -m` has begun
    error = in_program(error.with_traceback(traceback))
    sys.__excepthook__(type(error), error, error.__traceback__)


def _interrupt() -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # As imported: what the file holds is pickled by that name.
    from runmanager.app.programs.application import rank_main

    rank_main._main(Path(sys.argv[1]))
