"""Cost of one training step, counted on a copy without data: FLOP, operators, bytes."""

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
_FILL_OPERATORS = frozenset({"zero_", "fill_", "zeros_like", "ones_like", "full_like"})  # they do not read it


@dataclass(frozen=True)
class StepCost:
    """Counts for one step; None for what cannot be counted for this model."""

    flop: int | None = None
    operations: int | None = None
    bytes: int | None = None


def count_step_cost(
    network: torch.nn.Module, inputs: torch.Tensor, *, optimizer: torch.optim.Optimizer | None = None
) -> StepCost:
    """Count forward pass, backward pass and optimiser step for `inputs` (batch, …); only shape and dtype matter.

    The step runs on deep copies of network and optimiser on `meta`, whose tensors have shapes but no data: it takes no
    memory and no arithmetic, and the run does not change. There torch chooses the same operators as on a real device,
    except for recurrent layers: for models with these only the FLOP are counted. The optimiser's step is its second,
    as the first one creates its state; an optimiser that cannot run on `meta` is left out.

    FLOP are counted by `torch.utils.flop_counter`. Raises what the model raises on `meta`, for instance because it
    reads values of its tensors or names a device, and `SharedModuleError` if a copy shares modules with the model.
    """
    network = unwrap(network)
    with isolated(network):
        meta_network, meta_optimizer = copy_to_meta(network, optimizer)
        meta_network.train()
        empty = torch.empty(inputs.shape, dtype=inputs.dtype, device=_META)
        if any(map(torch.nn.parameter.is_lazy, meta_network.parameters())):
            meta_network(empty)  # initialises weights, which is not part of a step
        counter = _Counter()
        with FlopCounterMode(display=False) as flop, counter:
            outputs = meta_network(empty)
            roots = [each for each in tree_leaves(outputs) if _has_gradient(each)]
            if roots:
                torch.autograd.backward(roots, [torch.empty_like(root) for root in roots])
        if any(isinstance(module, torch.nn.RNNBase) for module in meta_network.modules()):
            return StepCost(flop.get_total_flops())
        if meta_optimizer is not None:
            _count_optimizer_step(meta_optimizer, counter, network)
    return StepCost(flop.get_total_flops(), counter.operations, counter.bytes)


def _has_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _count_optimizer_step(optimizer: torch.optim.Optimizer, counter: "_Counter", network: torch.nn.Module) -> None:
    parameter = next(network.parameters(), None)
    on_gpu = parameter is not None and parameter.device.type in ("cuda", "xpu")
    fused = [group for group in optimizer.param_groups if group.get("fused")]
    for group in optimizer.param_groups:
        if on_gpu and not group.get("fused") and group.get("foreach", False) is None:
            group["foreach"] = True  # torch's default on a GPU: one operator for many parameters
    step_counter = _Counter()
    with contextlib.suppress(Exception):  # it may require a closure, or have a fused kernel without `meta` support
        for group in fused:
            group["fused"] = None  # a fused step would create no state on `meta`
        optimizer.step()
        _fuse(optimizer, fused)
        with step_counter:
            optimizer.step()
        counter.operations += step_counter.operations
        counter.bytes += step_counter.bytes


def _fuse(optimizer: torch.optim.Optimizer, groups: Sequence[dict[str, Any]]) -> None:
    """Make the next step a fused one, in the state that the first one leaves on a real device."""
    for group in groups:
        group["fused"] = True
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            if "step" in state:
                state["step"] = torch.empty((), device=_META)


class _Counter(TorchDispatchMode):
    """Counts the operators below autograd, and the bytes of the tensors that they read and write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.operations = 0
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.is_view or func.namespace in ("prim", "profiler") or name.startswith(("empty", "new_empty")):
            return outputs  # no work for the device
        self.operations += 1
        read = () if name in _FILL_OPERATORS else _tensors((args, kwargs))
        written = _tensors_written(func, args) if outputs is None else _tensors(outputs)
        self.bytes += sum(map(_bytes, read)) + sum(map(_bytes, written))
        return outputs


def _tensors_written(func: Any, args: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that an operator without outputs changes in place, as `_foreach_*` and `_fused_*` ones do.

    Without gradients: they are declared as written, but change only if a scaler's factor is removed from them.
    """
    return _tensors([value for name, value in written_arguments(func, args) if name != "grads"])


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yield each tensor once."""
    return iter({id(each): each for each in tree_leaves(values) if isinstance(each, torch.Tensor)}.values())


def _bytes(tensor: torch.Tensor) -> int:
    """Return the bytes in memory: an expanded tensor takes less than its shape."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
