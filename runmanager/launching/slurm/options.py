"""Settings of `hydra/launcher=slurm`: `hydra.launcher.*`."""

from dataclasses import dataclass, field
from typing import Any

from runmanager.errors import ConfigurationError
from runmanager.validation import field_faults, limits

__all__ = ["SlurmOptions"]

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

    `time` is in minutes, `memory_gb` in GiB. `gpus_per_node` and `gres` are two ways to request GPUs; clusters support
    one of them. `array_parallelism` is how many cells run at a time. `additional_parameters` are further options of
    sbatch, without their dashes.

    With `wait=false` the driver exits after submitting. Else it polls Slurm every `poll_seconds`, and resubmits a cell
    that Slurm preempted or whose time was up, at most `resubmissions` times. A job is signalled `signal_seconds` before
    its time is up, and its run ends after its epoch. `timeout` and `stall_timeout` are the seconds after which a run is
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
        """Return options from settings as Hydra passes them. Raises `ConfigurationError` with every fault."""
        given = dict(settings)
        given["additional_parameters"] = dict(settings.get("additional_parameters") or {})
        options = cls(**given)
        faults = options.faults()
        if faults:
            raise ConfigurationError(faults)
        return options

    def faults(self) -> list[str]:
        """Return every fault as a readable line."""
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
                f"{self.resubmissions}; no driver is left to submit again."
            )
        for name in self.additional_parameters:
            instead = _OWN_OPTIONS.get(name.replace("_", "-"))
            if instead:
                faults.append(
                    f"`hydra.launcher.additional_parameters` must hold options without a setting, got {name}; use "
                    f"{instead}."
                )
        return faults
