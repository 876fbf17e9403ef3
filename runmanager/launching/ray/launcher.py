"""Hydra launcher for Ray: `hydra/launcher=ray`, for this application and other Hydra applications."""

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from logging import ERROR
from subprocess import PIPE
from typing import IO, Any, cast

from hydra.core.utils import JobReturn, setup_globals

from runmanager.errors import ConfigurationError, RunManagerError
from runmanager.launching.hydra_launcher import ProcessLauncher, ReturnRecorder, checked, require_package
from runmanager.launching.launcher import CellJob, Place, Trait
from runmanager.launching.local.engine import LocalEngine
from runmanager.launching.local.jobs import Engine, Job, Listener, ProcessExit, Retries
from runmanager.launching.local.turns import Turns
from runmanager.launching.local.worker import do_sent_work, send_work
from runmanager.launching.ray.options import RayOptions
from runmanager.records.host.process import OF_TASK, usable_cores
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.text import error_line
from runmanager.validation import fault

_TICK_SECONDS = 0.2
_MAX_WAITING = 4  # for a place in Ray: one that becomes free need not wait for the driver, which still decides late
# Variables that a worker has from its node: of its cluster, and the GPUs that it got.
_OF_WORKER = re.compile(r"RAY_.*|(?:CUDA|ROCR|HIP)_VISIBLE_DEVICES|ZE_AFFINITY_MASK")


@dataclass(frozen=True)
class _Begun:
    """A run's process has begun on a node, watched by a worker of Ray."""

    pid: int
    worker: int
    node: str


class _News(Listener, list[_Begun | ProcessExit]):
    def started(self, job: Job, pid: int) -> None:
        import ray  # late, here and below: it takes a second

        self.append(_Begun(pid, os.getpid(), ray.get_runtime_context().get_node_id()))

    def ended(self, ending: ProcessExit) -> None:
        self.append(replace(ending, job=replace(ending.job, arguments=())))


def _run_cell(job: Job, environment: Mapping[str, str]) -> Iterator[_Begun | ProcessExit]:
    """Run a job in a worker of Ray, whose first SIGTERM lets the epoch end, and tell of the job's start and end."""
    os.environ.update(environment)
    news = _News()
    for _ in LocalEngine().steps([job], news):
        while news:  # Ray sends to the generator, which a list within `yield from` would not take
            yield news.pop(0)


def _stop_cell(worker: int) -> None:
    """Tell a worker to stop its cell; called by Ray on its node, as after Ray's own `cancel` the end is not told."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGTERM)


class _RayCells(Engine):
    """Cells as tasks of Ray, a module that is connected. `needs` is what a cell with this key asks Ray for."""

    def __init__(self, ray: Any, needs: Mapping[int, dict[str, Any]], options: RayOptions) -> None:
        self._ray, self._needs, self._workers = ray, needs, options.workers or float("inf")
        variables = {"OMP_NUM_THREADS": str(options.cores), **os.environ}
        of_node = [name for name in variables if _OF_WORKER.fullmatch(name) or OF_TASK.fullmatch(name)]
        self._environment = {name: variables[name] for name in variables.keys() - of_node}
        self._run_cell = ray.remote(num_returns="streaming", max_retries=0)(_run_cell)  # the driver decides about tries
        self._stop_cell = ray.remote(num_cpus=0)(_stop_cell)
        self._jobs: dict[Any, Job] = {}  # by what their tasks tell
        self._begun, self._is_stopping = dict[Any, _Begun](), False

    @property
    def has_room(self) -> bool:
        return len(self._jobs) < self._workers and len(self._jobs) - len(self._begun) < _MAX_WAITING

    @property
    def is_idle(self) -> bool:
        return not self._jobs

    def start(self, job: Job, number: int, listener: Listener) -> bool:
        whole = replace(job, arguments=job.prepare(number) if job.prepare else (), prepare=None)
        self._jobs[self._run_cell.options(**self._needs[job.key]).remote(whole, self._environment)] = job
        return True

    def wait(self) -> None:
        self._ray.wait(list(self._jobs), timeout=_TICK_SECONDS)

    def observe(self, listener: Listener, may_retry: Callable[[Job], bool]) -> Iterator[ProcessExit]:
        for told in self._ray.wait(list(self._jobs), num_returns=len(self._jobs), timeout=0)[0]:
            news, job = self._next(told), self._jobs[told]
            if isinstance(news, _Begun):
                self._begun[told] = news
                listener.started(job, news.pid)
                if self._is_stopping:  # it began while the driver was told to stop
                    self.end(job.key, at_once=False)
                continue
            del self._jobs[told]
            if self._begun.pop(told, None) is None:
                if self._is_stopping:
                    continue  # cancelled: it stays pending
                listener.started(job, 0)
            yield replace(news, job=job)
        if self._is_stopping:
            for told in self._jobs.keys() - self._begun.keys():
                self._ray.cancel(told)

    def stop(self, *, at_once: bool) -> None:
        """Tell the cells, once more: one told twice ends at once. `observe` cancels what waits, after the news."""
        self._is_stopping = True
        for told in self._begun:
            self.end(self._jobs[told].key, at_once=at_once)

    def end(self, key: int, *, at_once: bool) -> None:
        on_node = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        for begun in [begun for told, begun in self._begun.items() if self._jobs[told].key == key]:
            self._stop_cell.options(scheduling_strategy=on_node(begun.node, soft=False)).remote(begun.worker)

    def _next(self, told: Any) -> Any:
        """Return what a task has told, or the end of a cell whose task could not tell it."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(next(told))
        except errors.OutOfMemoryError:
            verdict = Outcome(Status.FAILED, Reason.OUT_OF_MEMORY, "Ray killed the run: its node was out of memory")
        except errors.RayTaskError as error:
            verdict = Outcome(Status.FAILED, Reason.EXCEPTION, error_line(error.cause or error))
        except (errors.RayError, StopIteration) as error:
            verdict = Outcome(Status.CRASHED, Reason.VANISHED, f"gone with its node or worker ({type(error).__name__})")
        return ProcessExit(self._jobs[told], -9, None, self._is_stopping, None if self._is_stopping else verdict)


