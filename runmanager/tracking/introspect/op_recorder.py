"""Recorder of the operations in a forward pass, call by call."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

__all__ = ["Operation", "Recording", "iter_parts", "iter_tensors", "record_operations"]

_MAX_DEPTH = 8  # of nested containers: objects may contain themselves


@dataclass(frozen=True)
class Operation:
    """A call that returned tensors, or an input or output of the network.

    `name` is unique and contains the modules around the call: `Net/Conv2d[first]/conv2d`. `inputs` are the names of the
    operations whose tensors it used, `name:1` for the second tensor of one. `shapes` are those of the returned tensors.
    `parameters` are the shapes of the weights and buffers that it used, by qualified name; `module` is the `repr` of
    the layer around it.
    """

    name: str
    kind: str
    inputs: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    parameters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    module: str = ""


@dataclass(frozen=True)
class Recording:
    """The operations of a forward pass in order; `is_complete` is False if the limit cut it short."""

    operations: Sequence[Operation]
    is_complete: bool


def record_operations(
    network: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], *, names: Sequence[str], limit: int
) -> Recording:
    """Call the network and record its operations; `names` are the names of the tensors in its inputs, in order.

    Operations are the outermost calls of torch functions and tensor methods. A module with no visible call, such as a
    scripted one, is an operation as a whole. Recording stops after `limit` operations, and the call with it. Raises
    what the network raises.
    """
    recorder = _Recorder(network, limit=limit)
    # Hooks for all modules, as scripted modules accept none of their own; the recorder ignores other networks' modules.
    handles = [
        register_module_forward_pre_hook(recorder.enter),
        register_module_forward_hook(recorder.leave, always_call=True),  # also after an error, which may be caught
    ]
    try:
        for name, tensor in zip(names, iter_tensors((args, kwargs)), strict=True):
            recorder.add(name, "input", [], [tensor])
        with recorder:
            outputs = network(*args, **kwargs)
        recorder.add("output", "output", iter_tensors(outputs), [])
    except _LimitError:
        return Recording(recorder.operations, is_complete=False)
    finally:
        for handle in handles:
            handle.remove()
    return Recording(recorder.operations, is_complete=True)


class _LimitError(BaseException):
    """The limit is exceeded. Not an `Exception`, so that networks that catch those do not catch it."""


class _Recorder(TorchFunctionMode):
    """Intercepts calls of torch functions, and the start and end of each module."""

    def __init__(self, network: torch.nn.Module, *, limit: int) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self._limit = limit
        self._scopes = _scopes(network)
        self._stack: list[torch.nn.Module] = []
        self._name_counts: Counter[str] = Counter()
        # Holds each tensor during the pass, so that ids stay unique.
        self._producers: dict[int, tuple[torch.Tensor, str]] = {}
        self._parameters = {
            id(tensor): name for held in (network.named_parameters(), network.named_buffers()) for name, tensor in held
        }

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        kind = _kind_of(func)
        produced = list(iter_tensors(args[0] if kind == "setitem" else outputs))
        if produced:
            scope = f"{self._scopes[self._stack[-1]]}/" if self._stack else ""
            self.add(scope + kind, kind, iter_tensors((args, kwargs)), produced)
        return outputs

    def enter(self, module: torch.nn.Module, _args: Any) -> None:
        """Handle the start of a module."""
        if module in self._scopes:
            self._stack.append(module)

    def leave(self, module: torch.nn.Module, args: Any, outputs: Any) -> None:
        """Handle the end of a module."""
        if module not in self._scopes:
            return
        self._stack.pop()
        unknown = [tensor for tensor in iter_tensors(outputs) if not self._is_known(tensor)]
        if unknown:
            kind = type(module).__name__
            self.add(f"{self._scopes[module]}/{kind}", kind, iter_tensors(args), unknown)

    def _is_known(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._producers or id(tensor) in self._parameters

    def add(self, name: str, kind: str, used: Iterable[torch.Tensor], produced: Sequence[torch.Tensor]) -> None:
        """Record an operation by the tensors that it used and produced."""
        if len(self.operations) == self._limit:
            raise _LimitError
        self._name_counts[name] += 1
        if self._name_counts[name] > 1:
            name = f"{name}_{self._name_counts[name] - 1}"
        used = list({id(tensor): tensor for tensor in used}.values())
        inputs = tuple(self._producers[id(tensor)][1] for tensor in used if id(tensor) in self._producers)
        parameters = {self._parameters[id(each)]: tuple(each.shape) for each in used if id(each) in self._parameters}
        shapes = tuple(tuple(tensor.shape) for tensor in produced)
        self.operations.append(Operation(name, kind, inputs, shapes, parameters, self._layer()))
        for index, tensor in enumerate(produced):
            self._producers[id(tensor)] = (tensor, f"{name}:{index}" if index else name)

    def _layer(self) -> str:
        """Return the `repr` of the present module if it has no children, as it is short then."""
        return repr(self._stack[-1]) if self._stack and not any(self._stack[-1].children()) else ""


def _scopes(network: torch.nn.Module) -> dict[torch.nn.Module, str]:
    """Map each module to its path in the network, made of the types and names of the modules around it."""
    scopes: dict[torch.nn.Module, str] = {}
    by_name: dict[str, str] = {}
    for name, module in network.named_modules():
        parent, _, child = name.rpartition(".")
        kind = type(module).__name__
        scopes[module] = by_name[name] = f"{by_name[parent]}/{kind}[{child}]" if name else kind
    return scopes


def _kind_of(func: Callable[..., Any]) -> str:
    """Return the name of a function, or of the tensor property that it gets."""
    name = getattr(func, "__name__", type(func).__name__)
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", name)
    return name.strip("_") if name.startswith("__") else name


def iter_tensors(value: Any, depth: int = _MAX_DEPTH) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested sequences, mappings and attributes of plain objects, up to a depth."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth:
        for part in iter_parts(value):
            yield from iter_tensors(part, depth - 1)


def iter_parts(value: Any) -> Iterable[Any]:
    """Return the elements of a sequence, the values of a mapping or the attributes of a plain object."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    # Attributes of functions, classes and modules are not part of the value.
    return () if callable(value) else getattr(value, "__dict__", {}).values()
