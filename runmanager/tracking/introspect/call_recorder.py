"""Recorder of the calls that a training loop makes to its network: shapes, gradient modes, and backward passes.

What a step computes depends on the loop: micro-batches, several networks, views of one batch, frozen parts. So the
first steps are observed, and their calls repeated later on a copy without data (see `step_cost`).
"""

import inspect
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runmanager.text import error_line
from runmanager.tracking.introspect.model_copy import iter_tensors, replace_tensors, unwrap
from runmanager.tracking.torch_internals import (
    accepts_step_hooks,
    as_plain,
    backward_pass,
    compiled_module,
    is_compiled,
    tree_leaves,
)

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class NetworkCall:
    """Arguments of a call; `names` are the parameters of `forward` that `args` fill."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()


def example_call(network: torch.nn.Module, batch: Any) -> NetworkCall | None:
    """Guess the call for a batch; None if the batch has no tensors for it.

    The input is the batch's first part, as in (images, labels). If `forward` requires several arguments, they are the
    parts of that first part, or else the batch's first parts, as in (left, right, labels). A mapping passes what
    `forward` accepts by keyword, or itself if that is nothing.
    """
    num_required, names = _parameters(unwrap(network))
    args, kwargs = _arguments(batch, num_required, names)
    call = NetworkCall(_first_sample(args), _first_sample(kwargs), _names_of(args, names))
    return call if _has_samples([*call.args, *call.kwargs.values()]) else None


def recorded_call(network: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NetworkCall:
    """Return a call that was made with these arguments."""
    return NetworkCall(args, kwargs, _names_of(args, _parameters(unwrap(network))[1]))


def _names_of(args: Sequence[Any], names: Sequence[str]) -> tuple[str, ...]:
    return (*names, *("input" for _ in args))[: len(args)]


def _arguments(batch: Any, num_required: int, names: tuple[str, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(batch, Mapping):
        by_name = {name: part for name, part in batch.items() if name in names}
        return ((), by_name) if by_name or num_required != 1 else ((batch,), {})
    if not isinstance(batch, Sequence) or not batch:
        return (batch,), {}
    first = batch[0]
    if isinstance(first, Mapping) and first and set(first).issubset(names):
        return (), dict(first)
    if num_required > 1:
        parts = first if isinstance(first, Sequence) else batch
        return tuple(parts[:num_required]), {}
    return (first,), {}


def _parameters(network: torch.nn.Module) -> tuple[int, tuple[str, ...]]:
    """Return the number of required positional parameters of `forward`, and the names of all parameters."""
    try:
        parameters = inspect.signature(network.forward).parameters
    except (TypeError, ValueError):  # not written in Python
        return 1, ()
    required = [
        each for each in parameters.values() if each.kind in _POSITIONAL and each.default is inspect.Parameter.empty
    ]
    return len(required), tuple(parameters)


def _first_sample(value: Any) -> Any:
    """Reduce every tensor to its first sample, as far as it has one."""
    if isinstance(value, torch.Tensor):
        whole = as_plain(value).detach()
        return whole[:1] if whole.layout is torch.strided and not whole.is_nested and whole.dim() else whole
    if isinstance(value, Mapping):
        return {name: _first_sample(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [_first_sample(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _has_samples(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return any(map(_has_samples, value))
    return isinstance(value, torch.Tensor) and as_plain(value).numel() > 0


MAX_STEPS = 120
"""Steps that are recorded at most: many short cycles, as of a loop that trains one of two networks every fifth step,
fit into it a whole number of times."""
_MAX_CALLS = 10_000  # more would take too much memory
_SCALARS = (bool, int, float, str, type(None), torch.dtype)
_META = torch.device("meta")


@dataclass(eq=False, slots=True)
class RecordedCall:
    """An outermost call of a module.

    `arguments` are (args, kwargs), with tensors on `meta`. `trainable` tells which of the module's parameters required
    a gradient. `passes` has the backward passes through the call, each with the tensors of the output, by index, that a
    gradient came back to. Calls of equal `traits` and passes do equal work.
    """

    module: torch.nn.Module
    arguments: tuple[Any, Any]
    has_gradients: bool
    is_training: bool
    trainable: tuple[bool, ...]
    traits: Hashable
    passes: dict[int | None, set[int]] = field(default_factory=dict)

    @property
    def signature(self) -> Hashable:
        """Equal for calls that do equal work."""
        return self.traits, tuple(map(frozenset, self.passes.values()))


@dataclass(frozen=True)
class RecordedStep:
    """What happened between two tracked steps: calls, updates by the optimiser, and the units that were tracked."""

    calls: Sequence[RecordedCall]
    num_updates: int
    units: Mapping[str, int]


class CallRecorder:
    """Records the calls of a network, or of parts of it that are called by themselves, step by step.

    Forward hooks see the calls of the thread that installed them. A module that was only called by another one loses
    its hooks after the step, all modules that were called lose theirs on `finish` or after `MAX_STEPS` steps. Compiled
    code runs no hooks inside, but is compiled again if hooks disappear: so the others keep theirs until `remove`. Of a
    compiled network the call as a whole is seen if the network that was installed is the compiled one.

    `is_in_evaluation` tells whether calls belong to no step; while it is None, none does. A call that cannot be
    recorded ends the recording, and `failure` says why. `weights_by_type` counts the weights of the layers that were
    called by the type that their products were computed in, autocast included.
    """

    def __init__(self) -> None:
        self.steps: list[RecordedStep] = []
        self.failure = ""
        self.is_finished = False
        self.is_in_evaluation: Callable[[], bool] | None = None
        self.weights_by_type: Counter[torch.dtype] = Counter()
        self.has_autocast = False
        self._handles: dict[torch.nn.Module, tuple[Any, ...]] = {}
        self._update_handle: Any = None
        self._parameters: dict[torch.nn.Module, Sequence[torch.nn.Parameter]] = {}
        self._arguments: dict[Hashable, tuple[Any, Any]] = {}
        self._seen: set[torch.nn.Module] = set()
        self._outermost: set[torch.nn.Module] = set()
        self._stack: list[torch.nn.Module] = []
        self._call: RecordedCall | None = None
        self._calls: list[RecordedCall] = []
        self._num_calls = self._num_updates = 0
        self._thread = 0

    @property
    def is_installed(self) -> bool:
        """Whether it has hooks at present."""
        return bool(self._handles) or self._update_handle is not None

    def install(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        """Observe `network` and the updates of `optimizer`; nothing if it observes already or has finished."""
        if self.is_finished or self.is_installed:
            return
        self._thread = threading.get_ident()
        for module in _modules(network):
            enter = module.register_forward_pre_hook(_Hook(self._enter), with_kwargs=True)
            self._handles[module] = (enter, module.register_forward_hook(_Hook(self._leave), always_call=True))
        if optimizer is not None and accepts_step_hooks(optimizer):
            self._update_handle = optimizer.register_step_post_hook(self._updated)

    def remove(self) -> None:
        """Remove all hooks."""
        self._stop_observing(self._handles)

    def finish(self) -> None:
        """Record no further step; modules that may be part of compiled code keep their hooks, which do nothing."""
        self.is_finished = True
        self._stop_observing(self._seen)

    def step_tracked(self, units: Mapping[str, int]) -> None:
        """End a step that trained on these numbers of `units`, samples among them."""
        if self.is_finished:
            return
        # A wrapper around an optimiser takes no hooks: an update a step is assumed then.
        num_updates = 1 if self._update_handle is None else self._num_updates
        self.steps.append(RecordedStep(self._calls, num_updates, dict(units)))
        self.discard()
        self._num_calls += len(self.steps[-1].calls)
        if len(self.steps) >= MAX_STEPS or self._num_calls >= _MAX_CALLS:
            self.finish()
        elif not self._stack:
            self._remove_hooks(self._seen - self._outermost)

    def discard(self) -> None:
        """Forget the calls since the last step: they did not belong to one."""
        self._calls, self._num_updates = [], 0

    def _stop_observing(self, modules: Iterable[torch.nn.Module]) -> None:
        self._stack.clear()
        if self._update_handle is not None:
            self._update_handle.remove()
            self._update_handle = None
        self._remove_hooks(modules)

    def _remove_hooks(self, modules: Iterable[torch.nn.Module]) -> None:
        for module in tuple(modules):
            for handle in self._handles.pop(module, ()):
                handle.remove()

    def _updated(self, *_: object) -> None:
        self._num_updates += 1

    def _is_observed(self, module: torch.nn.Module) -> bool:
        # In a backward pass a module is called again for activations that were not kept (checkpointing).
        if self.is_finished or module not in self._handles:
            return False
        return threading.get_ident() == self._thread and backward_pass() is None

    def _enter(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if not self._is_observed(module):
            return
        self._stack.append(module)
        try:
            is_training_step = self.is_in_evaluation is not None and not self.is_in_evaluation()
            if module not in self._seen and is_training_step:
                self._seen.add(module)
                self._note_types(module)
            if len(self._stack) == 1 and is_training_step:
                self._outermost.add(module)
                self._call = self._recorded(module, args, kwargs)
        except Exception as error:  # anything may be passed to a network, and the run must not fail
            self._fail(error_line(error))

    def _leave(self, module: torch.nn.Module, _args: Any, output: Any) -> None:
        if not (self._stack and self._stack[-1] is module and self._is_observed(module)):
            return
        self._stack.pop()
        if self._stack or self._call is None:
            return
        call, self._call = self._call, None
        if output is None:  # an error, which may be caught
            return
        try:
            for index, tensor in enumerate(iter_tensors(output)):
                if tensor.requires_grad:
                    tensor.register_hook(self._gradient_hook(call, index))
        except Exception as error:
            self._fail(error_line(error))
        self._calls.append(call)
        if len(self._calls) > _MAX_CALLS:
            self._fail(f"a step calls its network more than {_MAX_CALLS:,} times")

    def _gradient_hook(self, call: RecordedCall, index: int) -> Callable[[torch.Tensor], None]:
        def gradient_came(_gradient: torch.Tensor) -> None:
            if torch.is_grad_enabled():
                self._fail("it differentiates its gradients")
            call.passes.setdefault(backward_pass(), set()).add(index)

        return gradient_came

    def _fail(self, reason: str) -> None:
        self.failure = self.failure or reason
        self.finish()

    def _recorded(self, module: torch.nn.Module, args: Any, kwargs: Any) -> RecordedCall:
        has_gradients = torch.is_grad_enabled()
        if module not in self._parameters:
            self._parameters[module] = list(module.parameters())
        trainable = tuple(parameter.requires_grad for parameter in self._parameters[module])
        traits = (id(module), has_gradients, module.training, trainable, _traits(args, kwargs, has_gradients))
        if traits not in self._arguments:
            self._arguments[traits] = replace_tensors((args, kwargs), _without_data)
        return RecordedCall(module, self._arguments[traits], has_gradients, module.training, trainable, traits)

    def _note_types(self, module: torch.nn.Module) -> None:
        """Count the weights of a layer by the type that its products are computed in."""
        is_opaque = compiled_module(module) is not None
        for parameter in module.parameters(recurse=is_opaque):
            if torch.nn.parameter.is_lazy(parameter) or parameter.ndim < 2 or not parameter.is_floating_point():
                continue
            device = parameter.device.type
            may_cast = parameter.dtype is torch.float32 and torch.amp.is_autocast_available(device)
            is_cast = may_cast and torch.is_autocast_enabled(device)
            self.has_autocast |= is_cast
            self.weights_by_type[torch.get_autocast_dtype(device) if is_cast else parameter.dtype] += parameter.numel()


def _modules(network: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield the modules that may have hooks, each once: not those inside compiled or scripted ones."""
    pending, found = [network], set()
    while pending:
        module = pending.pop()
        if module in found or isinstance(module, torch.jit.ScriptModule):
            continue
        found.add(module)
        if not is_compiled(module):
            pending.extend(module.children())
        elif compiled_module(module) is None:
            continue  # compiled in place: its hooks are compiled too
        yield module


class _Hook:
    """A forward hook that copies and pickles of a module do not take along, and that compiled code skips."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> None:
        if not torch.compiler.is_compiling():
            self._call(*arguments)

    def __deepcopy__(self, memo: Any) -> Callable[..., None]:
        return _no_hook

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _make_no_hook, ()


def _no_hook(*_: Any) -> None:
    pass


def _make_no_hook() -> Callable[..., None]:
    return _no_hook


def _traits(args: Any, kwargs: Mapping[str, Any], has_gradients: bool) -> Hashable:
    """Describe all arguments that decide what a call computes."""
    tensors = tuple(
        (tensor.size(), tensor.dtype, has_gradients and tensor.requires_grad)
        for tensor in map(as_plain, iter_tensors((args, kwargs)))
    )
    return tensors, tuple(kwargs), tuple(repr(leaf) for leaf in tree_leaves((args, kwargs)) if type(leaf) in _SCALARS)


def _without_data(tensor: torch.Tensor) -> torch.Tensor:
    tensor = as_plain(tensor)
    empty = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=_META)
    return empty.requires_grad_(tensor.requires_grad and torch.is_grad_enabled())