class RayLauncher(ProcessLauncher):
    """Runs each cell as a task of Ray, in a process of its own on a node that has the cores and GPUs for it."""

    options: RayOptions
    traits = frozenset({Trait.ELSEWHERE, Trait.STORES_WORK})

    def __init__(self, **settings: Any) -> None:
        self.options = checked(RayOptions(**settings))
        require_package("ray", extra="ray")
        self.processes_per_run = self.options.processes_per_run

    @property
    def place(self) -> Place:
        return Place(1, self.options.cores, None)

    @property
    def num_handed(self) -> int:
        return self.options.workers or sys.maxsize

    def require_gpus(self, devices: Iterable[str | None]) -> None:
        if self.options.gpus_per_run == 0 and any((each or "").startswith("cuda") for each in devices):
            raise ConfigurationError([fault("hydra.launcher.gpus_per_run", "be at least 1 for device=cuda", 0)])

    def run(
        self, jobs: Iterable[CellJob | None], listener: Listener, turns: Turns | None = None
    ) -> dict[int, JobReturn]:
        setup_globals()
        recorder = ReturnRecorder(listener)
        with self._connected() as ray:
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            needs = dict[int, dict[str, Any]]()

            def job_of(job: CellJob) -> Job:
                needs[job.key], send = self._needs(job, nodes), lambda number: send_work(job.work(number))
                return Job(job.key, do_sent_work, prepare=send, limits=self.limits(job))

            taken = recorder.taken(jobs, job_of, listener.wants)
            if _RayCells(ray, needs, self.options).run(taken, recorder, retries=Retries(self.options.retries)):
                raise KeyboardInterrupt
        return recorder.returns

    def _needs(self, job: CellJob, nodes: Sequence[dict[str, float]]) -> dict[str, Any]:
        """Return what a job asks Ray for. Raises `RunManagerError` where no node has it, as it would never begin."""
        kind = (job.device or "auto").partition(":")[0]
        ranks = self.processes_per_run if job.run is None else job.run.cell.processes
        uses_gpu = kind == "cuda" or (kind == "auto" and any(node.get("GPU") for node in nodes))
        gpus = (ranks if self.options.gpus_per_run is None else self.options.gpus_per_run) if uses_gpu else 0
        cores = self.options.cores * ranks
        if not any(node.get("CPU", 0) >= cores and node.get("GPU", 0) >= gpus for node in nodes):
            raise RunManagerError(f"Ray must have a node with {cores} cores and {gpus} GPUs for a cell, got none.")
        return {"num_cpus": cores, "num_gpus": gpus, "scheduling_strategy": self.options.placement.upper()}

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        """Connect to Ray, or start one, and yield its module. The driver's cells end with the connection."""
        with contextlib.ExitStack() as stack:
            address = self.options.address or stack.enter_context(_ray_of_this_machine())
            import ray  # it reads its variables now

            try:
                ray.init(address, log_to_driver=False, logging_level=ERROR)
            except (ConnectionError, RuntimeError, ValueError) as error:
                got = f"{address}: {error_line(error)}"
                raise RunManagerError(fault("hydra.launcher.address", "be that of a Ray that runs", got)) from error
            stack.callback(ray.shutdown)
            yield ray


@contextlib.contextmanager
def _ray_of_this_machine() -> Iterator[str]:
    """Start Ray, in a session of its own, as the driver needs it to stop its cells; it ends after the block."""
    ours = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(), "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ.update(ours | os.environ)  # what the user has set counts
    start = f"ray.init('local', num_cpus={usable_cores()}, include_dashboard=False, logging_level='ERROR')"
    code = f"import ray, sys; print({start}.address_info['address'], flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, start_new_session=True) as keeper:
        yield cast(IO[bytes], keeper.stdout).readline().decode().strip() or "local"  # which says why it does not start
