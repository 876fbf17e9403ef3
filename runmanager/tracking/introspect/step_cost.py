"""The work of one training step, counted once on a copy that holds no data: FLOP, operators, bytes."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from runmanager.tracking.introspect.isolation import isolated
from runmanager.tracking.introspect.model_copy import copy_to_meta, unwrap
from runmanager.tracking.torch_internals import (
    TorchDispatchMode,
    tree_leaves,
    written_arguments,
)

__all__ = ["StepCost", "count_step_cost"]

_META = torch.device("meta")
_FILLING = frozenset({"zero_", "fill_", "zeros_like", "ones_like", "full_like"})  # they read nothing of their argument


@dataclass(frozen=True)
class StepCost:
    """What `Measurements` says of a step; None is what cannot be said of this model."""

    flop: int | None = None
    operations: int | None = None
    bytes: int | None = None


def count_step_cost(
    network: torch.nn.Module, inputs: torch.Tensor, *, optimizer: torch.optim.Optimizer | None = None
) -> StepCost:
    """The work of a step with `inputs`, of which only shape (batch, …) and type are looked at.

    A deep copy of network and optimiser is made on the `meta` device, whose tensors have shapes but no data: a full
    batch costs no memory and no arithmetic, and nothing about the run changes. In it PyTorch chooses the same
    operators as on a real device, but for recurrent layers, which have one of their own there: of these only the FLOP
    are said. The forward pass is followed, the backward pass from the outputs, and then the optimiser's second step
    (the first one makes its state); an optimiser that cannot be followed is left out.

    FLOP are counted by `torch.utils.flop_counter`. Raises whatever the model raises: one that looks at the values in
    its tensors, or names a device itself, cannot be followed; `SharedError` where a copy shares with the model what a
    call would change.
    """
    network = unwrap(network)
    with isolated(network):
        twin, twin_optimizer = copy_to_meta(network, optimizer)
        twin.train()
        empty = torch.empty(inputs.shape, dtype=inputs.dtype, device=_META)
        if any(map(torch.nn.parameter.is_lazy, twin.parameters())):
            twin(empty)  # to make its weights is no work of a step
        counter = _Counter()
        with FlopCounterMode(display=False) as flop, counter:
            outputs = twin(empty)
            roots = [each for each in tree_leaves(outputs) if _has_gradient(each)]
            if roots:
                torch.autograd.backward(roots, [torch.empty_like(root) for root in roots])
        if any(isinstance(module, torch.nn.RNNBase) for module in twin.modules()):
            return StepCost(flop.get_total_flops())
        if twin_optimizer is not None:
            _count_step(twin_optimizer, counter, network)
    return StepCost(flop.get_total_flops(), counter.operations, counter.bytes)


def _has_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _count_step(optimizer: torch.optim.Optimizer, counter: "_Counter", network: torch.nn.Module) -> None:
    parameter = next(network.parameters(), None)
    on_gpu = parameter is not None and parameter.device.type in ("cuda", "xpu")
    fused = [group for group in optimizer.param_groups if group.get("fused")]
    for group in optimizer.param_groups:
        if on_gpu and not group.get("fused") and group.get("foreach", False) is None:
            group["foreach"] = True  # there PyTorch takes many parameters with one operator, unless told otherwise
    followed = _Counter()
    with contextlib.suppress(Exception):  # a closure that is wanted, a fused kernel that has no shapes, …
        for group in fused:
            group["fused"] = None  # the state must be made first: a fused step makes none on `meta`
        optimizer.step()
        _fuse(optimizer, fused)
        with followed:
            optimizer.step()
        counter.operations += followed.operations
        counter.bytes += followed.bytes


def _fuse(optimizer: torch.optim.Optimizer, groups: Sequence[dict[str, Any]]) -> None:
    """Let the next step be a fused one, as it would be after a first one on a real device."""
    for group in groups:
        group["fused"] = True
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            if "step" in state:
                state["step"] = torch.empty((), device=_META)


class _Counter(TorchDispatchMode):
    """Counts the operators that pass below autograd, and the bytes of the tensors that they take and give."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch gives it no types
        self.operations = 0
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.is_view or func.namespace in ("prim", "profiler") or name.startswith(("empty", "new_empty")):
            return outputs  # nothing for the device to do
        self.operations += 1
        read = () if name in _FILLING else _tensors((args, kwargs))
        written = _changed(func, args) if outputs is None else _tensors(outputs)
        self.bytes += sum(map(_bytes, read)) + sum(map(_bytes, written))
        return outputs


def _changed(func: Any, args: Any) -> Iterator[torch.Tensor]:
    """What an operator without outputs changes in place, as those do that take many tensors at once.

    Gradients are declared so, but change only where a scaler's factor is taken out of them.
    """
    return _tensors([value for name, value in written_arguments(func, args) if name != "grads"])


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """Each tensor once, however often it is given."""
    return iter({id(each): each for each in tree_leaves(values) if isinstance(each, torch.Tensor)}.values())


def _bytes(tensor: torch.Tensor) -> int:
    """What is really there of it: an expanded one is smaller than it looks."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
