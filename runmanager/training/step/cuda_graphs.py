"""Optimiser steps that are captured once as a CUDA graph and replayed: a step of many small kernels is one launch.

```
warm-up    the first steps run eagerly on a side stream; the last one records whether the host waits for the device
capture    the next step's kernels are recorded, with their own memory
replay     each further batch is copied into the captured step's inputs, and the step is replayed
```

A batch of another shape, such as an epoch's last one, runs eagerly. Host code in a step is captured with its current
values, so the learning rate is moved to a tensor that the device reads in each replay.
Sources: PyTorch's notes on CUDA semantics, "CUDA Graphs" (whole-network capture; graphs with automatic mixed
precision), and the notes on `capturable` in `torch.optim`.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from runmanager.errors import ConfigurationError
from runmanager.tracking.lifecycle.outcome import is_out_of_memory
from runmanager.tracking.options import CAPTURING_DEVICES
from runmanager.tracking.torch_internals import clean_up_failed_capture
from runmanager.training.options.dataset import is_of_torch
from runmanager.training.options.job import AUTO, OutOfMemory, TrainingOptions
from runmanager.validation import fault

StepResult = tuple[Tensor, Tensor]
"""The mean loss of a step, a scalar, and the predictions (batch, classes)."""


class GraphDevice(Protocol):
    """What capturing a step needs from a device."""

    def side_stream(self) -> AbstractContextManager[None]:
        """Run work on a side stream, ordered after earlier and before later work on the current stream."""

    def record_waits(self) -> AbstractContextManager[list[str]]:
        """Collect in a list every operation that makes the host wait for the device."""

    def capture(self, work: Callable[[], StepResult]) -> tuple[Callable[[], None], StepResult]:
        """Record `work` without running it; return a function that replays it, and the tensors that a replay fills."""


def graph_device(options: TrainingOptions, device: torch.device) -> GraphDevice | None:
    """The device interface for capturing steps with these options; None if they run eagerly.

    With `auto`, steps are captured only if the result is certain to be the same: a user-defined model or loss may make
    a new decision in Python in each step, which a captured step does not; pieces that may be halved change the step.
    """
    if not options.graphs or device.type not in CAPTURING_DEVICES:
        return None
    can_change = (
        options.on_oom == OutOfMemory.HALVE or isinstance(options.model, Mapping) or not is_of_torch(options.loss)
    )
    return None if options.graphs == AUTO and can_change else CudaGraphs(device)


class CudaGraphs:
    """`GraphDevice` for CUDA."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)

    @contextmanager
    def record_waits(self) -> Iterator[list[str]]:
        waits: list[str] = []
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield waits
            finally:
                torch.cuda.set_sync_debug_mode(before)
        for each in caught:
            if "called a synchronizing" in str(each.message):
                waits.append(str(each.message))
            elif "prototype feature" not in str(each.message):  # a warning about the debug mode itself
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)

    def capture(self, work: Callable[[], StepResult]) -> tuple[Callable[[], None], StepResult]:
        graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        pool = torch.cuda.graph_pool_handle()
        failures: list[Exception] = []
        try:
            # Restricted to this thread, because a loader's thread may pin memory at the same time.
            with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
                try:
                    result = work()
                except Exception as error:
                    failures.append(error)
                    raise
        except Exception as error:  # ending the failed capture may raise a second, less specific error
            if error not in failures:
                with suppress(Exception):  # without it, steps are still made one by one
                    clean_up_failed_capture(self._device, pool)
            raise (failures or [error])[0] from None
        finally:
            torch.cuda.set_stream(before)  # a failed capture leaves its own stream current
        return graph.replay, result


@dataclass(frozen=True)
class OptimizerStep:
    """A step: `compute_gradients(images, labels)`, then `update()`; whether its gradients are scaled before that."""

    compute_gradients: Callable[[Tensor, Tensor], StepResult]
    update: Callable[[], None]
    optimizer: torch.optim.Optimizer
    is_scaled: bool


