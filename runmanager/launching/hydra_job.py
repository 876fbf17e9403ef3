"""A Hydra job in its own process: what Hydra does around a task, without its copies of the configuration."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra import version
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobRuntime, JobStatus, configure_log, run_job, setup_globals
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from runmanager.launching.hydra_internals import (
    OWN_CALLBACK,
    copy_without_hydra,
    flush_loggers,
    job_context,
    job_exception,
    secrets_masked_in_files,
    settings_yaml,
    whitelisted,
)
from runmanager.launching.local.worker import AnsweredError
from runmanager.launching.work import TaskReference
from runmanager.records.storage.ownership import DRIVEN_VARIABLE, require_driven_sweep

_DIR, _SUBDIR = "hydra.sweep.dir", "hydra.sweep.subdir"


def run_hydra_job(task: TaskReference, config: DictConfig) -> Any:
    """Run a task in this process as Hydra runs a job.

    Returns what the task returns, and raises what it raises; `RecordError` if the driven sweep is gone.
    """
    _prepare(config)
    function = task.load()
    with whitelisted(task.whitelist):
        if _is_plain(config.hydra):
            return _run_plain(function, config)
        result = _run_with_hydra(function, config)
    if result.status is JobStatus.FAILED:
        raise job_exception(result)
    return result.return_value


def return_of_hydra_job(task: TaskReference, config: DictConfig) -> JobReturn:
    """Run a task as Hydra runs a job; return all that Hydra says of it.

    Raises `AnsweredError` with the same, and the task's error, if the task fails.
    """
    _prepare(config)
    function = task.load()
    with whitelisted(task.whitelist):
        result = _run_with_hydra(function, config)
    if result.status is JobStatus.FAILED:
        raise AnsweredError(job_exception(result), result)
    return result


def _prepare(config: DictConfig) -> None:
    setup_globals()
    JobRuntime.instance().set("name", config.hydra.job.name)
    if DRIVEN_VARIABLE in os.environ:  # else the folder may have interpolations that only the job can resolve
        require_driven_sweep(_folder(config))


def _run_with_hydra(task: Callable[[DictConfig], Any], config: DictConfig) -> JobReturn:
    with secrets_masked_in_files():
        return run_job(
            task_function=task,
            config=config,
            job_dir_key=_DIR,
            job_subdir_key=_SUBDIR,
            hydra_context=job_context(config),
        )


def _is_plain(hydra: DictConfig) -> bool:
    """Whether Hydra would do nothing around the task but write its files and configure its logging."""
    stays = hydra.job.chdir is False or (hydra.job.chdir is None and version.base_at_least("1.2"))
    callbacks = [each for each in hydra.callbacks.values() if each is None or each.get("_target_") != OWN_CALLBACK]
    return stays and not hydra.job.env_set and not callbacks


def _run_plain(task: Callable[[DictConfig], Any], config: DictConfig) -> Any:
    """Do what Hydra's `run_job` does for a plain job, without its four copies of the `hydra` node.

    Hydra copies it as its process may run other jobs afterwards; that takes longer than all else here. A test checks
    that a task sees the same as under `run_job`.
    """
    HydraConfig.instance().cfg = config  # type: ignore[assignment]  # as Hydra does: it has more keys than its type
    folder = _folder(config)
    with read_write(config.hydra.runtime), open_dict(config.hydra.runtime):
        config.hydra.runtime.output_dir = os.path.abspath(folder)  # noqa: PTH100  # keeps links, as Hydra does
    OmegaConf.set_readonly(config.hydra, True)
    folder.mkdir(parents=True, exist_ok=True)
    configure_log(config.hydra.job_logging, config.hydra.verbose)
    settings = copy_without_hydra(config)
    if config.hydra.output_subdir is not None:
        _write_settings(Path(config.hydra.runtime.output_dir, config.hydra.output_subdir), settings, config.hydra)
    try:
        return task(settings)
    finally:
        flush_loggers()


def _folder(config: DictConfig) -> Path:
    return Path(str(OmegaConf.select(config, _DIR)), str(OmegaConf.select(config, _SUBDIR)))


def _write_settings(folder: Path, settings: DictConfig, hydra: DictConfig) -> None:
    """Write the files in which Hydra keeps a job's settings."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "config": settings_yaml(settings),
        "hydra": settings_yaml(hydra, key="hydra"),
        "overrides": settings_yaml(hydra.overrides.task),
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
