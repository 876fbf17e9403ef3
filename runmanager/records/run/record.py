"""What a run is: the record in run.json, and the record of an epoch, one line of epochs.jsonl."""

from typing import Any

import msgspec

from runmanager.records.host.device_peaks import DevicePeaks
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.settings.signature import UNSIGNED, with_later_settings
from runmanager.records.settings.values import flatten

__all__ = [
    "PHASES",
    "SCHEMA_VERSION",
    "UNKNOWN_WORK",
    "Attempt",
    "Environment",
    "EpochRecord",
    "Measurements",
    "RunRecord",
]

SCHEMA_VERSION = 1
"""Version of run.json and sweep.json; raised when an older reader could misread a newer file."""

PHASES = ("data", "transfer", "compute", "eval", "tracking")
"""The parts of an epoch's wall time, in the order of their columns (`data_seconds`, …)."""

UNKNOWN_WORK = "the work of a step is not known"
"""How a note begins that says why a run's work could not be counted."""


_INFINITE = float("inf")


class EpochRecord(msgspec.Struct, frozen=True, gc=False):
    """One epoch: metrics are means over its samples, accuracies fractions in [0, 1], times seconds.

    Epochs count from 1; epoch 0 is the evaluation before training: no samples, no `epoch_seconds`.
    None is what was not measured. `run_seconds` counts from the run's start.
    """

    epoch: int
    loss: float | None = None
    accuracy: float | None = None
    val_loss: float | None = None
    val_accuracy: float | None = None
    epoch_seconds: float | None = None
    wall_seconds: float | None = None
    run_seconds: float | None = None
    samples: int = 0
    warmup: bool = False
    data_seconds: float | None = None
    transfer_seconds: float | None = None
    compute_seconds: float | None = None
    eval_seconds: float | None = None
    tracking_seconds: float | None = None

    @property
    def samples_per_second(self) -> float | None:
        """Throughput of the training part; None where there was none, and where its clock cannot have been right."""
        if self.samples <= 0 or self.epoch_seconds is None or self.epoch_seconds <= 0:
            return None
        rate = self.samples / self.epoch_seconds
        return rate if rate < _INFINITE else None


class Environment(msgspec.Struct, frozen=True, gc=False):
    """Where and with what a run was made; None is what could not be found out.

    `outside_cpu_share` and `steal_share` are the shares of all the cores' time that others and the hypervisor took,
    means over the run; their `_p90` were met or exceeded during a tenth of it, and show who came for a part only.
    `code` has a digest of each source file of the user's own that the run was made with, by its path.
    """

    host: str = ""
    cpu_model: str | None = None
    num_cores: int | None = None
    torch_threads: int | None = None
    device_name: str | None = None
    compute_capability: str | None = None
    driver: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    cudnn_benchmark: bool | None = None
    cudnn_deterministic: bool | None = None
    tf32_matmul: bool | None = None
    tf32_cudnn: bool | None = None
    python: str = ""
    libraries: dict[str, str] = {}
    commit: str | None = None
    commit_clean: bool | None = None
    code: dict[str, str] | None = None
    command: tuple[str, ...] = ()
    load_at_start: float | None = None
    load_at_end: float | None = None
    steal_share: float | None = None
    outside_cpu_share: float | None = None
    steal_share_p90: float | None = None
    outside_cpu_share_p90: float | None = None


