"""Records of runs (run.json), of epochs (lines of epochs.jsonl), and of turns."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from runmanager.records.files.atomic_files import whole_lines
from runmanager.records.files.file_errors import UNREADABLE, Int64, damaged_file_error, was_refused
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.gpus import DevicePeaks
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Outcome, Reason, Status, is_complete
from runmanager.records.settings.signature import UNSIGNED, with_later_settings, without_unsigned
from runmanager.records.settings.values import flatten

SCHEMA_VERSION = 1
"""Version of run.json and sweep.json; increased when an older reader could misread a newer file."""

PHASES = ("data", "transfer", "compute", "eval", "tracking")
"""The parts of an epoch's wall time, in the order of their columns (`data_seconds`, …)."""
TRAINING_PHASES = PHASES[:3]

UNKNOWN_WORK = "the work of a step is not known"
"""Beginning of the note that explains why the work of a run's step could not be counted."""

RANK_0_ALONE = "samples, throughput and metrics are those of rank 0"
"""End of the deviation of a run of several ranks whose record has the measurements of one."""

_INFINITE = float("inf")


class DeviceReadings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What the meters of a run's device said in an epoch, evaluation included; None for what they did not say.

    `joules` is the energy used in `seconds`, in which its counter took about `counter_steps` steps; unknown unless the
    run had the device for itself. `clock_hertz` is read at the epoch's end. The shares, fractions in [0, 1], are those
    of time (`utilization`), and of readings with a throttled device or with other processes computing on it.
    """

    joules: float | None = None
    seconds: float | None = None
    counter_steps: float | None = None
    utilization: float | None = None
    clock_hertz: float | None = None
    throttled_share: float | None = None
    others_share: float | None = None


class EpochRecord(msgspec.Struct, frozen=True, gc=False):
    """One epoch: metrics are means over its samples, accuracies fractions in [0, 1], times in seconds.

    Epochs count from 1; epoch 0 is the evaluation before training, without samples and `epoch_seconds`. `samples` is 0
    also where the samples of a step could not be counted. None means not measured. `run_seconds` counts from the run's
    start. `metrics` are the values that the program logged, by name, None for one that is not finite; `units` are
    counts of what was trained on besides samples, as tokens. What is empty of both and of `readings` is left out of the
    file: read `record.metrics or {}`.
    """

    epoch: Int64
    loss: float | None = None
    accuracy: float | None = None
    val_loss: float | None = None
    val_accuracy: float | None = None
    epoch_seconds: float | None = None
    wall_seconds: float | None = None
    run_seconds: float | None = None
    samples: Int64 = 0
    warmup: bool = False
    data_seconds: float | None = None
    transfer_seconds: float | None = None
    compute_seconds: float | None = None
    eval_seconds: float | None = None
    tracking_seconds: float | None = None
    metrics: dict[str, float | None] | msgspec.UnsetType = msgspec.UNSET
    units: dict[str, Int64] | msgspec.UnsetType = msgspec.UNSET
    readings: DeviceReadings | msgspec.UnsetType = msgspec.UNSET

    @property
    def known_samples(self) -> int | None:
        """The number of samples; None if it could not be counted, though there was training."""
        return None if self.loss is not None and not self.samples else self.samples

    @property
    def samples_per_second(self) -> float | None:
        """Throughput of the training part; None without training, or if its clock cannot have been right."""
        if self.samples <= 0 or self.epoch_seconds is None or self.epoch_seconds <= 0:
            return None
        rate = self.samples / self.epoch_seconds
        return rate if rate < _INFINITE else None


class Environment(msgspec.Struct, frozen=True, gc=False):
    """Hardware, software and load of a run; None for what could not be determined.

    `num_cores` counts the cores that the process may run on, `usable_cores` what it may use of their time: less where a
    container has a share of it. `outside_cpu_share` and `steal_share` are the shares of all cores' time that other
    processes and the hypervisor took, as means over the run. Their `_p90` were reached or exceeded during a tenth of
    it, and reveal load that lasted only for a part of the run. `code` maps the path of each source file of the user to
    its digest. `commit_unknown` says why the commit, or whether the tracked files are as it has them, is not known.
    """

    host: str = ""
    cpu_model: str | None = None
    num_cores: Int64 | None = None
    usable_cores: float | None = None
    torch_threads: Int64 | None = None
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
    commit_unknown: str | None = None
    code: dict[str, str] | None = None
    command: tuple[str, ...] = ()
    load_at_start: float | None = None
    load_at_end: float | None = None
    steal_share: float | None = None
    outside_cpu_share: float | None = None
    steal_share_p90: float | None = None
    outside_cpu_share_p90: float | None = None

    @property
    def cores_text(self) -> int | str | None:
        """The cores, and how much of their time may be used where that is less."""
        if self.usable_cores is None or self.usable_cores == self.num_cores:
            return self.num_cores
        return f"{self.num_cores}, limited to the time of {self.usable_cores:g}"

    @property
    def commit_text(self) -> str | None:
        """The commit with why something of it is not known; None if nothing is recorded."""
        if self.commit_unknown is None:
            return self.commit
        return f"unknown: {self.commit_unknown}" if self.commit is None else f"{self.commit} ({self.commit_unknown})"


class InferenceRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Calls of a network after training, with batches of one size; the device's peak memory is None for the CPU."""

    batch_size: Int64
    latency_p50_seconds: float
    latency_p90_seconds: float
    latency_p99_seconds: float
    inference_samples_per_second: float  # over the time of all calls
    peak_memory_bytes: Int64 | None = None
    num_calls: Int64 = 0


