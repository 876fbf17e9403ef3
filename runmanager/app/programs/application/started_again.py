"""An application that is started again inside its cell: a further process, which runs the cell's task.

```
the cell's process, or a rank of it   tells what its job is composed of                `telling_job`
the same program, started again       Hydra runs that job in place of a sweep          `join_cell`
    another process                   apart: its log has a name of its own, no record
    the same one (`os.exec`)          as the cell, or as the rank, that it is
```
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
from hydra.core.config_loader import ConfigLoader
from hydra.types import RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from runmanager.app.display.error_line import print_error
from runmanager.app.programs.cell_metrics import returned_metrics
from runmanager.app.programs.cell_supervisor import CellSpec, ProgramEnd, continue_cell
from runmanager.app.request.command import format_override, quote_raw
from runmanager.errors import RunManagerError, UsageError
from runmanager.launching.hydra_internals import active_whitelist, get_node, raw_value, replace_commands
from runmanager.launching.hydra_job import run_hydra_job
from runmanager.launching.local.parent_death import bind_workers
from runmanager.launching.local.worker import OWN_PROCESS_VARIABLE
from runmanager.launching.work import TaskReference, Work, do_work
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.sweep.sweep_record import read_sweep_record
from runmanager.tracking.environment.cell_process import (
    ATTEMPT_VARIABLE,
    RUN_VARIABLE,
    CellProcess,
    is_started_again,
    leave_cell,
    telling_cell,
)

_USAGE_STATUS = 2
_THREADS = "OMP_NUM_THREADS"
_ERRORS = "surrogatepass"  # words of a command may hold bytes outside UTF-8

_GoOn = Callable[[Sequence[str]], Any]


def telling_job(hydra: Any) -> AbstractContextManager[None]:
    """Tell the processes that are started in the block what the job of this cell, or rank, is composed of.

    `hydra` are Hydra's settings in that job.
    """
    parts: list[Any] = [
        OmegaConf.to_container(each, resolve=False) for each in (hydra.overrides.hydra, hydra.overrides.task)
    ]
    words = [str(word) for part in parts for word in part]
    return telling_cell(
        CellProcess(
            config_name=hydra.job.config_name,
            words=tuple(word.encode(errors=_ERRORS) for word in words),
            job_id=str(hydra.job.id),
            job_num=int(hydra.job.num),
            cwd=str(hydra.runtime.cwd).encode(errors=_ERRORS),
            threads=_num_threads(),
        )
    )


def _num_threads() -> int:
    """The number of threads that this process was given; 0 where it was given none."""
    torch: Any = sys.modules.get("torch")
    given = os.environ.get(_THREADS, "")
    return int(torch.get_num_threads()) if torch is not None else int(given) if given.isdecimal() else 0


def write_apart(config: DictConfig, name: str) -> None:
    """Let a process beside the cell's own log to files of its own, and leave Hydra's copies of the settings alone."""
    with read_write(config), open_dict(config):
        config.hydra.output_subdir = None
        handlers = OmegaConf.select(config, "hydra.job_logging.handlers") or {}
        for each in handlers.values():
            if isinstance(each, DictConfig) and (node := get_node(each, "filename")) is not None:
                stem, dot, suffix = str(raw_value(node)).rpartition(".")
                each.filename = f"{stem}_{name}.{suffix}" if suffix.isalnum() and dot else f"{stem}{dot}{suffix}_{name}"


def join_cell() -> None:
    """Let Hydra run the job of this cell where the application is the cell's, started again."""
    replace_commands(_command)


def _command(loader: ConfigLoader, task: TaskFunction, words: Sequence[str], go_on: _GoOn) -> Any:
    if not is_started_again():
        return go_on(words)
    cell = CellProcess.of_environment()
    assert cell is not None
    try:
        run, record = _running_cell()
    except RunManagerError as error:
        print_error(str(error))
        raise SystemExit(_USAGE_STATUS) from None
    is_same_process = cell.process == ProcessIdentity.current()
    if is_same_process:
        os.chdir(cell.cwd.decode(errors=_ERRORS))
        _set_num_threads(cell.threads)
    work = Work(run_hydra_job, (TaskReference.of(task, whitelist=active_whitelist()), _composed(loader, cell, words)))
    if not is_same_process:
        return _run_apart(cell, work)
    if record.owner != cell.process:
        return _go_on_as_rank(run, work)
    return _go_on_as_cell(cell, RunFolder(run, record), work, words, go_on)


