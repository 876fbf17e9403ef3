"""Optimiser steps that are captured once and replayed: a step of many small kernels then costs one launch.

```
the first steps    made as ever, on a second stream; the last of them is watched: does the host wait for the device?
then               the step is captured: what it asks of the device is written down, on memory of its own
from there on      a batch is copied to where the captured step reads it, and the step is replayed
```

A batch of another shape, as the last of an epoch may be, is made as ever. What the host does in a step is captured
with the values that it has at the time; so the learning rate is put where the device can read it anew each time.
Sources: PyTorch's notes on CUDA semantics, "CUDA Graphs" (whole-network capture; graphs with automatic mixed
precision), and the notes on `capturable` in `torch.optim`.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol

import torch
from torch import Tensor

from runmanager.errors import ConfigurationError
from runmanager.tracking.lifecycle.outcome import is_out_of_memory
from runmanager.tracking.options import CAPTURING_DEVICES
from runmanager.tracking.torch_internals import clean_up_failed_capture
from runmanager.training.options.job import TrainingOptions
from runmanager.training.options.step import AUTO, OutOfMemory
from runmanager.validation import fault

__all__ = ["CudaGraphs", "GraphDevice", "GraphedSteps", "graph_device"]

Made = tuple[Tensor, Tensor]
"""What a step returns: its mean loss, a scalar, and the predictions (batch, classes)."""


class GraphDevice(Protocol):
    """What capturing needs of a device."""

    def beside(self) -> AbstractContextManager[None]:
        """Work on a second stream, after all that was asked for before and before all that is asked for later."""

    def watched(self) -> AbstractContextManager[list[str]]:
        """The list is filled with what the work in it did that made the host wait for the device."""

    def capture(self, work: Callable[[], Made]) -> tuple[Callable[[], None], Made]:
        """Write `work` down without doing it: what does it each time, and the tensors that it then fills."""


def graph_device(options: TrainingOptions, device: torch.device) -> GraphDevice | None:
    """What captures the steps of a run with these options on `device`; None where they are made as ever.

    Under `auto` only where it is sure to compute the same: somebody's own model may decide something in Python anew
    each step, which a captured one does not, and pieces that may be halved make another step.
    """
    if not options.graphs or device.type not in CAPTURING_DEVICES:
        return None
    changes = options.on_oom == OutOfMemory.HALVE or options.micro_batch == AUTO or isinstance(options.model, Mapping)
    return None if options.graphs == AUTO and changes else CudaGraphs(device)


class CudaGraphs:
    """A CUDA device as a `GraphDevice`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    @contextmanager
    def beside(self) -> Iterator[None]:
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)

    @contextmanager
    def watched(self) -> Iterator[list[str]]:
        waits: list[str] = []
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield waits
            finally:
                torch.cuda.set_sync_debug_mode(before)
        for each in said:
            if "called a synchronizing" in str(each.message):
                waits.append(str(each.message))
            elif "prototype feature" not in str(each.message):  # said of this watching itself
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)

    def capture(self, work: Callable[[], Made]) -> tuple[Callable[[], None], Made]:
        graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        pool = torch.cuda.graph_pool_handle()
        failures: list[Exception] = []
        try:
            # Of this thread alone: a loader's thread may pin memory meanwhile.
            with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
                try:
                    made = work()
                except Exception as error:
                    failures.append(error)
                    raise
        except Exception as error:  # to end such a capture may fail too, and says less of why
            if error not in failures:
                with suppress(Exception):  # without it, steps are still made one by one
                    clean_up_failed_capture(self._device, pool)
            raise (failures or [error])[0] from None
        finally:
            torch.cuda.set_stream(before)  # a capture that fails leaves its own stream the current one
        return graph.replay, made


