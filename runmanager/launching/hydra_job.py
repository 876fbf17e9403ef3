"""A Hydra job in its own process: what Hydra does around a task, without its copies of the configuration."""

import importlib
import os
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobStatus, configure_log, run_job, setup_globals
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from runmanager.launching.hydra_internals import copy_without_hydra, flush_loggers, job_context, job_exception

__all__ = ["run_hydra_job"]

_DIR, _SUBDIR = "hydra.sweep.dir", "hydra.sweep.subdir"


def run_hydra_job(module: str, name: str, config: DictConfig) -> Any:
    """Run the task `module`.`name` in this process as Hydra runs a job.

    Returns what the task returns, and raises what it raises.
    """
    setup_globals()
    task: Any = reduce(getattr, name.split("."), importlib.import_module(module))
    task = getattr(task, "__wrapped__", task)  # the function that hydra.main decorated
    if _is_plain(config.hydra):
        return _run_plain(task, config)
    result = run_job(
        task_function=task,
        config=config,
        job_dir_key=_DIR,
        job_subdir_key=_SUBDIR,
        hydra_context=job_context(config),
    )
    if result.status is JobStatus.FAILED:
        raise job_exception(result)
    return result.return_value


def _is_plain(hydra: DictConfig) -> bool:
    """Whether Hydra would do nothing around the task but create its folder and configure its logging."""
    return hydra.output_subdir is None and hydra.job.chdir is False and not hydra.job.env_set and not hydra.callbacks


def _run_plain(task: Callable[[DictConfig], Any], config: DictConfig) -> Any:
    """Do what Hydra's `run_job` does for a plain job, without its four copies of the `hydra` node.

    Hydra copies it as its process may run other jobs afterwards; that takes longer than all else here. A test checks
    that a task sees the same as under `run_job`.
    """
    HydraConfig.instance().cfg = config  # type: ignore[assignment]  # as Hydra does: it has more keys than its type
    folder = Path(str(OmegaConf.select(config, _DIR)), str(OmegaConf.select(config, _SUBDIR)))
    with read_write(config.hydra.runtime), open_dict(config.hydra.runtime):
        config.hydra.runtime.output_dir = os.path.abspath(folder)  # noqa: PTH100  # keeps links, as Hydra does
    OmegaConf.set_readonly(config.hydra, True)
    folder.mkdir(parents=True, exist_ok=True)
    configure_log(config.hydra.job_logging, config.hydra.verbose)
    try:
        return task(copy_without_hydra(config))
    finally:
        flush_loggers()