def _running_cell() -> tuple[RunPaths, RunRecord]:
    """Return the run of this cell. Raises `UsageError` if it has ended."""
    run = RunPaths(Path(os.environ[RUN_VARIABLE]))
    record = read_record(run)
    if record.status is not Status.RUNNING or str(record.attempt) != os.environ.get(ATTEMPT_VARIABLE):
        raise UsageError(
            f"A further process of a cell must start while the cell runs, got the end of {run.root} before; unset "
            "the variables RUNMANAGER_* to start a sweep of its own."
        )
    return run, record


def _composed(loader: ConfigLoader, cell: CellProcess, words: Sequence[str]) -> DictConfig:
    """Compose the configuration of the cell's job, with further settings of Hydra that the command has."""
    known = [word.decode(errors=_ERRORS) for word in cell.words]
    further = [word for word in words if word.lstrip("+~").startswith(("hydra.", "hydra/")) and word not in known]
    further = [word for word in further if not word.startswith(("hydra.mode=", "hydra.sweep"))]
    config = loader.load_configuration(cell.config_name, [quote_raw(word) for word in [*known, *further]], RunMode.RUN)
    cwd = Path(cell.cwd.decode(errors=_ERRORS))
    with read_write(config), open_dict(config):
        config.hydra.job.id, config.hydra.job.num = cell.job_id, cell.job_num
        if cwd != Path.cwd():
            config.hydra.runtime.cwd = str(cwd)
            config.hydra.sweep.dir = str(cwd / str(config.hydra.sweep.dir))
    return config


def _run_apart(cell: CellProcess, work: Work) -> Any:
    rank = next((os.environ[name] for name in ("RANK", "LOCAL_RANK") if cell.has_new_rank(name)), None)
    write_apart(work.arguments[1], f"process{os.getpid()}" if rank is None else f"rank{rank}")
    with telling_cell(msgspec.structs.replace(cell, is_further=True)):
        return do_work(work)


def _go_on_as_rank(run: RunPaths, work: Work) -> None:
    """Go on as the rank of a cell that has replaced itself."""
    from runmanager.app.programs.application.rank_main import RETURNED, run_rank
    from runmanager.app.programs.script.torchrun import rank_files

    run_rank(work, rank_files(run) / RETURNED, metric=_metric(work))


def _go_on_as_cell(cell: CellProcess, folder: RunFolder, work: Work, words: Sequence[str], go_on: _GoOn) -> Any:
    """Go on as the cell that has replaced itself, and then as the driver, where the cell ran in the driver's process.

    The end is in the record, from which the driver reads it.
    """
    if os.environ.get(OWN_PROCESS_VARIABLE):
        bind_workers()
    metric = _metric(work)
    end = continue_cell(
        CellSpec(folder.paths, folder.record, metric=metric),
        folder,
        lambda _: ProgramEnd(metrics=returned_metrics(do_work(work), name=metric)),
        began=cell.began,
    )
    sweep = SweepPaths(folder.paths.root.parent.parent)
    known = read_sweep_record(sweep)
    if known is None or cell.process not in known.drivers:
        if end.error is not None:
            raise end.error
        return None
    leave_cell()
    own = {"name": sweep.root.name, "output_root": str(sweep.root.parent)}
    return go_on([*words, *(format_override(f"hydra.sweeper.{name}", value) for name, value in own.items())])


def _metric(work: Work) -> str | None:
    metric: str | None = OmegaConf.select(work.arguments[1], "hydra.sweeper.metric")
    return metric


def _set_num_threads(number: int) -> None:
    """Give a process that has replaced itself the number of threads that it had."""
    if not number:
        return
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(number)
    else:
        os.environ[_THREADS] = str(number)