class GraphedSteps:
    """Makes steps on `device`: `learn` fills the gradients from a batch (images, labels), `update` uses them.

    The update is captured too where `optimizer` is fused and nothing scales the gradients; else it follows each replay.
    The first `num_warmups` full batches are steps as ever. With `must` a step that cannot be captured raises
    `ConfigurationError`, one for which the memory does not suffice what says so; else it stays as it was, and `tell`
    hears of it.
    """

    def __init__(
        self,
        learn: Callable[[Tensor, Tensor], Made],
        update: Callable[[], None],
        optimizer: torch.optim.Optimizer,
        device: GraphDevice,
        *,
        num_warmups: int,
        is_scaled: bool,
        must: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._learn, self._update, self._optimizer, self._device = learn, update, optimizer, device
        self._left = max(1, num_warmups)
        self._updates = not is_scaled and all(group.get("fused") for group in optimizer.param_groups)
        self._must = must
        self._tell = tell
        self._shape: object = None
        self._captured: _Captured | None = None
        self._is_given_up = False

    def step(self, images: Tensor, labels: Tensor) -> Made:
        """One optimiser step. The predictions are good until the next one."""
        if self._is_given_up:
            return self._made_as_ever(images, labels)
        shape = [(each.shape, each.dtype) for each in (images, labels)]
        self._shape = self._shape or shape
        if shape != self._shape:
            with self._device.beside():
                return self._made_as_ever(images, labels)
        if self._captured is None:
            return self._warmed_up(images, labels)
        made = self._captured.replay(images, labels)
        if not self._updates:
            self._update()
        return made

    def _made_as_ever(self, images: Tensor, labels: Tensor) -> Made:
        if self._captured is not None:
            self._captured.is_overtaken = True
        made = self._learn(images, labels)
        self._update()
        return made

    def _warmed_up(self, images: Tensor, labels: Tensor) -> Made:
        self._left -= 1
        if self._left:
            with self._device.beside():
                return self._made_as_ever(images, labels)
        waits: list[str] = []
        with self._device.beside():
            with self._device.watched() as of_learning:
                made = self._learn(images, labels)
            if self._updates:
                with self._device.watched() as of_updating:
                    self._update()
                waits += of_updating
            else:
                self._update()
        waits += of_learning
        if waits:
            self._give_up(f"the host waits for the device in it ({waits[0].splitlines()[0]})", None)
            return made
        loss, preds = made
        self._capture(images, labels)  # here, so that it is over before the first epoch is
        return loss, preds

    def _capture(self, images: Tensor, labels: Tensor) -> None:
        captured = _Captured(self._optimizer, images, labels)

        def work() -> Made:
            made = self._learn(captured.images, captured.labels)
            if self._updates:
                self._update()
            return made

        try:
            with captured.rates_on_device():
                captured.take(*self._device.capture(work))
        except Exception as error:  # whatever a model does that cannot be captured
            if self._must and is_out_of_memory(error):
                raise
            self._optimizer.zero_grad()
            self._give_up((str(error).strip().splitlines() or [type(error).__name__])[0], error)
            return
        self._captured = captured

    def _give_up(self, why: str, error: Exception | None) -> None:
        self._is_given_up = True
        if self._must:
            way_out = f"its step cannot be captured: {why}"
            raise ConfigurationError([fault("graphs", "be auto or false for this model", "true", way_out)]) from error
        self._tell(f"graphs: steps are not replayed, since a step cannot be captured: {why}")


class _Captured:
    """A captured step, and the memory that it works on."""

    def __init__(self, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images.clone(), labels.clone()
        self.is_overtaken = False
        self._groups = optimizer.param_groups
        self._parameters = [parameter for group in self._groups for parameter in group["params"]]
        self._gradients = [parameter.grad for parameter in self._parameters]
        self._known = [float(group["lr"]) for group in self._groups]
        self._rates = [torch.tensor(rate, dtype=torch.float32, device=images.device) for rate in self._known]
        self._replay: Callable[[], None] = lambda: None
        self._made: Made | None = None

    @contextmanager
    def rates_on_device(self) -> Iterator[None]:
        """The optimiser reads its learning rates from the device, and takes itself for one that can be captured."""
        names = ("lr", "capturable")
        before: list[dict[str, Any]] = [{key: group[key] for key in names if key in group} for group in self._groups]
        for group, rate in zip(self._groups, self._rates, strict=True):
            group["lr"] = rate
            if "capturable" in group:
                group["capturable"] = True
        try:
            yield
        finally:
            for group, values in zip(self._groups, before, strict=True):
                group.update(values)

    def take(self, replay: Callable[[], None], made: Made) -> None:
        """What a device made of it. The gradients' new places get those of the step before: nothing was done yet."""
        self._replay, self._made = replay, made
        earlier, self._gradients = self._gradients, [parameter.grad for parameter in self._parameters]
        for place, gradient in zip(self._gradients, earlier, strict=True):
            if place is not None and gradient is not None:
                place.copy_(gradient)

    def replay(self, images: Tensor, labels: Tensor) -> Made:
        """The step for this batch, at the learning rates of now."""
        assert self._made is not None
        if self.is_overtaken:
            for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
                parameter.grad = gradient  # where this step puts them, and whoever looks at them will look
            self.is_overtaken = False
        self.images.copy_(images)
        self.labels.copy_(labels)
        for place, group in enumerate(self._groups):
            if group["lr"] != self._known[place]:
                self._known[place] = float(group["lr"])
                self._rates[place].fill_(self._known[place])
        self._replay()
        loss, preds = self._made
        return loss.clone(), preds  # a loss may be kept beyond the step, to be logged