class GraphedSteps:
    """Runs optimiser steps on `device`.

    The update is captured too if the optimizer is fused and the gradients are not scaled; otherwise it follows
    each replay. The first `num_warmups` full batches run eagerly. If a step cannot be captured, steps stay eager and
    `notify` is called with the reason; if `required`, `ConfigurationError` or the out-of-memory error is raised.
    """

    def __init__(
        self,
        step: OptimizerStep,
        device: GraphDevice,
        *,
        num_warmups: int,
        required: bool,
        notify: Callable[[str], None],
    ) -> None:
        self._step, self._device = step, device
        self._num_warmups_left = max(1, num_warmups)
        self._captures_update = not step.is_scaled and all(group.get("fused") for group in step.optimizer.param_groups)
        self._required = required
        self._notify = notify
        self._shape: object = None
        self._captured: _Captured | None = None
        self._is_disabled = False

    def step(self, images: Tensor, labels: Tensor) -> StepResult:
        """Take one optimiser step; the result is valid until the next step."""
        if self._is_disabled:
            return self._eager_step(images, labels)
        shape = [(each.shape, each.dtype) for each in (images, labels)]
        self._shape = self._shape or shape
        if shape != self._shape:
            with self._device.side_stream():
                return self._eager_step(images, labels)
        if self._captured is None:
            return self._warm_up_step(images, labels)
        result = self._captured.replay(images, labels)
        if not self._captures_update:
            self._step.update()
        return result

    def _eager_step(self, images: Tensor, labels: Tensor) -> StepResult:
        if self._captured is not None:
            self._captured.has_stale_gradients = True
        result = self._step.compute_gradients(images, labels)
        self._step.update()
        return result

    def _warm_up_step(self, images: Tensor, labels: Tensor) -> StepResult:
        self._num_warmups_left -= 1
        if self._num_warmups_left:
            with self._device.side_stream():
                return self._eager_step(images, labels)
        waits: list[str] = []
        with self._device.side_stream():
            with self._device.record_waits() as gradient_waits:
                result = self._step.compute_gradients(images, labels)
            if self._captures_update:
                with self._device.record_waits() as update_waits:
                    self._step.update()
                waits += update_waits
            else:
                self._step.update()
        waits += gradient_waits
        if waits:
            self._disable(f"the host waits for the device in it ({waits[0].splitlines()[0]})", None)
            return result
        self._capture(images, labels)  # already here, so that it is done before the first epoch ends
        return result

    def _capture(self, images: Tensor, labels: Tensor) -> None:
        captured = _Captured(self._step.optimizer, images, labels)

        def work() -> StepResult:
            result = self._step.compute_gradients(captured.images, captured.labels)
            if self._captures_update:
                self._step.update()
            return result

        try:
            with captured.learning_rates_on_device():
                captured.set_graph(*self._device.capture(work))
        except Exception as error:  # a model may raise anything while it is captured
            if self._required and is_out_of_memory(error):
                raise
            self._step.optimizer.zero_grad()
            self._disable((str(error).strip().splitlines() or [type(error).__name__])[0], error)
            return
        self._captured = captured

    def _disable(self, reason: str, error: Exception | None) -> None:
        self._is_disabled = True
        if self._required:
            way_out = f"its step cannot be captured: {reason}"
            raise ConfigurationError([fault("graphs", "be auto or false for this model", "true", way_out)]) from error
        self._notify(f"graphs: steps are not replayed, since a step cannot be captured: {reason}")


class _Captured:
    """A captured step and the tensors that it reads and writes."""

    def __init__(self, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images.clone(), labels.clone()
        self.has_stale_gradients = False
        self._groups = optimizer.param_groups
        self._parameters = [parameter for group in self._groups for parameter in group["params"]]
        self._gradients = [parameter.grad for parameter in self._parameters]
        self._host_rates = [float(group["lr"]) for group in self._groups]
        self._device_rates = [
            torch.tensor(rate, dtype=torch.float32, device=images.device) for rate in self._host_rates
        ]
        self._replay: Callable[[], None] = lambda: None
        self._result: StepResult | None = None

    @contextmanager
    def learning_rates_on_device(self) -> Iterator[None]:
        """Let the optimiser read its learning rates from the device, and mark it as capturable."""
        names = ("lr", "capturable")
        before: list[dict[str, Any]] = [{key: group[key] for key in names if key in group} for group in self._groups]
        for group, rate in zip(self._groups, self._device_rates, strict=True):
            group["lr"] = rate
            if "capturable" in group:
                group["capturable"] = True
        try:
            yield
        finally:
            for group, values in zip(self._groups, before, strict=True):
                group.update(values)

    def set_graph(self, replay: Callable[[], None], result: StepResult) -> None:
        """Store the captured graph; copy the last step's gradients to the new tensors, as nothing was replayed yet."""
        self._replay, self._result = replay, result
        earlier, self._gradients = self._gradients, [parameter.grad for parameter in self._parameters]
        for target, gradient in zip(self._gradients, earlier, strict=True):
            if target is not None and gradient is not None:
                target.copy_(gradient)

    def replay(self, images: Tensor, labels: Tensor) -> StepResult:
        """Replay the step for this batch, with the current learning rates."""
        assert self._result is not None
        if self.has_stale_gradients:
            for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
                parameter.grad = gradient  # the tensor that the captured step writes
            self.has_stale_gradients = False
        self.images.copy_(images)
        self.labels.copy_(labels)
        for index, group in enumerate(self._groups):
            if group["lr"] != self._host_rates[index]:
                self._host_rates[index] = float(group["lr"])
                self._device_rates[index].fill_(self._host_rates[index])
        self._replay()
        return self._result