class Measurements(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of a whole run; None for what was not measured.

    `first_batch_seconds` is the time until the first batch of the first epoch, with the start of the loader's workers.
    `compile_seconds` is the time of compilation in the last attempt: before the first epoch and part of none in the
    built-in job; in a loop, within the epochs that ran the code first. `worker_start_method` is that of the loaders'
    processes: `fork`, `spawn`, `forkserver`, several joined by ` and `; None without workers. `precision` is that of
    the products with weights: `fp32`, `tf32`, `bf16`, `fp16`, `fp64`. `chosen` says what settings of `auto` became.

    The work of a step is that between two tracked ones, in the mean of the first steps: all calls of the network, their
    backward passes and, where it can be traced, the optimiser's step; not the loss. `step_units` has the unit that it
    is proportional to, with its number in such a step, as `{"samples": 32.0}` or `{"tokens": 16384.0}`; older files
    have the work of one call with a full batch. `flop_per_step` counts a multiply-add of a matrix product, convolution
    or attention as two, and no other arithmetic; `operations_per_step` counts dispatched operators, without views;
    `bytes_per_step` is what they would read and write without caches.

    Peaks are those of the device's memory during training, except `peak_host_bytes`, that of the process's memory.
    """

    first_batch_seconds: float | None = None
    steps_per_epoch: Int64 | None = None
    compile_seconds: float | None = None
    worker_start_method: str | None = None
    precision: str | None = None
    chosen: dict[str, bool | Int64 | None] | msgspec.UnsetType = msgspec.UNSET
    flop_per_step: Int64 | None = None
    operations_per_step: Int64 | None = None
    bytes_per_step: Int64 | None = None
    step_units: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    peak_allocated_bytes: Int64 | None = None
    peak_reserved_bytes: Int64 | None = None
    peak_host_bytes: Int64 | None = None
    ceilings: DevicePeaks | None = None
    inference: list[InferenceRecord] | msgspec.UnsetType = msgspec.UNSET

    def sizes_not_timed(self, batch_sizes: Iterable[int]) -> list[int]:
        """Return the batch sizes with which no inference was measured."""
        known = {each.batch_size for each in self.inference or ()}
        return [size for size in dict.fromkeys(batch_sizes) if size not in known]


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An earlier attempt of a run that was resumed: when and where it ran, and the last epoch kept of it.

    An attempt whose end was not recorded ends with its last sign of life. `last_epoch` is 0 if no epoch was kept;
    `session` is the one of the record at that time. `run` names the run that made these epochs, where it is another one
    that this run continues.
    """

    started_at: str
    ended_at: str
    last_epoch: Int64
    environment: Environment
    session: str | None = None
    run: str | msgspec.UnsetType = msgspec.UNSET


class OutsideFiles(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Files outside the run folders that changed while the run ran, by itself or another program.

    `files` are relative to the working `folder`, each with times at which it changed, in seconds since 1970; of many
    those that come first. `argument` is a setting with which the program writes into its run folder, as
    `output_dir={run_dir}`, empty if none is known.
    """

    folder: str
    files: dict[str, tuple[float, ...]]
    argument: str = ""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run, as stored in its run.json.

    `config` holds the requested settings, resolved and nested. `attempt` counts from 1 how often the run was begun or
    resumed; if it was resumed, `earlier` has the attempts before, and `resumed_at` is the start of the last one.
    `started_at` is the start of the first attempt, `environment` that of the last one. Times of day are ISO 8601 in
    UTC. `unsigned` names the settings that are not part of its identity, those in groups by their dotted names; None:
    those of the built-in job (`UNSIGNED`). `notes` are readable lines about what could not be done or was chosen
    automatically, `deviations` about deviations from `config`. `better` has the declared direction of logged metrics by
    name, `min` or `max`; it is left out of the file if none was declared. Runs of one `session` took turns on their
    machine (`measure=paired`); none of their times includes the waiting for turns.

    `interval` is `steps` if the run's records are intervals of steps, not epochs. `summary` has metrics of the whole
    run by name, in order of first appearance, None for one that is not finite. `origins` says where metrics come from
    that the program did not log itself: `returned`, `printed`, or a kind of file. `adopted` is the folder
    of a run that was made without this package, whose times were not measured. Each of the four is left out of the file
    where there is none.

    `cell_command` runs the cell alone, for a cell of another program than the built-in job; `variables` are the
    environment variables that its configuration reads, with a keyed digest in place of a secret. Both are left out of
    the file where there are none.

    `continued_from` names the finished run of the same sweep, with fewer epochs, that this one continues: `earlier`
    begins with its attempts. It is left out of the file of a run that made all of its epochs itself. `choices` are
    those of the config groups of a Hydra application, as `{"optimizer": "sgd"}`, without those whose name a setting
    has; they are no part of the run's identity, and left out of other files. `world_size` is the number of ranks that
    made the run together, left out for one. `outside` has the files that changed below the working folder of a cell of
    another program, left out without any. `num_records` is the number of lines that epochs.jsonl had when the run
    finished; it is left out of older files, and of those of runs that have not finished.
    """

    schema_version: Int64 = SCHEMA_VERSION
    name: str
    signature: str
    status: Status
    reason: Reason | None = None
    message: str = ""
    config: dict[str, Any]
    epochs_planned: Int64 | None = None
    attempt: Int64 = 1
    started_at: str | None = None
    resumed_at: str | None = None
    ended_at: str | None = None
    run_seconds: float | None = None
    num_parameters: Int64 | None = None
    peak_memory_bytes: Int64 | None = None
    owner: ProcessIdentity | None = None
    environment: Environment = Environment()
    earlier: tuple[Attempt, ...] = ()
    measurements: Measurements = Measurements()
    session: str | None = None
    unsigned: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    better: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    interval: str | msgspec.UnsetType = msgspec.UNSET
    summary: dict[str, float | None] | msgspec.UnsetType = msgspec.UNSET
    origins: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    adopted: str | msgspec.UnsetType = msgspec.UNSET
    cell_command: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    variables: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    continued_from: str | msgspec.UnsetType = msgspec.UNSET
    world_size: Int64 | msgspec.UnsetType = msgspec.UNSET
    num_records: Int64 | msgspec.UnsetType = msgspec.UNSET
    choices: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    outside: OutsideFiles | msgspec.UnsetType = msgspec.UNSET

    @property
    def choices_and_settings(self) -> dict[str, Any]:
        """The choices of config groups, and the settings that they and other words gave."""
        return {**(self.choices or {}), **self.settings}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that change what the run computes, under dotted names.

        Settings that were added after the run are included, at their neutral value (see `LATER`).
        """
        unsigned = UNSIGNED if self.unsigned is None else self.unsigned
        return with_later_settings(flatten(without_unsigned(self.config, unsigned)))

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.status, self.reason, self.message)

    @property
    def is_complete(self) -> bool:
        """Whether the run counts: see `is_complete` in `status.py`."""
        return is_complete(self.status, self.reason)

    @property
    def is_resumable(self) -> bool:
        """Whether the run was broken off, so that it may continue from its checkpoint: it did nothing wrong itself.

        A run that failed as the disk was full, or the machine refused something else, is one too.
        """
        is_refused = self.reason is Reason.EXCEPTION and was_refused(self.message)
        return self.status in (Status.KILLED, Status.CRASHED) or self.reason is Reason.PRUNED or is_refused

    @property
    def is_running_elsewhere(self) -> bool:
        """Whether its status is `running` on another host, which alone can see whether its process is alive."""
        return self.status is Status.RUNNING and self.owner is not None and self.owner.is_alive() is None

    def ended(self, outcome: Outcome, *, at: str | None) -> "RunRecord":
        """Return this record with the given outcome and time of its end."""
        return msgspec.structs.replace(
            self, status=outcome.status, reason=outcome.reason, message=outcome.message, ended_at=at
        )

    def observed(self) -> "RunRecord":
        """Return this record with its true status: `crashed` if it says `running` but its process is gone."""
        if self.status is Status.RUNNING and self.owner is not None and self.owner.is_alive() is False:
            gone = Outcome(Status.CRASHED, Reason.VANISHED, f"process {self.owner.pid} ended without recording an end")
            return self.ended(gone, at=self.ended_at)
        return self


def counted_word(record: RunRecord) -> str:
    """Return what the numbers of the run's records count: `epoch`, or `step` where each is an interval of steps."""
    return "step" if record.interval == "steps" else "epoch"


WARMUP_TURNS = 3
"""Turns of each process in which it finds, unless the machine is busy, how many steps a turn should have."""


class Turn(msgspec.Struct, frozen=True):
    """One measured turn, a line of turns.jsonl: the `seconds` that `steps` optimiser steps over `samples` samples took.

    Runs of one `session` took turns on one machine. Turns of the same `round`, counted from 1, belong together; `place`
    is their order in it, from 1. A `warmup` turn does not count. `clock_hertz` is the clock of an accelerator at its
    end, left out where it is unknown.
    """

    session: str
    round: Int64
    place: Int64
    steps: Int64
    samples: Int64
    seconds: float
    warmup: bool = False
    clock_hertz: float | msgspec.UnsetType = msgspec.UNSET

    @property
    def samples_per_second(self) -> float | None:
        """Throughput of the turn; None if it had no samples or its clock did not advance."""
        return self.samples / self.seconds if self.samples and self.seconds > 0 else None


@dataclass(frozen=True)
class Grant:
    """Permission for a run to use the machine; for a measured turn, with its `round` and its `place` in the round.

    `core` is the CPU core on which all turns of a round begin.
    """

    round: int = 0
    place: int = 0
    warmup: bool = False
    core: int | None = None


_DECODER = msgspec.json.Decoder(Turn)


def read_turns(paths: RunPaths) -> list[Turn]:
    """Read the run's measured turns in order, without a torn last line. Raises `RecordError` for a damaged line."""
    try:
        return _DECODER.decode_lines(whole_lines(paths.turns))
    except UNREADABLE as error:
        raise damaged_file_error(paths.turns, error) from error
