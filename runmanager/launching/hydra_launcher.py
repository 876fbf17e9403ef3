"""Hydra launcher of the local engine: `hydra/launcher=local`, for this application and other Hydra applications.

Other applications import this module and call `register()` before their `main()`.
"""

import copy
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from operator import length_hint
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.plugins.plugin import Plugin
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from runmanager.errors import ConfigurationError, RunManagerError, UsageError
from runmanager.launching.hydra_internals import active_whitelist, store_config
from runmanager.launching.hydra_job import return_of_hydra_job, run_hydra_job
from runmanager.launching.launcher import CellJob, CellLauncher, Place, Trait, never_started
from runmanager.launching.local.engine import LocalEngine
from runmanager.launching.local.gpus import EVERY_GPU, GpuMarks, GpuRequest, GpuSlots
from runmanager.launching.local.jobs import Job, Limits, Listener, ProcessExit, Retries, outcome_of_exit
from runmanager.launching.local.turns import Turns
from runmanager.launching.local.worker import Raised, Returned
from runmanager.launching.options import LocalOptions, OnError
from runmanager.launching.work import TaskReference, Work, do_work
from runmanager.records.files.paths import cache_folder
from runmanager.records.host.gpus import exclusive_gpus, find_gpus
from runmanager.validation import fault

_PLUGIN_MODULE = "hydra_plugins.runmanager"
_PRELOAD = "runmanager.launching.hydra_preload"


