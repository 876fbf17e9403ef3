"""Settings of `hydra/launcher=ray`: `hydra.launcher.*`. Every Hydra application loads them: plain dataclasses."""

from dataclasses import dataclass, field

from runmanager.launching.options import stall_faults
from runmanager.validation import field_faults, limits


@dataclass(frozen=True)
class RayOptions:
    """Options of each cell's task and of the driver."""

    _target_: str = "hydra_plugins.runmanager.RayLauncher"
    address: str | None = None
    """The Ray to use, such as auto or HOST:6379; null starts one on this machine for this command."""
    workers: int | None = field(default=None, metadata=limits(ge=1))
    """Runs at the same time; null is as many as Ray has room for."""
    cores: int = field(default=1, metadata=limits(ge=1))
    """Cores of a run, for each of its ranks, which use as many threads, unless OMP_NUM_THREADS is set."""
    gpus_per_run: int | None = field(default=None, metadata=limits(ge=0))
    """GPUs that a run gets; null is one for each rank if Ray has GPUs and the run uses one."""
    placement: str = field(default="default", metadata=limits(choices=["default", "spread"]))
    """Whether Ray places runs as usual, which fills half a node before the next, or spreads them over all nodes."""
    processes_per_run: int = field(default=1, metadata=limits(ge=1))
    """Ranks of a run, which torchrun starts on its node and which end as one; for Hydra applications only."""
    timeout: float | None = field(default=None, metadata=limits(gt=0, way_out="null sets no limit"))
    """Seconds after which a run is killed; null sets no limit."""
    stall_timeout: float | None = field(default=None, metadata=limits(gt=0, way_out="null sets no limit"))
    """Seconds without a step after which a run is killed; null sets no limit."""
    retries: int = field(default=0, metadata=limits(ge=0))
    """Further tries of a run that was killed, timed out, stalled, or vanished with its node."""

    def faults(self) -> list[str]:
        """Return every fault as a readable line."""
        return field_faults(self, "hydra.launcher.") + stall_faults(self.timeout, self.stall_timeout)
