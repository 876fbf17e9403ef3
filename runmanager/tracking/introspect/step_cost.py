"""Cost of a training step, counted on copies without data: FLOP, operators, bytes."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from runmanager.tracking.introspect.call_recorder import RecordedCall
from runmanager.tracking.introspect.isolation import isolated
from runmanager.tracking.introspect.model_copy import copy_to_meta, iter_tensors, replace_tensors, unwrap
from runmanager.tracking.torch_internals import (
    TorchDispatchMode,
    backward_pass,
    tree_leaves,
    written_arguments,
)

_META = torch.device("meta")
_FILL_OPERATORS = frozenset({"zero_", "fill_", "zeros_like", "ones_like", "full_like"})  # they do not read it
_ALL_OUTPUTS: Any = range(1 << 30)
_MAX_ANSWERS = 1000  # truth values that a call may read: a loop may wait for another answer for ever


@dataclass(frozen=True)
class StepCost:
    """Counts for one step, or a part of it; None for what cannot be counted for this model."""

    flop: int = 0
    operations: int | None = 0
    bytes: int | None = 0

    def __add__(self, other: "StepCost") -> "StepCost":
        return StepCost(
            self.flop + other.flop,
            None if self.operations is None or other.operations is None else self.operations + other.operations,
            None if self.bytes is None or other.bytes is None else self.bytes + other.bytes,
        )


def count_step_cost(
    network: torch.nn.Module, inputs: torch.Tensor, *, optimizer: torch.optim.Optimizer | None = None
) -> StepCost:
    """Count forward pass, backward pass and optimiser step for `inputs` (batch, …); only shape and dtype matter.

    The passes are counted as by `count_call_costs`, the step as by `count_update_cost`; raises what the former raises.
    """
    empty = torch.empty(inputs.shape, dtype=inputs.dtype, device=_META)
    trainable = tuple(parameter.requires_grad for parameter in network.parameters())
    call = RecordedCall(network, ((empty,), {}), True, True, trainable, traits=None, passes={None: _ALL_OUTPUTS})
    (passes,) = count_call_costs([call])
    return passes if optimizer is None else passes + count_update_cost(network, optimizer)


def count_call_costs(calls: Sequence[RecordedCall]) -> list[StepCost]:
    """Count each call, with the backward passes from those of its outputs that a gradient came back to.

    The calls are made on deep copies of their modules on `meta`, whose tensors have shapes but no data: that takes no
    memory and no arithmetic, and the run does not change. There torch chooses the same operators as on a real device,
    except for recurrent layers: for modules with these only the FLOP are counted. Activations that are computed again
    in a backward pass (checkpointing) are counted once.

    FLOP are counted by `torch.utils.flop_counter`. Raises what the module raises on `meta`, for instance because it
    reads values of its tensors or names a device, and `SharedModuleError` if a copy shares modules with the original.
    A module may read truth values, as of `mask.all()`, if its FLOP do not depend on them; else raises `ValueError`.
    """
    costs: dict[RecordedCall, StepCost] = {}
    for module in dict.fromkeys(call.module for call in calls):
        of_module = [call for call in calls if call.module is module]
        with isolated(unwrap(module)):
            costs |= zip(of_module, _count_on_copy(module, of_module), strict=True)
    return [costs[call] for call in calls]


def count_update_cost(network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> StepCost:
    """Count a step of the optimiser: its second, as the first one creates its state.

    It runs on copies on `meta`, with a gradient for each parameter that requires one; nothing is counted for an
    optimiser that cannot run there. The FLOP of an update do not count.
    """
    # It may require a closure, or have a fused kernel without `meta` support.
    with contextlib.suppress(Exception), isolated(unwrap(network)):
        meta_network, meta_optimizer = copy_to_meta(unwrap(network), optimizer)
        assert meta_optimizer is not None
        for parameter in meta_network.parameters():
            parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
        return _count_second_step(meta_optimizer, network)
    return StepCost()


def _count_on_copy(module: torch.nn.Module, calls: Sequence[RecordedCall]) -> list[StepCost]:
    copied, _ = copy_to_meta(unwrap(module))
    if any(map(torch.nn.parameter.is_lazy, copied.parameters())):
        args, kwargs = replace_tensors(calls[0].arguments, torch.empty_like)
        copied.train()(*args, **kwargs)  # initialises weights, which is not part of a step
    has_recurrence = any(isinstance(part, torch.nn.RNNBase) for part in copied.modules())
    costs = [_count_call(copied, call) for call in calls]
    return [StepCost(cost.flop, None, None) for cost in costs] if has_recurrence else costs


def _count_call(copied: torch.nn.Module, call: RecordedCall) -> StepCost:
    """Count a call with either answer to the truth values that it reads, and check that it makes no difference."""
    cost, has_answered = _count_with_answer(copied, call, answer=True)
    if not has_answered:
        return cost
    other, _ = _count_with_answer(copied, call, answer=False)
    if other.flop != cost.flop:
        raise ValueError("its work depends on the values of its tensors")
    return cost if other == cost else StepCost(cost.flop, None, None)


def _count_with_answer(copied: torch.nn.Module, call: RecordedCall, *, answer: bool) -> tuple[StepCost, bool]:
    copied.train(call.is_training)
    for parameter, is_trainable in zip(copied.parameters(), call.trainable, strict=True):
        parameter.requires_grad_(is_trainable)
        parameter.grad = None
    with torch.set_grad_enabled(True):
        args, kwargs = replace_tensors(call.arguments, _as_input)
    counter = _Counter(answer=answer)
    with FlopCounterMode(display=False) as flop, counter, torch.set_grad_enabled(call.has_gradients):
        counter.flop = flop
        outputs = list(iter_tensors(copied(*args, **kwargs)))
        for number, indices in enumerate(call.passes.values(), start=1):
            if roots := [each for index, each in enumerate(outputs) if index in indices and each.requires_grad]:
                gradients = [torch.empty_like(root) for root in roots]
                torch.autograd.backward(roots, gradients, retain_graph=number < len(call.passes))
    num_flop = flop.get_total_flops() - counter.recomputed_flop
    return StepCost(num_flop, counter.operations, counter.bytes), counter.num_answers > 0


def _as_input(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that a module may change in place, as an input made by another module."""
    return torch.empty_like(tensor, requires_grad=True).clone() if tensor.requires_grad else torch.empty_like(tensor)


