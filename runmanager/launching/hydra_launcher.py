"""Hydra's side of the local engine: `hydra/launcher=local`, for this application and anybody else's.

An application of its own imports this module and calls `register()` before its `main()`.
"""

import importlib
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.plugins.plugin import Plugin
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from runmanager.errors import RunManagerError
from runmanager.launching.child import Raised, Returned
from runmanager.launching.engine import Ending, Job, Listener, LocalEngine

__all__ = [
    "LocalLauncher",
    "LocalLauncherOptions",
    "Recorder",
    "register",
    "register_plugin",
    "run_hydra_job",
    "unfinished",
]

_PLUGIN_MODULE = "hydra_plugins.runmanager"


@dataclass
class LocalLauncherOptions:
    """`hydra.launcher.workers`: runs at once. `preload`: modules that every run's process starts with."""

    _target_: str = f"{_PLUGIN_MODULE}.LocalLauncher"
    workers: int = 1
    preload: list[str] = field(default_factory=lambda: ["torch"])


class LocalLauncher(Launcher):
    """Runs each job in a fresh process on this machine; one that dies takes no other with it."""

    def __init__(self, workers: int, preload: Sequence[str]) -> None:
        if workers < 1:
            raise RunManagerError(f"`hydra.launcher.workers` must be at least 1, got {workers}.")
        self.engine = LocalEngine(workers=workers, preload=preload)
        self.listener = Listener()

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra."""
        self._context = hydra_context
        self._task = task_function
        self._config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs; a job that died is a failed return, and the others run all the same."""
        setup_globals()
        returns = [unfinished(overrides) for overrides in job_overrides]
        recorder = Recorder(returns, initial_job_idx, self.listener)
        self.engine.run(self._jobs(job_overrides, initial_job_idx), recorder)
        if self.engine.was_interrupted:
            raise KeyboardInterrupt
        return returns

    def _jobs(self, job_overrides: Sequence[Sequence[str]], first: int) -> Iterator[Job]:
        for index, overrides in enumerate(job_overrides, start=first):
            if not self.listener.wants(index):
                continue
            config = self._context.config_loader.load_sweep_config(self._config, list(overrides))
            with open_dict(config):
                config.hydra.job.id = str(index)
                config.hydra.job.num = index
            yield Job(index, run_hydra_job, (self._task.__module__, self._task.__qualname__, config))


class Recorder(Listener):
    """Keeps each job's return, and passes everything on."""

    def __init__(self, returns: list[JobReturn], first: int, listener: Listener) -> None:
        self._returns = returns
        self._first = first
        self._listener = listener

    def started(self, job: Job, pid: int) -> None:
        self._listener.started(job, pid)

    def tick(self) -> None:
        self._listener.tick()

    def stopping(self, *, at_once: bool) -> None:
        self._listener.stopping(at_once=at_once)

    def ended(self, ending: Ending) -> None:
        result = self._returns[ending.job.key - self._first]
        match ending.answer:
            case Returned(value=(JobStatus.COMPLETED, value)):
                result.status, result.return_value = JobStatus.COMPLETED, value
            case Returned(value=(_, text)) | Raised(message=text):
                result.status, result.return_value = JobStatus.FAILED, RunManagerError(str(text))
            case _:
                message = f"the process ended with exit code {ending.exit_code} before the job was done"
                result.status, result.return_value = JobStatus.FAILED, RunManagerError(message)
        self._listener.ended(ending)


def unfinished(overrides: Sequence[str]) -> JobReturn:
    """What is to be returned of a job until it is known how it ended."""
    result = JobReturn(overrides=list(overrides))
    result.status, result.return_value = JobStatus.FAILED, RunManagerError("the job was never begun")
    return result


def run_hydra_job(module: str, name: str, config: DictConfig) -> tuple[JobStatus, Any]:
    """In the job's own process: Hydra's own way of running a job, with the task found by its name."""
    from hydra._internal.callbacks import Callbacks

    setup_globals()
    task: Any = reduce(getattr, name.split("."), importlib.import_module(module))
    task = getattr(task, "__wrapped__", task)  # what hydra.main decorated
    result = run_job(
        task_function=task,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
        # The child composes nothing, so it needs no loader.
        hydra_context=HydraContext(config_loader=None, callbacks=Callbacks(config)),  # type: ignore[arg-type]
    )
    if result.status is JobStatus.COMPLETED:
        return result.status, result.return_value
    error = result._return_value
    return result.status, f"{type(error).__name__}: {error}"


def register_plugin(plugin: type[Plugin]) -> str:
    """Make a launcher or sweeper known to Hydra and return its `_target_`.

    Hydra 1.3 takes plugins only from modules named `hydra_plugins.*`, so one is made up for it, without a folder.
    """
    plugins = Plugins.instance()  # scans first: it would not find what is registered before
    package = sys.modules.get("hydra_plugins")
    if package is None:
        try:
            package = importlib.import_module("hydra_plugins")
        except ImportError:
            package = types.ModuleType("hydra_plugins")
            package.__path__ = []
            sys.modules["hydra_plugins"] = package
    module = sys.modules.setdefault(_PLUGIN_MODULE, types.ModuleType(_PLUGIN_MODULE))
    setattr(module, plugin.__name__, plugin)
    plugin.__module__ = _PLUGIN_MODULE
    plugins.register(plugin)
    return f"{_PLUGIN_MODULE}.{plugin.__name__}"


def register(*, preload: Sequence[str] = ("torch",)) -> None:
    """Make `hydra/launcher=local` known to Hydra; `preload` is its default.

    An application has its own default here and not in its configuration, where other launchers would refuse it.
    """
    register_plugin(LocalLauncher)
    node = LocalLauncherOptions(preload=list(preload))
    ConfigStore.instance().store(group="hydra/launcher", name="local", node=node, provider="runmanager")
