"""What a network does with its inputs, written down call by call while it does it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

__all__ = ["Operation", "Recording", "iter_parts", "iter_tensors", "record_operations"]

_MAX_DEPTH = 8  # of containers in containers: objects may hold themselves


@dataclass(frozen=True)
class Operation:
    """A call that gave tensors, or what goes in and comes out.

    `name` is unique and says in which modules it lies: `Net/Conv2d[first]/conv2d`. `inputs` are the names of those
    whose tensors it took, `name:1` for the second one of several. `shapes` are those of the tensors that it gave.
    `parameters` are the weights and buffers that it took, by qualified name; `module` the layer that it belongs to, as
    PyTorch writes it.
    """

    name: str
    kind: str
    inputs: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    parameters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    module: str = ""


@dataclass(frozen=True)
class Recording:
    """All operations of a pass in their order; `is_whole` is False where there were more than were wanted."""

    operations: Sequence[Operation]
    is_whole: bool


def record_operations(
    network: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], *, names: Sequence[str], limit: int
) -> Recording:
    """Run the network on its inputs, whose `names` are those of the tensors in them, and write down what it does.

    Only calls that PyTorch lets one see are operations: its functions and the methods of tensors, the outermost of
    each. A module of which none is seen, as one that was scripted, is an operation as a whole. At most `limit` are
    kept; then the pass is broken off. Raises whatever the network raises.
    """
    recorder = _Recorder(network, limit=limit)
    # For all modules at once, as scripted ones take no hooks of their own; those of others are not looked at.
    handles = [
        register_module_forward_pre_hook(recorder.enter),
        register_module_forward_hook(recorder.leave, always_call=True),  # by an error too, which others may catch
    ]
    try:
        for name, tensor in zip(names, iter_tensors((args, kwargs)), strict=True):
            recorder.add(name, "input", [], [tensor])
        with recorder:
            outputs = network(*args, **kwargs)
        recorder.add("output", "output", iter_tensors(outputs), [])
    except _LimitError:
        return Recording(recorder.operations, is_whole=False)
    finally:
        for handle in handles:
            handle.remove()
    return Recording(recorder.operations, is_whole=True)


class _LimitError(BaseException):
    """There are more operations than are wanted; a network that catches what goes wrong in it is not to catch this."""


class _Recorder(TorchFunctionMode):
    """Sees every call of a PyTorch function, and each module's beginning and end."""

    def __init__(self, network: torch.nn.Module, *, limit: int) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self._limit = limit
        self._scopes = _scopes(network)
        self._stack: list[torch.nn.Module] = []
        self._used: Counter[str] = Counter()
        # Each tensor is held as long as the pass goes on, so that no other gets its identity.
        self._made: dict[int, tuple[torch.Tensor, str]] = {}
        self._parameters = {
            id(tensor): name for held in (network.named_parameters(), network.named_buffers()) for name, tensor in held
        }

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        kind = _kind_of(func)
        made = list(iter_tensors(args[0] if kind == "setitem" else outputs))
        if made:
            place = f"{self._scopes[self._stack[-1]]}/" if self._stack else ""
            self.add(place + kind, kind, iter_tensors((args, kwargs)), made)
        return outputs

    def enter(self, module: torch.nn.Module, _args: Any) -> None:
        """A module begins."""
        if module in self._scopes:
            self._stack.append(module)

    def leave(self, module: torch.nn.Module, args: Any, outputs: Any) -> None:
        """A module ends."""
        if module not in self._scopes:
            return
        self._stack.pop()
        unseen = [tensor for tensor in iter_tensors(outputs) if not self._is_known(tensor)]
        if unseen:
            kind = type(module).__name__
            self.add(f"{self._scopes[module]}/{kind}", kind, iter_tensors(args), unseen)

    def _is_known(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._made or id(tensor) in self._parameters

    def add(self, name: str, kind: str, taken: Any, made: Sequence[torch.Tensor]) -> None:
        """Write down an operation that took and made these tensors."""
        if len(self.operations) == self._limit:
            raise _LimitError
        self._used[name] += 1
        if self._used[name] > 1:
            name = f"{name}_{self._used[name] - 1}"
        taken = list({id(tensor): tensor for tensor in taken}.values())
        inputs = tuple(self._made[id(tensor)][1] for tensor in taken if id(tensor) in self._made)
        parameters = {self._parameters[id(each)]: tuple(each.shape) for each in taken if id(each) in self._parameters}
        shapes = tuple(tuple(tensor.shape) for tensor in made)
        self.operations.append(Operation(name, kind, inputs, shapes, parameters, self._layer()))
        for place, tensor in enumerate(made):
            self._made[id(tensor)] = (tensor, f"{name}:{place}" if place else name)

    def _layer(self) -> str:
        """The module at work, if it is one that holds no others: the words for such a one are few."""
        return repr(self._stack[-1]) if self._stack and not any(self._stack[-1].children()) else ""


def _scopes(network: torch.nn.Module) -> dict[torch.nn.Module, str]:
    """Where in the network each of its modules lies, by the types and names of those around it."""
    scopes: dict[torch.nn.Module, str] = {}
    by_name: dict[str, str] = {}
    for name, module in network.named_modules():
        around, _, own = name.rpartition(".")
        kind = type(module).__name__
        scopes[module] = by_name[name] = f"{by_name[around]}/{kind}[{own}]" if name else kind
    return scopes


def _kind_of(func: Callable[..., Any]) -> str:
    """What a function is called; the getter of a tensor's property is called as that."""
    name = getattr(func, "__name__", type(func).__name__)
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", name)
    return name.strip("_") if name.startswith("__") else name


def iter_tensors(value: Any, depth: int = _MAX_DEPTH) -> Iterator[torch.Tensor]:
    """The tensors in a value: in sequences, mappings and the attributes of plain objects, at any depth that is sane."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth:
        for part in iter_parts(value):
            yield from iter_tensors(part, depth - 1)


def iter_parts(value: Any) -> Iterable[Any]:
    """What a sequence, a mapping or a plain object holds."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    # What functions, classes and modules hold is not what was given.
    return () if callable(value) else getattr(value, "__dict__", {}).values()