class Measurements(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a whole run; None is what was not measured.

    `first_batch_seconds` is the time from asking the loader anew to its first batch, in the first epoch; workers are
    started in it. `compile_seconds` is what compiling took before the first epoch of the last attempt; no epoch has it.
    `precision` is what the weights' products are computed in: `fp32`, `tf32`, `bf16`, `fp16`, `fp64`.

    A step's work is that of one full batch: forward, backward and, where it can be followed, the optimiser's step; not
    the loss. `flop_per_step` counts a multiply-add of a matrix product, convolution or attention as two, and no other
    arithmetic; `operations_per_step` the operators dispatched, without views; `bytes_per_step` what these read and
    wrote, were nothing kept in caches.

    Peaks are of the training, and of the device's memory but for `peak_host_bytes`, which is what this process had in
    the host's memory at most since it began. Shares are fractions in [0, 1]; the accelerator's meters are means over
    looks during the epochs, `gpu_throttled_share` and `gpu_others_share` the share of looks that found it throttled or
    other processes computing on it; energy is a median over measured epochs, with evaluation.
    """

    first_batch_seconds: float | None = None
    steps_per_epoch: int | None = None
    compile_seconds: float | None = None
    precision: str | None = None
    flop_per_step: int | None = None
    operations_per_step: int | None = None
    bytes_per_step: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_host_bytes: int | None = None
    gpu_utilization: float | None = None
    gpu_power_watts: float | None = None
    gpu_energy_joules_per_epoch: float | None = None
    gpu_clock_hertz: float | None = None
    gpu_throttled_share: float | None = None
    gpu_others_share: float | None = None
    ceilings: DevicePeaks | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An earlier stretch of a run that a later one went on from: when and where, and the last epoch kept of it.

    A stretch that nobody saw the end of ends with its last sign of life. `last_epoch` is 0 where nothing was kept,
    `session` that of the record then.
    """

    started_at: str
    ended_at: str
    last_epoch: int
    environment: Environment
    session: str | None = None


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run, as kept in its run.json.

    `config` holds the settings as asked, resolved and nested. `attempt` counts from 1 the times the run was begun
    or gone on with; where it was gone on with, `earlier` has the stretches before, and `resumed_at` is when this one
    began. `started_at` is the first one's start, `environment` the last one's. Times of day are ISO 8601 in UTC.
    `unsigned` names the top-level settings that are no part of its identity; None: the built-in job's (`UNSIGNED`).
    `notes` are readable lines about what could not be done or was chosen, `deviations` about what was done otherwise
    than `config` asks. Runs of one `session` took turns on their machine (`measure=paired`); what a run waited for its
    turns is in no time of it.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    signature: str
    status: Status
    reason: Reason | None = None
    message: str = ""
    config: dict[str, Any]
    epochs_planned: int | None = None
    attempt: int = 1
    started_at: str | None = None
    resumed_at: str | None = None
    ended_at: str | None = None
    run_seconds: float | None = None
    num_parameters: int | None = None
    peak_memory_bytes: int | None = None
    owner: ProcessIdentity | None = None
    environment: Environment = Environment()
    earlier: tuple[Attempt, ...] = ()
    measurements: Measurements = Measurements()
    session: str | None = None
    unsigned: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under dotted names, without those that do not change what the run computes.

        What came later than the run is among them, at the value that changes nothing.
        """
        unsigned = UNSIGNED if self.unsigned is None else self.unsigned
        return with_later_settings(flatten({key: value for key, value in self.config.items() if key not in unsigned}))

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.status, self.reason, self.message)

    @property
    def is_running_elsewhere(self) -> bool:
        """Whether it says `running`, and only its own host could see whether its process lives."""
        return self.status is Status.RUNNING and self.owner is not None and self.owner.is_alive() is None

    def ended(self, outcome: Outcome, *, at: str | None) -> "RunRecord":
        """This record with its end written in."""
        return msgspec.structs.replace(
            self, status=outcome.status, reason=outcome.reason, message=outcome.message, ended_at=at
        )

    def observed(self) -> "RunRecord":
        """This record as it truly stands: one that says `running` while its process is gone reads `crashed`."""
        if self.status is Status.RUNNING and self.owner is not None and self.owner.is_alive() is False:
            gone = Outcome(Status.CRASHED, Reason.VANISHED, f"process {self.owner.pid} is gone without a word")
            return self.ended(gone, at=self.ended_at)
        return self
