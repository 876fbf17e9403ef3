"""Measurements of a run other than its epochs' times: work, memory, energy and outside load."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import msgspec
import torch
from torch.utils.data import DataLoader, IterableDataset

from runmanager.records.run.run_record import Environment, EpochRecord, Measurements, RunRecord
from runmanager.tracking.device.devices import (
    device_facts,
    peak_host_bytes,
    peak_memory,
    peak_reserved_bytes,
    reset_peak_memory,
)
from runmanager.tracking.environment.code_hashes import LateImports
from runmanager.tracking.environment.environment import find_peaks, load_average
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.introspect.call_recorder import NetworkCall
from runmanager.tracking.introspect.isolation import looking
from runmanager.tracking.lifecycle.step_work import StepWork
from runmanager.tracking.monitoring.resource_sampler import ResourceSampler, open_gpu_meter
from runmanager.tracking.options import StepObserver
from runmanager.tracking.step_interval import StepInterval
from runmanager.tracking.torch_internals import compilation_seconds

_PRECISIONS = {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.float16: "fp16"}
_AND = " and "
_CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)


class RunMeasurements:
    """The measurements of one run. Holds no reference to the run, so that a thread may hold this object.

    ```
    begin              known ceilings, precision of the weights; resets the peak memory
    reset_peak_memory  again after the sinks have begun, as drawing the graph may copy the model
    epoch_begins       reads the accelerator's energy; sampling of its meters begins, and calls are observed
    epoch_ends         energy, steps, time to the first batch; the work of the observed steps
    finish             stops observing
    ```

    `warmup` holds the numbers of this process's warm-up epochs, which do not count. A process that trains no epoch, but
    only repeats the measured turns, leaves the measurements as they were. Nothing here runs on an epoch's clock.
    The load of process `family` and its children is not outside load (None: that of this process). `is_built_in` and
    `flop_per_sample` are as in `RunOptions`.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        family: int | None = None,
        is_built_in: bool = False,
        flop_per_sample: float | None = None,
    ) -> None:
        self._device = device
        self._work = None if is_built_in else StepWork(flop_per_sample)
        self._refine_precision: Callable[[torch.dtype], str | None] | None = None
        self._loaded_later = LateImports(is_built_in=is_built_in)
        self._meter = open_gpu_meter(device, is_shared=family is not None)
        self._sampler = ResourceSampler(self._meter, family=family)
        self._known = Measurements()
        self._compiled_before, self._has_compiled = compilation_seconds(), False
        self._expects_steps = False
        self._energy_before: float | None = None
        self._joules: dict[int, float] = {}
        self.warmup: Sequence[int] = ()
        self.has_trained = False
        self.sample = self._sampler.sample

    def begin(
        self,
        network: torch.nn.Module | None,
        record: RunRecord,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        precision: str | None = None,
    ) -> None:
        """Begin with a network on its device, if any, from the measurements that an earlier attempt left in `record`.

        `precision` is the type that its products are computed in, if the run should not find it out.
        """
        environment = record.environment
        self._known = msgspec.structs.replace(
            record.measurements,
            precision=precision or (precision_of(network, self._device, environment) if network is not None else None),
            ceilings=find_peaks(self._device, environment),
        )
        if self._work is not None and network is not None:
            self._work.begin(network, optimizer)
            if precision is None:
                self._refine_precision = lambda found: precision_of(network, self._device, environment, found)
        self.reset_peak_memory()

    def reset_peak_memory(self) -> None:
        """Reset the device's peak memory: training follows."""
        reset_peak_memory(self._device)

    @contextmanager
    def unobserved(self) -> Iterator[None]:
        """Remove the hooks on the network for a `with` block that copies it or calls copies."""
        recorder = None if self._work is None else self._work.recorder
        was_observed = recorder is not None and recorder.is_installed
        if recorder is not None:
            recorder.remove()
        try:
            yield
        finally:
            if was_observed and self._work is not None:
                self._work.observe()

    def add(self, **measurements: Any) -> None:
        """Add values measured elsewhere, by the field names of `Measurements`."""
        self._known = msgspec.structs.replace(self._known, **measurements)
        if "compile_seconds" in measurements:
            self._compiled_before, self._has_compiled = compilation_seconds(), True

    def expect_steps(self, loader: Any) -> None:
        """Take the length of a loader for the steps of an epoch until the first epoch has shown them.

        Readers of the record then see how far that epoch is.
        """
        if isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset):
            return  # which would be held against the length, and warned of
        with looking([]):  # it may have no length, or be of any other kind
            if self._known.first_batch_seconds is None and (count := len(loader)):
                self._known = msgspec.structs.replace(self._known, steps_per_epoch=count)
                self._expects_steps = True

    def epoch_begins(self, *, trains: bool = True) -> None:
        """Prepare for an epoch whose clock is about to start; unless it `trains`, its calls are not observed."""
        if self._work is not None and trains:
            self._work.observe()
        self._energy_before = None if self._meter is None else self._meter.energy_joules()
        self._sampler.is_training = True

    def observer(self, epoch: Epoch, *, continues: bool = False) -> StepObserver | None:
        """Return the observer of the steps of `epoch`; None if nothing needs them.

        An epoch that `continues` another one has the calls since the last tracked step.
        """
        if self._work is None or self._work.recorder.is_finished:
            return None
        self._work.epoch_begins(epoch, continues=continues)
        return self._work.recorder

    def epoch_ends(self, epoch: Epoch, record: EpochRecord, *, num_steps: int) -> Sequence[str]:
        """Measure an epoch of `num_steps` steps whose clock has stopped; return notes on the work of a step."""
        self._sampler.is_training = False
        self.has_trained = True
        compiled = compilation_seconds()
        if compiled < self._compiled_before:  # by `torch.compiler.reset`
            self._compiled_before = 0.0
        if seconds := compiled - self._compiled_before:
            before = self._known.compile_seconds if self._has_compiled else None  # else an earlier attempt's
            self.add(compile_seconds=(before or 0.0) + seconds)
        if epoch.worker_start_methods:
            seen = {*epoch.worker_start_methods, *filter(None, (self._known.worker_start_method or "").split(_AND))}
            self.add(worker_start_method=_AND.join(sorted(seen)))
        after = None if self._meter is None else self._meter.energy_joules()
        if after is not None and self._energy_before is not None:
            self._joules[record.epoch] = after - self._energy_before
        if (self._known.steps_per_epoch is None or self._expects_steps) and num_steps:
            self._expects_steps = False
            self._known = msgspec.structs.replace(
                self._known, steps_per_epoch=num_steps, first_batch_seconds=epoch.first_batch_seconds
            )
        if self._work is None:
            return ()
        notes = self._work.epoch_ends(is_continued=isinstance(epoch, StepInterval))
        return self._with_work(self._work, notes)

    @property
    def first_call(self) -> NetworkCall | None:
        """The first call of the network that was seen (see `StepWork.first_call`)."""
        return None if self._work is None else self._work.first_call

    def finish(self) -> Sequence[str]:
        """Stop observing the network, which loses its hooks; return notes on the work of a step."""
        if self._work is None:
            return ()
        self._work.recorder.remove()
        return self._with_work(self._work, self._work.finish())

    def _with_work(self, work: StepWork, notes: Sequence[str]) -> Sequence[str]:
        self._known = msgspec.structs.replace(self._known, **work.counts)
        if self._refine_precision is not None and work.recorder.weights_by_type:
            found = work.type_of_products
            precision = None if found is None else self._refine_precision(found)
            self._known = msgspec.structs.replace(self._known, precision=precision)
        return notes

    def measurements(self) -> Measurements:
        """Return the measurements so far."""
        if not self.has_trained and self._known.peak_host_bytes is not None:  # which every attempt records
            return self._known
        on_cpu = self._device.type == "cpu"
        gpu = self._sampler.gpu()
        joules = [each for epoch, each in self._joules.items() if epoch not in self.warmup]
        return msgspec.structs.replace(
            self._known,
            peak_allocated_bytes=None if on_cpu else peak_memory(self._device),
            peak_reserved_bytes=peak_reserved_bytes(self._device),
            peak_host_bytes=peak_host_bytes(),
            gpu_utilization=gpu.utilization,
            gpu_power_watts=gpu.power_watts,
            gpu_energy_joules_per_epoch=median(joules) if joules else None,
            gpu_clock_hertz=gpu.clock_hertz,
            gpu_throttled_share=gpu.throttled_share,
            gpu_others_share=gpu.others_share,
        )

    def peak_memory(self, record: RunRecord) -> int | None:
        """Return the peak memory of training; that of `record` in a process that has trained no epoch."""
        known = None if self.has_trained else record.peak_memory_bytes
        return known or peak_memory(self._device)

    def environment_at_end(self, environment: Environment, *, device: torch.device | None = None) -> Environment:
        """Return the environment with the load at the end and code that was loaded later.

        `device` is the one in use by then, where it could not be known at the start.
        """
        load = self._sampler.cpu()
        if device is not None and device.type != self._device.type:
            facts = device_facts(device, cpu_model=environment.cpu_model)
            environment = msgspec.structs.replace(environment, **facts)
        return msgspec.structs.replace(
            environment,
            code=self._loaded_later.added_to(environment.code),
            load_at_end=load_average(),
            outside_cpu_share=load.outside_cpu_share,
            steal_share=load.steal_share,
            outside_cpu_share_p90=load.outside_cpu_share_p90,
            steal_share_p90=load.steal_share_p90,
        )


def precision_of(
    network: torch.nn.Module, device: torch.device, environment: Environment, found: torch.dtype | None = None
) -> str | None:
    """Return the type that the network's products are computed in: that which was `found`, else that of its weights.

    None if its weights have several types. On CUDA devices with TF32 it is `tf32` if any of the network's products may
    be rounded to TF32.
    """
    weights = {parameter.dtype for parameter in network.parameters() if parameter.is_floating_point()}
    types = weights if found is None else {found}
    precision = _PRECISIONS.get(types.pop()) if len(types) == 1 else None
    if precision != "fp32" or device.type != "cuda" or float(environment.compute_capability or 0) < 8:
        return precision
    convolves = any(isinstance(module, _CONVOLUTIONS) for module in network.modules())
    return "tf32" if environment.tf32_matmul or (convolves and environment.tf32_cudnn) else "fp32"
