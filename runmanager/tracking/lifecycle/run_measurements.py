"""Measurements of a run other than its epochs' times: work, memory, energy and outside load."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import torch
from torch.utils.data import DataLoader, IterableDataset

from runmanager.records.run.run_record import DeviceReadings, Environment, Measurements, RunRecord
from runmanager.tracking.device.devices import (
    device_facts,
    devices_in_use,
    is_same_device,
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
from runmanager.tracking.monitoring.device_meter import open_meter
from runmanager.tracking.monitoring.resource_sampler import ResourceSampler
from runmanager.tracking.options import StepObserver
from runmanager.tracking.step_interval import StepInterval
from runmanager.tracking.torch_internals import compilation_seconds

_PRECISIONS = {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.float16: "fp16"}
_AND = " and "
_BY_CUDNN = (torch.nn.modules.conv._ConvNd, torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)  # transposed ones too


class _Peaks(NamedTuple):
    """Peaks of memory in bytes; `device` is that of the device, or of the process on the CPU."""

    device: int | None
    allocated: int | None
    reserved: int | None
    host: int | None


def _larger(one: int | None, other: int | None) -> int | None:
    return max(filter(None, (one, other)), default=None)


class RunMeasurements:
    """The measurements of one run. Holds no reference to the run, so that a thread may hold this object.

    ```
    begin              known ceilings, precision of the weights; resets the peak memory
    reset_peak_memory  again after the sinks have begun, as drawing the graph may copy the model
    epoch_begins       reads the device's energy; sampling of its meters begins, and calls are observed
    epoch_ends         readings, steps, time to the first batch; the work of the observed steps
    finish             stops observing
    ```

    A process that trains no epoch, but only repeats the measured turns, leaves the measurements as they were. Nothing
    here runs on an epoch's clock. The load of process `family` and its children is not outside load (None: that of this
    process). `is_built_in` and `flop_per_sample` are as in `RunOptions`.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        family: int | None = None,
        is_built_in: bool = False,
        flop_per_sample: float | None = None,
    ) -> None:
        self._device = self._described = device
        self._work = None if is_built_in else StepWork(flop_per_sample)
        self._refine_precision: Callable[[torch.dtype], str | None] | None = None
        self._loaded_later = LateImports(is_built_in=is_built_in)
        self._is_shared = family is not None
        self._meter = open_meter(device, is_shared=self._is_shared)
        self._sampler = ResourceSampler(family=family)
        self._known = Measurements()
        self._compiled_before, self._has_compiled = compilation_seconds(), False
        self._expects_steps = False
        self._peaks: _Peaks | None = None  # of training, before what was left out
        self._trains_on = False  # since then
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

    def use(self, device: torch.device) -> None:
        """Measure `device` from here on."""
        self._device = device
        self._meter = open_meter(device, is_shared=self._is_shared)

    def reset_peak_memory(self) -> None:
        """Reset the device's peak memory: training follows."""
        reset_peak_memory(self._device)

    def clock_hertz(self) -> float | None:
        """Return the device's present clock; None if unknown."""
        return None if self._meter is None else self._meter.read(frozenset()).clock_hertz

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

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Leave the memory and the calls of a `with` block out of what is measured."""
        self._peaks = self._peaks_of_training()
        self._trains_on = False
        with self.unobserved():
            yield
        self.reset_peak_memory()

    def _peaks_of_training(self) -> "_Peaks":
        if self._peaks is not None and not self._trains_on:
            return self._peaks
        on_cpu = self._device.type == "cpu"
        now = _Peaks(
            peak_memory(self._device),
            None if on_cpu else peak_memory(self._device),
            peak_reserved_bytes(self._device),
            peak_host_bytes(),
        )
        return now if self._peaks is None else _Peaks(*map(_larger, self._peaks, now))

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
        self._trains_on = True
        if self._work is not None and trains:
            self._work.observe()
        self._sampler.epoch_begins(self._meter)

    def observer(self, epoch: Epoch, *, continues: bool = False) -> StepObserver | None:
        """Return the observer of the steps of `epoch`; None if nothing needs them.

        An epoch that `continues` another one has the calls since the last tracked step.
        """
        if self._work is None or self._work.recorder.is_finished:
            return None
        self._work.epoch_begins(epoch, continues=continues)
        return self._work.recorder

    def readings(self) -> DeviceReadings | msgspec.UnsetType:
        """Return what the device's meters say of the epoch whose clock has stopped, once."""
        found = self._sampler.epoch_ends()
        if found is not None and len(devices_in_use()) > 1:  # one was read
            found = msgspec.structs.replace(found, joules=None, seconds=None, counter_steps=None)
        return msgspec.UNSET if found in (None, DeviceReadings()) else found

    def epoch_ends(self, epoch: Epoch, *, num_steps: int) -> Sequence[str]:
        """Measure an epoch of `num_steps` steps whose clock has stopped; return notes on the work of a step."""
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
        peaks = self._peaks_of_training()
        return msgspec.structs.replace(
            self._known,
            peak_allocated_bytes=peaks.allocated,
            peak_reserved_bytes=peaks.reserved,
            peak_host_bytes=peaks.host,
        )

    def peak_memory(self, record: RunRecord) -> int | None:
        """Return the peak memory of training; that of `record` in a process that has trained no epoch."""
        known = None if self.has_trained else record.peak_memory_bytes
        return known or self._peaks_of_training().device

    def environment_at_end(self, environment: Environment) -> Environment:
        """Return the environment with the load at the end, and with the device and code that were used later."""
        load = self._sampler.cpu()
        if not is_same_device(self._device, self._described):
            facts = device_facts(self._device, cpu_model=environment.cpu_model)
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

    None if its weights have several types. On NVIDIA's devices with TF32 it is `tf32` if any of the network's products
    may be rounded to TF32; AMD's, which PyTorch calls cuda too, have other capabilities under the same numbers.
    """
    weights = {parameter.dtype for parameter in network.parameters() if parameter.is_floating_point()}
    types = weights if found is None else {found}
    precision = _PRECISIONS.get(types.pop()) if len(types) == 1 else None
    has_tf32 = device.type == "cuda" and environment.cuda and float(environment.compute_capability or 0) >= 8
    if precision != "fp32" or not has_tf32:
        return precision
    by_cudnn = environment.tf32_cudnn and any(isinstance(module, _BY_CUDNN) for module in network.modules())
    return "tf32" if environment.tf32_matmul or by_cudnn else "fp32"
