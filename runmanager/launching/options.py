"""Settings of `hydra/launcher=local`: `hydra.launcher.*`. Every Hydra application loads them: plain dataclasses."""

from dataclasses import dataclass, field
from enum import StrEnum

from runmanager.validation import allowed, fault, field_faults, limits


class OnError(StrEnum):
    """What happens to the cells that have not started after a run that did not succeed."""

    CONTINUE = "continue"
    STOP = "stop"


RETRIED = ("signal", "vanished", "stalled", "timeout")
"""Reasons that say more about the machine than about the cell: tried again if `retries` allows it."""

_PREFIX = "hydra.launcher."
# Of the reasons of a run's end: not those of a good end, and those that would be the same again.
_RETRIABLE = (
    "exception",
    "exit",
    "out_of_memory",
    "diverged",
    "signal",
    "timeout",
    "stalled",
    "interrupted",
    "vanished",
)


@dataclass(frozen=True)
class LocalOptions:
    """Options of the local engine; `preload` null is torch, if the program has imported it by then."""

    _target_: str = "hydra_plugins.runmanager.LocalLauncher"
    workers: int = field(default=1, metadata=limits(ge=1))
    """Runs at the same time; with 1 no run disturbs the times of another."""
    gpus: list[str] | None = None
    """GPUs to use, named as in CUDA_VISIBLE_DEVICES; null uses all."""
    gpus_per_run: int | None = field(default=None, metadata=limits(ge=0))
    """GPUs that a run gets; null is one if the machine has GPUs and the run uses one."""
    runs_per_gpu: int = field(default=1, metadata=limits(ge=1))
    """Runs that may share a GPU."""
    processes_per_run: int = field(default=1, metadata=limits(ge=1))
    """Ranks of a run, which torchrun starts and which end as one; for Hydra applications only."""
    threads: int | None = field(default=None, metadata=limits(ge=1))
    """Threads of a run; null is OMP_NUM_THREADS, else an equal share of the cores."""
    timeout: float | None = field(default=None, metadata=limits(gt=0, way_out="null sets no limit"))
    """Seconds after which a run is killed; null sets no limit."""
    stall_timeout: float | None = field(default=None, metadata=limits(gt=0, way_out="null sets no limit"))
    """Seconds without a step after which a run is killed; null sets no limit."""
    retries: int = field(default=0, metadata=limits(ge=0))
    """Further tries of a run that ended for a reason in `retry_on`."""
    retry_on: list[str] = field(default_factory=lambda: list(RETRIED), metadata=allowed(", ".join(_RETRIABLE)))
    """Reasons for another try."""
    on_error: str = field(default=str(OnError.CONTINUE), metadata=limits(choices=list(OnError)))
    """After a run that did not succeed: `continue` with the others, or `stop` and start no further run."""
    preload: list[str] | None = field(default_factory=lambda: ["torch"])
    """Modules that are imported before a run's process starts."""

    def faults(self) -> list[str]:
        """Return every fault as a readable line."""
        return [
            *field_faults(self, _PREFIX),
            *_bad_gpus(self.gpus),
            *_bad_reasons(self.retry_on),
            *stall_faults(self.timeout, self.stall_timeout),
            *self._unused(),
        ]

    def _unused(self) -> list[str]:
        """Return a fault for each setting that another one leaves without effect."""
        faults = []
        if self.runs_per_gpu > max(self.workers, 1):
            rule = f"be at most `hydra.launcher.workers`={self.workers}, the runs at a time"
            faults.append(_fault("runs_per_gpu", rule, self.runs_per_gpu))
        if self.retries == 0 and not _bad_reasons(self.retry_on) and set(self.retry_on) != set(RETRIED):
            reasons = f"[{','.join(self.retry_on)}]"
            faults.append(_fault("retry_on", "be given with `hydra.launcher.retries` of at least 1", reasons))
        if self.retries > 0 and not self.retry_on:
            faults.append(_fault("retry_on", "hold at least one reason with `hydra.launcher.retries`", "[]"))
        return faults


def stall_faults(timeout: float | None, stall_timeout: float | None) -> list[str]:
    """Return the fault of a stall timeout that another limit of a run leaves without effect."""
    if timeout is None or stall_timeout is None or not stall_timeout >= timeout > 0:
        return []
    return [_fault("stall_timeout", f"be below `{_PREFIX}timeout`={timeout:g}", stall_timeout)]


def _fault(key: str, rule: str, value: object) -> str:
    return fault(f"{_PREFIX}{key}", rule, value)


def _bad_gpus(gpus: list[str] | None) -> list[str]:
    rule = "list each GPU once, as CUDA_VISIBLE_DEVICES names it (like [0,1])"
    if gpus is None or (len(set(gpus)) == len(gpus) and all(_names_a_gpu(name) for name in gpus)):
        return []
    return [_fault("gpus", rule, f"[{','.join(gpus)}]")]


def _names_a_gpu(name: str) -> bool:
    return name.isdecimal() or name.startswith(("GPU-", "MIG-"))


def _bad_reasons(reasons: list[str]) -> list[str]:
    bad = [reason for reason in reasons if reason not in _RETRIABLE]
    return [_fault("retry_on", f"hold only {', '.join(_RETRIABLE)}", ", ".join(bad))] if bad else []
