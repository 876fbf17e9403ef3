"""A network's forward and backward pass, compiled before the first epoch so that no epoch pays for it."""

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
from runmanager.tracking.device.devices import synchronize
from runmanager.tracking.device.rng import preserve_random_states
from runmanager.tracking.device.transfer import to_device
from runmanager.tracking.lifecycle.outcome import is_out_of_memory
from runmanager.training.loading.loaders import EpochLoader
from runmanager.validation import fault

__all__ = ["CompiledNetwork", "compiler_faults"]

Pass = Callable[[Tensor, Tensor], Any]
"""A forward and a backward pass of a batch (images, labels), which leaves gradients."""


class CompiledNetwork:
    """Computes what `network` does, whose weights it shares: in training by compiled code, in evaluation plainly.

    `rehearse` compiles for the pieces that a full batch is done in. The last, smaller batch of an epoch is done
    plainly: code for another shape would cost as much time again. What else comes in training is compiled when it
    comes, and `tell` hears of it.
    """

    def __init__(self, network: torch.nn.Module, *, tell: Callable[[str], None], backend: str = "inductor") -> None:
        self._network = network
        self._compiled: Callable[[Tensor], Tensor] = torch.compile(network, dynamic=False, backend=backend)
        self._tell = tell
        self._is_compiled: dict[object, bool] = {}  # by shape and type
        self._compiles: bool | None = None  # while it is rehearsing

    def __call__(self, images: Tensor) -> Tensor:
        if not (self._network.training and torch.is_grad_enabled()):
            return self._plainly(images)
        kind = (images.shape, images.dtype)
        if kind not in self._is_compiled:
            if self._compiles is None:
                self._tell(f"compile: compiled anew in an epoch, for images of shape {tuple(images.shape)}")
            self._is_compiled[kind] = self._compiles is not False
        return self._compiled(images) if self._is_compiled[kind] else self._plainly(images)

    def _plainly(self, images: Tensor) -> Tensor:
        preds: Tensor = self._network(images)
        return preds

    def rehearse(self, passes: Pass, loader: EpochLoader, *, device: torch.device) -> float:
        """Compile for the full batches of `loader` on `device`; return the seconds that it took.

        `passes` is made with this network; nothing of it stays. What the first time takes longer than the second is
        compiling. Raises `ConfigurationError` for a network that cannot be compiled here, and what a plain pass raises.
        """
        images, labels = _full_batch(loader, device)
        last = loader.num_samples % len(images)
        with _unnoticed(self._network):
            self._pass(passes, images, labels, compiles=False)  # a fault of the network's own is to be said as ever
            if last:
                self._pass(passes, images[:last], labels[:last], compiles=False)
            plain = self._is_compiled
            self._is_compiled = {}
            try:
                first, second = (self._pass(passes, images, labels, compiles=True) for _ in range(2))
            except Exception as error:  # compilers raise what they like; a plain pass went well
                if is_out_of_memory(error):
                    raise
                raise ConfigurationError([_said(error)]) from error
        self._is_compiled = plain | self._is_compiled
        return max(0.0, first - second)

    def _pass(self, passes: Pass, images: Tensor, labels: Tensor, *, compiles: bool) -> float:
        self._compiles = compiles
        synchronize(images.device)
        began = time.perf_counter()
        try:
            passes(images, labels)
        finally:
            self._compiles = None
        synchronize(images.device)
        return time.perf_counter() - began


def _full_batch(loader: EpochLoader, device: torch.device) -> tuple[Tensor, Tensor]:
    """A batch like the loader's full ones: its first sample, again and again."""
    size = min(loader.batch_size, loader.num_samples)
    images, labels = to_device(loader.first_samples(1), device)
    return images.expand(size, *images.shape[1:]).contiguous(), labels.expand(size).contiguous()


@contextmanager
def _unnoticed(network: torch.nn.Module) -> Iterator[None]:
    """In training mode; afterwards modes, buffers, gradients and random states are as they were."""
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


def _said(error: Exception) -> str:
    cause = getattr(error, "inner_exception", error)  # what torch.compile wraps says more than its wrapping
    why = " ".join([f"{type(cause).__name__}:", *str(cause).strip().splitlines()[:1]])
    return fault("compile", "be false for this model on this machine", "true", f"torch.compile says: {why}")


def compiler_faults() -> list[str]:
    """What keeps PyTorch from compiling for a CPU here: it needs a C++ compiler, which `CXX` may name."""
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler):
        return []
    way_out = "install it, or let the environment variable CXX name another"
    return [fault("compile", f"be false where there is no C++ compiler ({compiler})", "true", way_out)]
