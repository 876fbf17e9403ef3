"""The settings of `hydra/launcher=slurm`, and what is wrong with them."""

from dataclasses import dataclass, field
from typing import Any

from runmanager.errors import ConfigurationError
from runmanager.validation import field_faults, limits

__all__ = ["SlurmOptions"]

# What the launcher itself says to Slurm: said twice, the two would contradict each other.
_OURS = {
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
    """What each cell's job asks Slurm for, and how the driver behaves meanwhile. None leaves it to the cluster.

    `time` is in minutes, `memory_gb` in GiB; `gpus_per_node` and `gres` are two ways to ask for GPUs, one of which a
    cluster likes. `array_parallelism` is how many cells run at once. `additional_parameters` are further options of
    sbatch, without their dashes.

    `wait=false` submits and leaves. Else the driver asks Slurm every `poll_seconds` and submits a cell again, at most
    `resubmissions` times, which Slurm preempted or whose time was up. `signal_seconds` before its time is up a job is
    told so, and its run ends after its epoch. `timeout` and `stall_timeout` are the seconds after which a run is
    killed: from its start, and without a step.
    """

    _target_: str = "hydra_plugins.runmanager.SlurmLauncher"
    partition: str | None = None
    time: int = field(default=60, metadata=limits(gt=0))
    memory_gb: float | None = field(default=None, metadata=limits(gt=0))
    cpus_per_task: int = field(default=1, metadata=limits(gt=0))
    gpus_per_node: int | None = field(default=None, metadata=limits(ge=0))
    gres: str | None = None
    array_parallelism: int = field(default=16, metadata=limits(gt=0))
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    additional_parameters: dict[str, Any] = field(default_factory=dict)
    wait: bool = True
    poll_seconds: float = field(default=5.0, metadata=limits(gt=0))
    timeout: float | None = field(default=None, metadata=limits(gt=0))
    stall_timeout: float | None = field(default=None, metadata=limits(gt=0))
    signal_seconds: int = field(default=90, metadata=limits(gt=0))
    resubmissions: int = field(default=10, metadata=limits(ge=0))

    @classmethod
    def checked(cls, **settings: Any) -> "SlurmOptions":
        """Options from settings as Hydra hands them over. Raises `ConfigurationError` with every fault."""
        given = dict(settings)
        given["additional_parameters"] = dict(settings.get("additional_parameters") or {})
        options = cls(**given)
        faults = options.faults()
        if faults:
            raise ConfigurationError(faults)
        return options

    def faults(self) -> list[str]:
        """Every fault, as readable lines."""
        faults = field_faults(self, "hydra.launcher.")
        if self.gpus_per_node is not None and self.gres is not None:
            faults.append(
                "`hydra.launcher.gpus_per_node` must be given without `hydra.launcher.gres`, got both; keep the one "
                "that the cluster's pages name."
            )
        if self.timeout is not None and self.stall_timeout is not None and self.stall_timeout >= self.timeout > 0:
            faults.append(
                f"`hydra.launcher.stall_timeout` must be below `hydra.launcher.timeout`={self.timeout:g}, got "
                f"{self.stall_timeout:g}."
            )
        if not self.wait and self.resubmissions not in (0, SlurmOptions.resubmissions):
            faults.append(
                f"`hydra.launcher.resubmissions` must be left out with `hydra.launcher.wait=false`, got "
                f"{self.resubmissions}; nobody is there to submit again."
            )
        for name in self.additional_parameters:
            instead = _OURS.get(name.replace("_", "-"))
            if instead:
                faults.append(
                    f"`hydra.launcher.additional_parameters` must hold what has no setting of its own, got {name}; "
                    f"that is {instead}."
                )
        return faults