class ProcessLauncher(CellLauncher):
    """Base of the launchers that run each job in its own process, here or on a cluster's node."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Set the context, task and configuration; called by Hydra."""
        self._context = hydra_context
        self._task = task_function
        self._config = config

    def work(self, overrides: Sequence[str], key: int) -> Work:
        """Return the work of the job of this key: Hydra's task with the configuration that the overrides give.

        The process returns what the task returns.
        """
        return Work(run_hydra_job, self._task_and_config(overrides, key))

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs of another sweeper, whose processes return all that Hydra says of a job, a `JobReturn`."""
        if (seconds := self.options.stall_timeout) is not None:
            raise ConfigurationError(
                [
                    "`hydra.launcher.stall_timeout` must be null for other applications, whose steps are unknown, got "
                    f"{seconds:g}; use `hydra.launcher.timeout`."
                ]
            )
        self.refuse_several_processes("a job of another sweeper")

        def job(key: int, overrides: Sequence[str]) -> CellJob:
            return CellJob(key, overrides, lambda _: Work(return_of_hydra_job, self._task_and_config(overrides, key)))

        jobs = list(map(job, count(initial_job_idx), job_overrides))
        returns = self.run(jobs, Listener())
        return [returns.get(job.key) or never_started(job.overrides) for job in jobs]

    def limits(self, job: CellJob) -> Limits:
        """Return the limits of a job; a run without a run folder writes no heartbeat."""
        heartbeat = job.run.paths.heartbeat if job.run else None
        return Limits(self.options.timeout, self.options.stall_timeout, heartbeat)

    def _task_and_config(self, overrides: Sequence[str], key: int) -> tuple[TaskReference, DictConfig]:
        config = self._context.config_loader.load_sweep_config(self._config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = str(key)
            config.hydra.job.num = key
        return TaskReference.of(self._task, whitelist=active_whitelist()), config


class LocalLauncher(ProcessLauncher):
    """Runs each job in a new process on this machine, so that the death of one affects no other.

    Raises `ConfigurationError` for invalid settings.
    """

    options: LocalOptions

    def __init__(self, **settings: Any) -> None:
        self.options = checked(LocalOptions(**settings))
        self._gpus = _gpus_of(self.options)
        self.engine = self._engine()
        self.processes_per_run = self.options.processes_per_run
        self.traits = frozenset({Trait.HERE, Trait.STORES_WORK} if self.processes_per_run > 1 else {Trait.HERE})

    @property
    def place(self) -> Place:
        return replace(super().place, at_once=self.options.workers)

    def with_each_run_once(self, **settings: Any) -> "LocalLauncher":
        plain = LocalOptions()
        settings |= {"retries": plain.retries, "retry_on": plain.retry_on, "on_error": str(OnError.CONTINUE)}
        other = copy.copy(self)
        other.options = checked(replace(self.options, **settings))
        other.engine = other._engine()
        return other

    def _engine(self, *, all_jobs: int = 0, turns: Turns | None = None) -> LocalEngine:
        """Return the engine; that of `all_jobs` in turns runs all of them at once."""
        slots = GpuSlots(
            self._gpus,
            runs_per_gpu=all_jobs or self.options.runs_per_gpu,
            are_given=self.options.gpus is not None,
            are_packed=turns is not None,  # two GPUs of one model are not equally fast
            marks=GpuMarks(None if (cache := cache_folder()) is None else cache / "gpus"),
        )
        return LocalEngine(
            workers=all_jobs or self.options.workers,
            preload=[*(default_preload() if self.options.preload is None else self.options.preload), _PRELOAD],
            slots=slots,
            turns=turns,
            threads=self.options.threads,
        )

    def require_gpus(self, devices: Iterable[str | None]) -> None:
        for device in devices:
            self._gpu_request(device)

    def _gpu_request(self, device: str | None) -> GpuRequest:
        """Return the GPUs that a job on this device (auto, cuda, cuda:1, cpu, …) requests.

        A job of unknown device gets what one on `auto` gets, a GPU where there is one. Raises `ConfigurationError`
        where it needs one but would get none.
        """
        kind, _, index = (device or "auto").partition(":")
        if kind == "cuda" and self.options.gpus_per_run == 0:
            raise ConfigurationError(
                [f"`hydra.launcher.gpus_per_run` must be at least 1 where a cell has device={device}, got 0."]
            )
        if kind == "cuda" and index:
            return GpuRequest(index=int(index)) if index.isdecimal() else EVERY_GPU
        if kind not in ("auto", "cuda"):
            return GpuRequest()
        per_run = self.options.gpus_per_run
        return GpuRequest(self.options.processes_per_run if per_run is None else per_run)

    def run(
        self, jobs: Iterable[CellJob | None], listener: Listener, turns: Turns | None = None
    ) -> dict[int, JobReturn]:
        setup_globals()
        recorder = ReturnRecorder(listener)
        if turns is None:
            engine = self.engine
        else:
            jobs = list(jobs)
            engine = self._engine(all_jobs=len(jobs), turns=turns)
        engine.get_ready(num_jobs=length_hint(jobs, self.options.workers))
        retries = Retries(self.options.retries, tuple(self.options.retry_on))
        stop_on_error = self.options.on_error == OnError.STOP
        taken = recorder.taken(jobs, self._job, listener.wants)
        if engine.run(taken, recorder, retries=retries, stop_on_error=stop_on_error):
            raise KeyboardInterrupt
        return recorder.returns

    def _job(self, job: CellJob) -> Job:
        return Job(
            job.key,
            do_work,
            prepare=lambda number: (job.work(number),),
            gpus=self._gpu_request(job.device),
            limits=self.limits(job),
        )


def default_preload() -> Sequence[str]:
    """Return what the server imports unless a command says so: torch, if the driver's main module has imported it."""
    return [name for name in ("torch",) if name in sys.modules]


def checked(options: Any) -> Any:
    """Return a launcher's options. Raises `ConfigurationError` with every fault."""
    if faults := options.faults():
        raise ConfigurationError(faults)
    return options


def require_package(name: str, *, extra: str, option: str = "") -> None:
    """Raise `UsageError` where an option, by default a launcher, lacks its package, before anything is written."""
    if importlib.util.find_spec(name) is None:
        way_out = f"pip install 'torch-runmanager[{extra}]'"
        raise UsageError(fault(option or f"hydra/launcher={extra}", f"find the package {name}", "none", way_out))


