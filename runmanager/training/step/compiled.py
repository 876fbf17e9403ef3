"""Compilation of a network's forward and backward pass before the first epoch, outside the epoch times."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from runmanager.errors import ConfigurationError
from runmanager.tracking.device.devices import preserve_random_states, synchronize
from runmanager.tracking.device.transfer import to_device
from runmanager.tracking.lifecycle.outcome import is_out_of_memory
from runmanager.training.loading.loaders import EpochLoader
from runmanager.validation import fault

GradientFunction = Callable[[Tensor, Tensor], Any]
"""Computes the gradients of a batch (images, labels): a forward and a backward pass."""


class CompiledNetwork:
    """Runs `network` compiled in training and uncompiled in evaluation, with the same weights.

    `compile_for` compiles for the pieces of a full batch. The last, smaller batch of an epoch runs uncompiled, because
    code for another shape would take as long to compile. Any other shape in training is compiled when it occurs, and
    `notify` is called with a line.
    """

    def __init__(self, network: torch.nn.Module, *, notify: Callable[[str], None], backend: str = "inductor") -> None:
        self._network = network
        self._compiled: Callable[[Tensor], Tensor] = torch.compile(network, dynamic=False, backend=backend)
        self._notify = notify
        self._is_compiled: dict[object, bool] = {}  # by shape and type
        self._compiles: bool | None = None  # set while `compile_for` runs

    def __call__(self, images: Tensor) -> Tensor:
        if not (self._network.training and torch.is_grad_enabled()):
            return self._run_uncompiled(images)
        key = (images.shape, images.dtype)
        if key not in self._is_compiled:
            if self._compiles is None:
                self._notify(f"compile: compiled again during an epoch, for images of shape {tuple(images.shape)}")
            self._is_compiled[key] = self._compiles is not False
        return self._compiled(images) if self._is_compiled[key] else self._run_uncompiled(images)

    def _run_uncompiled(self, images: Tensor) -> Tensor:
        preds: Tensor = self._network(images)
        return preds

    def compile_for(self, compute_gradients: GradientFunction, loader: EpochLoader, *, device: torch.device) -> float:
        """Compile for the full batches of `loader` on `device`; return the seconds that compiling took.

        `compute_gradients` uses this network; its side effects are undone. The compile time is the difference between
        the first and the second call. Raises `ConfigurationError` if the network cannot be compiled here; errors of an
        uncompiled pass are not caught.
        """
        images, labels = _full_batch(loader, device)
        last = loader.num_samples % len(images)
        with _training_mode_then_restored(self._network):
            self._timed(compute_gradients, images, labels, compiles=False)  # raises errors of the network itself
            if last:
                self._timed(compute_gradients, images[:last], labels[:last], compiles=False)
            uncompiled = self._is_compiled
            self._is_compiled = {}
            try:
                first, second = (self._timed(compute_gradients, images, labels, compiles=True) for _ in range(2))
            except Exception as error:  # compilers may raise anything; the uncompiled pass succeeded
                if is_out_of_memory(error):
                    raise
                raise ConfigurationError([_compiler_fault(error)]) from error
        self._is_compiled = uncompiled | self._is_compiled
        return max(0.0, first - second)

    def _timed(self, compute_gradients: GradientFunction, images: Tensor, labels: Tensor, *, compiles: bool) -> float:
        """Compute gradients once; return the seconds."""
        self._compiles = compiles
        synchronize(images.device)
        began = time.perf_counter()
        try:
            compute_gradients(images, labels)
        finally:
            self._compiles = None
        synchronize(images.device)
        return time.perf_counter() - began


def _full_batch(loader: EpochLoader, device: torch.device) -> tuple[Tensor, Tensor]:
    """A batch of the size of the loader's full ones: its first sample, repeated."""
    size = min(loader.batch_size, loader.num_samples)
    images, labels = to_device(loader.first_samples(1), device)
    return images.expand(size, *images.shape[1:]).contiguous(), labels.expand(size, *labels.shape[1:]).contiguous()


@contextmanager
def _training_mode_then_restored(network: torch.nn.Module) -> Iterator[None]:
    """Set training mode; at the end restore modes, buffers, gradients and random states."""
    modes = [(module, module.training) for module in network.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in network.parameters()]
    network.zero_grad()
    network.train()
    try:
        with preserve_random_states():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def _compiler_fault(error: Exception) -> str:
    cause = getattr(error, "inner_exception", error)  # the wrapped error is more specific
    reason = " ".join([f"{type(cause).__name__}:", *str(cause).strip().splitlines()[:1]])
    return fault("compile", "be false for this model on this machine", "true", f"torch.compile reports: {reason}")


def compiler_faults() -> list[str]:
    """Check that PyTorch can compile for a CPU here: it needs a C++ compiler, which `CXX` may name."""
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler):
        return []
    way_out = "install it, or name another one in the environment variable CXX"
    return [fault("compile", f"be false without a C++ compiler ({compiler})", "true", way_out)]
