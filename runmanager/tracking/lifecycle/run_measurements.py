"""What is measured of a run beside its epochs' times, gathered on its way and put into its record."""

from collections.abc import Sequence
from statistics import median
from typing import Any

import msgspec
import torch

from runmanager.records.run.record import UNKNOWN_WORK, Environment, EpochRecord, Measurements, RunRecord
from runmanager.text import error_line
from runmanager.tracking.device.devices import (
    peak_host_bytes,
    peak_memory_bytes,
    peak_reserved_bytes,
    reset_peak_memory,
)
from runmanager.tracking.environment.code_hashes import LoadedLater
from runmanager.tracking.environment.environment import known_ceilings, load_average
from runmanager.tracking.environment.gpu_meter import open_meter
from runmanager.tracking.environment.load_sampler import Sampler
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.introspect.first_batch import inputs_of
from runmanager.tracking.introspect.step_cost import step_work

__all__ = ["Measuring", "num_parameters", "precision_of"]

_PRECISIONS = {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.float16: "fp16"}
_CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)


class Measuring:
    """The measurements of one run; it holds no part of the run, so that a thread may hold it.

    ```
    begin            the ceilings that are known, the weights' precision; peaks of memory begin anew
    count_work       the work of a step, on a first batch
    memory_begins    peaks of memory once more, when the run has been drawn: a graph may take a copy of the model
    epoch_begins     the accelerator's energy; looks at its meters begin
    epoch_ends       energy, steps, time to the first batch
    ```

    `warmup` are the epochs of this process that do not count. In a process that trains no epoch, as it only takes its
    measured turns once more, all stays as it was known. Nothing of it is on an epoch's clock. What the process `family`
    and its children do is no outside load (None: what this process does). `is_built_in` as in `RunOptions`.
    """

    def __init__(self, device: torch.device, *, family: int | None = None, is_built_in: bool = False) -> None:
        self._device = device
        self._loaded_later = LoadedLater(is_built_in=is_built_in)
        self._meter = open_meter(device, is_shared=family is not None)
        self._sampler = Sampler(self._meter, family=family)
        self._known = Measurements()
        self._energy_before: float | None = None
        self._joules: dict[int, float] = {}
        self.warmup: Sequence[int] = ()
        self.has_trained = False
        self.look = self._sampler.look

    def begin(self, network: torch.nn.Module, record: RunRecord, *, precision: str | None = None) -> None:
        """The run's network is on its device; what an earlier attempt has measured stands in the record.

        `precision` is what its products are computed in, where that is not to be seen from its weights.
        """
        environment = record.environment
        self._known = msgspec.structs.replace(
            record.measurements,
            precision=precision or precision_of(network, self._device, environment),
            ceilings=known_ceilings(self._device, environment),
        )
        self.memory_begins()

    def memory_begins(self) -> None:
        """Forget the device's peaks of memory so far: what follows is training."""
        reset_peak_memory(self._device)

    def count_work(
        self, network: torch.nn.Module, batch: Any, *, optimizer: torch.optim.Optimizer | None, batch_size: int | None
    ) -> Sequence[str]:
        """Count the work of a step on `batch_size` samples like those of `batch`; return notes on what cannot be."""
        inputs = inputs_of(batch)
        if inputs is None or batch_size is None:
            return [f"{UNKNOWN_WORK}: the loader does not show what a full batch is"]
        full = torch.empty((batch_size, *inputs.shape[1:]), dtype=inputs.dtype, device="meta")
        try:
            work = step_work(network, full, optimizer=optimizer)
        except Exception as error:  # any model may be impossible to follow, in any way; the run must not
            return [f"{UNKNOWN_WORK}: it cannot be followed without data ({error_line(error)})"]
        self._known = msgspec.structs.replace(
            self._known, flop_per_step=work.flop, operations_per_step=work.operations, bytes_per_step=work.bytes
        )
        return []

    def learn(self, **facts: Any) -> None:
        """Keep facts that somebody else has measured, by the names that `Measurements` has for them."""
        self._known = msgspec.structs.replace(self._known, **facts)

    def epoch_begins(self) -> None:
        """The epoch's clock is about to start."""
        self._energy_before = None if self._meter is None else self._meter.energy_joules()
        self._sampler.is_training = True

    def epoch_ends(self, epoch: Epoch, record: EpochRecord, *, num_steps: int) -> None:
        """The epoch's clock has stopped, after so many steps in it."""
        self._sampler.is_training = False
        self.has_trained = True
        after = None if self._meter is None else self._meter.energy_joules()
        if after is not None and self._energy_before is not None:
            self._joules[record.epoch] = after - self._energy_before
        if self._known.steps_per_epoch is None and num_steps:
            self._known = msgspec.structs.replace(
                self._known, steps_per_epoch=num_steps, first_batch_seconds=epoch.first_batch_seconds
            )

    def measurements(self) -> Measurements:
        """What is known by now."""
        if not self.has_trained and self._known.peak_host_bytes is not None:  # which every attempt has left
            return self._known
        on_cpu = self._device.type == "cpu"
        gpu = self._sampler.gpu()
        joules = [each for epoch, each in self._joules.items() if epoch not in self.warmup]
        return msgspec.structs.replace(
            self._known,
            peak_allocated_bytes=None if on_cpu else peak_memory_bytes(self._device),
            peak_reserved_bytes=peak_reserved_bytes(self._device),
            peak_host_bytes=peak_host_bytes(),
            gpu_utilization=gpu.utilization,
            gpu_power_watts=gpu.power_watts,
            gpu_energy_joules_per_epoch=median(joules) if joules else None,
            gpu_clock_hertz=gpu.clock_hertz,
            gpu_throttled_share=gpu.throttled_share,
            gpu_others_share=gpu.others_share,
        )

    def peak_memory_bytes(self, record: RunRecord) -> int | None:
        """That of the training, which a process that trains nothing leaves as it stands in the record."""
        known = None if self.has_trained else record.peak_memory_bytes
        return known or peak_memory_bytes(self._device)

    def environment_at_end(self, environment: Environment) -> Environment:
        """The environment, with what the run met in it."""
        met = self._sampler.load()
        return msgspec.structs.replace(
            environment,
            code=self._loaded_later.added_to(environment.code),
            load_at_end=load_average(),
            outside_cpu_share=met.outside_cpu_share,
            steal_share=met.steal_share,
            outside_cpu_share_p90=met.outside_cpu_share_p90,
            steal_share_p90=met.steal_share_p90,
        )


def precision_of(network: torch.nn.Module, device: torch.device, environment: Environment) -> str | None:
    """What the network's products are computed in, by the type of its weights; None where these have several.

    On CUDA devices that have TF32 it is `tf32` where any of the network's products may be rounded to it.
    """
    types = {parameter.dtype for parameter in network.parameters() if parameter.is_floating_point()}
    precision = _PRECISIONS.get(types.pop()) if len(types) == 1 else None
    if precision != "fp32" or device.type != "cuda" or float(environment.compute_capability or 0) < 8:
        return precision
    convolves = any(isinstance(module, _CONVOLUTIONS) for module in network.modules())
    return "tf32" if environment.tf32_matmul or (convolves and environment.tf32_cudnn) else "fp32"


def num_parameters(network: torch.nn.Module) -> int | None:
    """How many the network has, frozen ones too; None while a lazy module does not know its shapes."""
    parameters = list(network.parameters())
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in parameters):
        return None
    return sum(parameter.numel() for parameter in parameters)
