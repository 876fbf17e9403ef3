"""Settings of `hydra/launcher=slurm`: `hydra.launcher.*`. Every Hydra application loads them: plain dataclasses."""

from dataclasses import dataclass, field
from typing import Any

from runmanager.launching.options import stall_faults
from runmanager.validation import field_faults, limits

# Options of sbatch that the launcher sets itself, and the settings to use instead.
_OWN_OPTIONS = {
    "time": "hydra.launcher.time",
    "mem": "hydra.launcher.memory_gb",
    "cpus-per-task": "hydra.launcher.cpus_per_task",
    "gpus-per-node": "hydra.launcher.gpus_per_node",
    "array": "hydra.launcher.array_parallelism",
    "signal": "hydra.launcher.signal_seconds",
    "partition": "hydra.launcher.partition",
    "account": "hydra.launcher.account",
    "qos": "hydra.launcher.qos",
    "constraint": "hydra.launcher.constraint",
    "gres": "hydra.launcher.gres",
    "output": "the files under <sweep>/slurm",
    "error": "the files under <sweep>/slurm",
    "open-mode": "the files under <sweep>/slurm",
    "nodes": "one node a run",
    "ntasks-per-node": "one task a run",
}


@dataclass(frozen=True)
class SlurmOptions:
    """Options of each cell's job and of the driver. None leaves a choice to the cluster.

    `gpus_per_node` and `gres` are two ways to request GPUs; clusters support one of them.
    """

    _target_: str = "hydra_plugins.runmanager.SlurmLauncher"
    partition: str | None = None
    """Partition of the jobs."""
    time: int = field(default=60, metadata=limits(gt=0))
    """Time limit of a job in minutes."""
    memory_gb: float | None = field(default=None, metadata=limits(gt=0))
    """Memory of a job in GiB."""
    cpus_per_task: int = field(default=1, metadata=limits(gt=0))
    """Cores of a job, for each rank of its run; a run uses as many threads, unless OMP_NUM_THREADS is set."""
    processes_per_run: int = field(default=1, metadata=limits(ge=1))
    """Ranks of a run, which torchrun starts in its job and which end as one; for Hydra applications only."""
    gpus_per_node: int | None = field(default=None, metadata=limits(ge=0))
    """GPUs of a job."""
    gres: str | None = None
    """GPUs of a job, as in gpu:a100:1, on clusters without `gpus_per_node`."""
    array_parallelism: int = field(default=16, metadata=limits(gt=0))
    """Cells that run at the same time."""
    account: str | None = None
    """Account that pays for the jobs."""
    qos: str | None = None
    """Quality of service of the jobs."""
    constraint: str | None = None
    """Features that a node must have."""
    additional_parameters: dict[str, Any] = field(default_factory=dict)
    """Further options of sbatch, without their dashes."""
    wait: bool = True
    """Wait for the runs; false submits them and exits."""
    poll_seconds: float = field(default=5.0, metadata=limits(gt=0))
    """Seconds between two queries to Slurm."""
    timeout: float | None = field(default=None, metadata=limits(gt=0))
    """Seconds after which a run is killed; null sets no limit but that of the job."""
    stall_timeout: float | None = field(default=None, metadata=limits(gt=0))
    """Seconds without a step after which a run is killed; null sets no limit."""
    signal_seconds: int = field(default=90, metadata=limits(gt=0))
    """Seconds before its time limit at which a job is told to end, after its epoch."""
    resubmissions: int = field(default=10, metadata=limits(ge=0))
    """How often a cell that Slurm stopped is submitted again."""
    retries: int = field(default=0, metadata=limits(ge=0))
    """Further tries of a run that was killed, timed out, stalled, or vanished with its node."""

    def faults(self) -> list[str]:
        """Return every fault as a readable line."""
        faults = field_faults(self, "hydra.launcher.")
        if self.gpus_per_node is not None and self.gres is not None:
            faults.append(
                "`hydra.launcher.gpus_per_node` must be given without `hydra.launcher.gres`, got both; keep the one "
                "that the cluster's pages name."
            )
        if self.gpus_per_node and self.gpus_per_node < self.processes_per_run:
            ranks = f"`hydra.launcher.processes_per_run`={self.processes_per_run}"
            faults.append(f"`hydra.launcher.gpus_per_node` must be at least {ranks}, got {self.gpus_per_node}.")
        faults += stall_faults(self.timeout, self.stall_timeout)
        if not self.wait:
            tries = {"resubmissions": self.resubmissions, "retries": self.retries}
            faults += [
                f"`hydra.launcher.{name}` must be left out with `hydra.launcher.wait=false`, got {number}; no "
                "driver is left to submit again."
                for name, number in tries.items()
                if number not in (0, getattr(SlurmOptions, name))
            ]
        for name in self.additional_parameters:
            instead = _OWN_OPTIONS.get(name.replace("_", "-"))
            if instead:
                faults.append(
                    f"`hydra.launcher.additional_parameters` must hold options without a setting, got {name}; use "
                    f"{instead}."
                )
        return faults
