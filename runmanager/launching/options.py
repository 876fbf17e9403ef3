"""What can be said of how many runs are run: `hydra.launcher.*` of `hydra/launcher=local`. Loads no torch."""

from dataclasses import dataclass, field
from enum import StrEnum

from runmanager.records.run.status import Reason
from runmanager.validation import fault, field_faults, limits

__all__ = ["RETRIED", "LocalOptions", "OnError"]


class OnError(StrEnum):
    """What a bad end means for the cells that have not begun."""

    CONTINUE = "continue"
    STOP = "stop"


RETRIED = (Reason.SIGNAL, Reason.VANISHED, Reason.STALLED, Reason.TIMEOUT)
"""Ends that say more about the machine than about the cell: tried again where `retries` allows it."""

_PREFIX = "hydra.launcher."
# The others are no bad end, or would be the same again.
_RETRIABLE = tuple(reason for reason in Reason if reason not in (Reason.EARLY_STOPPED, Reason.DEVICE_UNAVAILABLE))


@dataclass(frozen=True)
class LocalOptions:
    """How runs are run on this machine.

    `workers`: runs at once. `gpus`: the GPUs to hand out, as CUDA_VISIBLE_DEVICES names them; null: those found.
    `gpus_per_run`: how many a run is given; null: one, where there are GPUs and the run wants one. `runs_per_gpu`: how
    many runs may share one. `timeout`: seconds after which a run is killed. `stall_timeout`: seconds without a step
    after which it is. `retries`: how often more a run that ended for a reason in `retry_on` is tried. `on_error`:
    `stop` begins no further run after the first bad end. `preload`: modules that every run's process starts with.
    """

    workers: int = field(default=1, metadata=limits(ge=1))
    gpus: list[str] | None = None
    gpus_per_run: int | None = field(default=None, metadata=limits(ge=0))
    runs_per_gpu: int = field(default=1, metadata=limits(ge=1))
    timeout: float | None = field(default=None, metadata=limits(gt=0, way_out="null sets no limit"))
    stall_timeout: float | None = field(default=None, metadata=limits(gt=0, way_out="null sets no limit"))
    retries: int = field(default=0, metadata=limits(ge=0))
    retry_on: list[str] = field(default_factory=lambda: [str(reason) for reason in RETRIED])
    on_error: str = field(default=str(OnError.CONTINUE), metadata=limits(choices=list(OnError)))
    preload: list[str] = field(default_factory=lambda: ["torch"])

    def faults(self) -> list[str]:
        """Every fault, as readable lines."""
        return [
            *field_faults(self, _PREFIX),
            *_bad_gpus(self.gpus),
            *_bad_reasons(self.retry_on),
            *self._idle(),
        ]

    def _idle(self) -> list[str]:
        """The settings that others leave nothing to do."""
        faults = []
        if self.runs_per_gpu > max(self.workers, 1):
            rule = f"be at most `hydra.launcher.workers`={self.workers}, the runs at once"
            faults.append(_fault("runs_per_gpu", rule, self.runs_per_gpu))
        if self.timeout is not None and self.stall_timeout is not None and self.stall_timeout >= self.timeout > 0:
            faults.append(
                _fault("stall_timeout", f"be below `hydra.launcher.timeout`={self.timeout:g}", self.stall_timeout)
            )
        if self.retries == 0 and not _bad_reasons(self.retry_on) and set(self.retry_on) != set(RETRIED):
            reasons = f"[{','.join(self.retry_on)}]"
            faults.append(_fault("retry_on", "be given with `hydra.launcher.retries` of at least 1", reasons))
        if self.retries > 0 and not self.retry_on:
            faults.append(_fault("retry_on", "hold at least one reason with `hydra.launcher.retries`", "[]"))
        return faults


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