def _count_second_step(optimizer: torch.optim.Optimizer, network: torch.nn.Module) -> StepCost:
    parameter = next(network.parameters(), None)
    on_gpu = parameter is not None and parameter.device.type in ("cuda", "xpu")
    fused = [group for group in optimizer.param_groups if group.get("fused")]
    for group in optimizer.param_groups:
        if on_gpu and not group.get("fused") and group.get("foreach", False) is None:
            group["foreach"] = True  # torch's default on a GPU: one operator for many parameters
    for group in fused:
        group["fused"] = None  # a fused step would create no state on `meta`
    optimizer.step()
    _fuse(optimizer, fused)
    with (counter := _Counter()):
        optimizer.step()
    return StepCost(0, counter.operations, counter.bytes)


def _fuse(optimizer: torch.optim.Optimizer, groups: Sequence[dict[str, Any]]) -> None:
    """Make the next step a fused one, in the state that the first one leaves on a real device."""
    for group in groups:
        group["fused"] = True
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            if "step" in state:
                state["step"] = torch.empty((), device=_META)


class _Counter(TorchDispatchMode):
    """Counts the operators below autograd, and the bytes of the tensors that they read and write.

    Truth values are read as `answer`. What is computed again in a backward pass is not counted; its FLOP, as far as
    `flop` counts them, are in `recomputed_flop`.
    """

    def __init__(self, *, answer: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.operations = 0
        self.bytes = 0
        self.flop: FlopCounterMode | None = None
        self.recomputed_flop = 0
        self.num_answers = 0
        self._answer = answer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name == "_local_scalar_dense" and args[0].dtype is torch.bool and args[0].is_meta:
            self.num_answers += 1
            if self.num_answers <= _MAX_ANSWERS:
                return self._answer
        before = 0 if self.flop is None else self.flop.get_total_flops()
        outputs = func(*args, **(kwargs or {}))
        # A backward pass itself runs without gradients, unless it is differentiated, which no recorded call is.
        if self.flop is not None and backward_pass() is not None and torch.is_grad_enabled():
            self.recomputed_flop += self.flop.get_total_flops() - before
            return outputs
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