def _gpus_of(options: LocalOptions) -> tuple[str, ...]:
    gpus = find_gpus() if options.gpus is None else tuple(options.gpus)
    num_wanted = options.gpus_per_run or 0
    if num_wanted > len(gpus):
        most = f"the number of GPUs here ({', '.join(gpus)})" if gpus else "0, as this machine has no GPU"
        raise ConfigurationError([f"`hydra.launcher.gpus_per_run` must be at most {most}, got {num_wanted}."])
    if num_wanted > 1 and any(gpu.startswith("MIG-") for gpu in gpus):
        rule, way_out = "be 1 on a GPU in slices", "CUDA lets a process see one slice"
        raise ConfigurationError([fault("hydra.launcher.gpus_per_run", rule, num_wanted, way_out)])
    named = [gpu for gpu in gpus if gpu.startswith("GPU-")]  # an index may be any of them
    exclusive = exclusive_gpus() if gpus and options.runs_per_gpu > 1 else []
    if exclusive := [gpu for gpu in exclusive if gpu in named or not named]:
        way_out = f"{exclusive[0]} is in exclusive mode; `nvidia-smi -c DEFAULT` ends it, as an administrator"
        raise ConfigurationError([fault("hydra.launcher.runs_per_gpu", "be 1", options.runs_per_gpu, way_out)])
    return gpus


class ReturnRecorder(Listener):
    """Makes the return of each job, failed until the job ends; it is another listener that receives the events."""

    def __init__(self, listener: Listener) -> None:
        self.returns: dict[int, JobReturn] = {}
        self._listener = listener
        for event in vars(Listener):
            if not event.startswith("_") and event != "ended":
                setattr(self, event, getattr(listener, event))

    def taken(
        self, jobs: Iterable[CellJob | None], job_of: Callable[[CellJob], Any], wants: Callable[[int], bool]
    ) -> Iterator[Any]:
        """Yield an engine's job for each whose key is wanted when it is taken, and None where there is none now."""
        for job in jobs:
            if job is None:
                yield None
            elif wants(job.key):
                self.returns[job.key] = never_started(job.overrides)
                yield job_of(job)

    def ended(self, ending: ProcessExit) -> None:
        result = self.returns[ending.job.key]
        match ending.answer:
            case Returned(value=JobReturn() as whole) | Raised(attached=JobReturn() as whole):
                result.__dict__.update(whole.__dict__)
            case Returned(value=value):
                result.status, result.return_value = JobStatus.COMPLETED, value
            case Raised(message=message):
                result.status, result.return_value = JobStatus.FAILED, RunManagerError(message)
            case _:
                message = f"the process ended before the job was done: {outcome_of_exit(ending).message}"
                result.status, result.return_value = JobStatus.FAILED, RunManagerError(message)
        self._listener.ended(ending)


def register_plugin(plugin: type[Plugin]) -> str:
    """Register a launcher or sweeper with Hydra and return its `_target_`.

    Hydra 1.3 accepts plugins only from modules named `hydra_plugins.*`, so this creates one in memory.
    """
    plugins = Plugins.instance()  # scans for installed plugins; must come before the module below
    package = sys.modules.get("hydra_plugins")
    if package is None:
        try:
            package = importlib.import_module("hydra_plugins")
        except ImportError:
            package = types.ModuleType("hydra_plugins")
            package.__path__ = []
            sys.modules["hydra_plugins"] = package
    module = sys.modules.setdefault(_PLUGIN_MODULE, types.ModuleType(_PLUGIN_MODULE))
    if plugin.__name__ in getattr(module, "PLUGINS", ()):  # the installed one, which creates this one
        return f"{_PLUGIN_MODULE}.{plugin.__name__}"
    setattr(module, plugin.__name__, plugin)
    plugin.__module__ = _PLUGIN_MODULE
    plugins.register(plugin)
    return f"{_PLUGIN_MODULE}.{plugin.__name__}"


def register(*, preload: Sequence[str] = ("torch",)) -> None:
    """Register `hydra/launcher=local` with Hydra; `preload` is the default of `hydra.launcher.preload`.

    It is an argument as other launchers would reject the setting in an application's configuration.
    """
    register_launcher("local", LocalLauncher, LocalOptions(preload=list(preload)))


def register_launcher(name: str, launcher: type[Launcher], options: Any) -> None:
    """Register a launcher and its settings with Hydra."""
    register_plugin(launcher)
    node = OmegaConf.structured(options)
    OmegaConf.set_readonly(node, None)  # Hydra makes a frozen dataclass read-only, which overrides must not be
    store_config(name, node, group="hydra/launcher")
