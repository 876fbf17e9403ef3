"""Adapter for private names of torch: all uses in the package are in this module.

Checked against torch 2.9 and 2.15, the oldest and the newest supported release (`CHECKED_VERSIONS`). After an upgrade
of torch, look up each name below in its source, run `tests/tracking/test_torch_internals.py` and, on a GPU,
`tests/gpu`, then add the version.

| private name | used for |
| --- | --- |
| `torch.utils._python_dispatch.TorchDispatchMode` | counting the operators below autograd |
| `torch.utils._pytree` | tensors inside nested arguments and outputs |
| `OpOverload._schema` | which arguments an operator changes in place |
| `UntypedStorage._cdata` | identity of a storage, which has no address on `meta` |
| `Module._forward_hooks` and the like, `_global_*_hooks` | calls of model copies without user hooks |
| `Tensor._backward_hooks`, `_post_accumulate_grad_hooks` | hooks that see or change a parameter's gradient |
| `OptimizedModule._orig_mod` | the module that `torch.compile` wraps |
| `Module._compiled_call_impl` | whether `Module.compile` was called |
| `_NormBase`, `_InstanceNorm` | all layers that normalise by batch statistics |
| `torch._C._current_graph_task_id` | which backward pass a thread is within |
| `Optimizer._optimizer_step_post_hooks` | whether an optimiser accepts hooks: wrappers of one may not |
| `GradScaler._scale` | the scale as a tensor: `get_scale` waits for the device |
| `torch.distributed.distributed_c10d._get_default_store` | messages between ranks, without a collective |
| `FullyShardedDataParallel._handle`, `FlatParameter._numels`, `._params` | the size of parameters that ranks share |
| `torch._utils.ExceptionWrapper` | what a loader's worker sends in place of a batch, and the loader raises |
| `_worker_loop` of torch and torchdata, its parameters | the queue of a loader's worker, and what it sends there |
| `torch._dynamo.utils.calculate_time_spent` | the seconds of compilation in this process |
| `torch._C.DisableTorchFunctionSubclass`, `_disabled_torch_dispatch_impl` | tensors without their subclass's code |
| `torch._C._cuda_endAllocateToPool`, `_cuda_releasePool` | cleaning up after a failed CUDA graph capture |
"""

import dataclasses
import inspect
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._utils import ExceptionWrapper as LoaderError
from torch.nn.modules import module as _modules
from torch.nn.modules.batchnorm import _NormBase as NormBase
from torch.nn.modules.instancenorm import _InstanceNorm as InstanceNormBase
from torch.optim import optimizer as _optimizers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

__all__ = [
    "CALL_HOOK_TABLES",
    "CHECKED_VERSIONS",
    "GLOBAL_HOOK_TABLES",
    "STATE_DICT_HOOK_TABLES",
    "FlatParameters",
    "InstanceNormBase",
    "LoaderError",
    "LoaderWorker",
    "NormBase",
    "TorchDispatchMode",
    "accepts_step_hooks",
    "as_plain",
    "backward_pass",
    "clean_up_failed_capture",
    "compilation_seconds",
    "compiled_module",
    "device_of",
    "flat_parameters",
    "has_gradient_hooks",
    "is_compiled",
    "loader_worker",
    "module_hooks",
    "process_group_store",
    "scale_tensor",
    "storage_id",
    "tree_leaves",
    "tree_map_only",
    "version_notes",
    "written_arguments",
]

CHECKED_VERSIONS = ("2.9", "2.15")
"""The releases of torch that this module was read against and the tests ran with, oldest first."""

CALL_HOOK_TABLES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""Attributes of a module: hooks that its call or its backward pass runs."""

STATE_DICT_HOOK_TABLES = (
    "_state_dict_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
"""Attributes of a module: hooks that saving or loading its state runs."""

GLOBAL_HOOK_TABLES: tuple[dict[int, Any], ...] = (
    _modules._global_forward_pre_hooks,
    _modules._global_forward_hooks,
    _modules._global_backward_pre_hooks,
    _modules._global_backward_hooks,
    _optimizers._global_optimizer_pre_hooks,
    _optimizers._global_optimizer_post_hooks,
)
"""Hooks registered for all modules or all optimisers, by handle id. Changing a table changes what torch calls."""


def module_hooks(module: torch.nn.Module, table: str) -> dict[int, Any]:
    """Return the module's own hooks in a table (`CALL_HOOK_TABLES` or `STATE_DICT_HOOK_TABLES`): the live mapping."""
    hooks: dict[int, Any] = vars(module).get(table, {})
    return hooks


def has_gradient_hooks(parameter: torch.Tensor) -> bool:
    """Return whether each backward pass runs hooks on the parameter's gradient, which may change it."""
    return bool(parameter._backward_hooks) or bool(getattr(parameter, "_post_accumulate_grad_hooks", None))


def compiled_module(network: torch.nn.Module) -> torch.nn.Module | None:
    """Return the module inside the wrapper that `torch.compile` made; None for any other module."""
    inner = getattr(network, "_orig_mod", None)
    return inner if isinstance(inner, torch.nn.Module) else None


def compilation_seconds() -> float:
    """Return the seconds that this process has spent on `torch.compile` so far, whatever it compiled."""
    spent: Any = getattr(sys.modules.get("torch._dynamo.utils"), "calculate_time_spent", None)
    return 0.0 if spent is None else float(spent().get("total_wall_time", 0.0))


def as_plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same tensor, of the same memory and graph, without the Python code that its subclass may have.

    A subclass that stands for other tensors, as a jagged or a distributed one does, stays what it is.
    """
    kind = type(tensor)
    if kind is torch.Tensor or kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.as_subclass(tensor, torch.Tensor)


def device_of(tensor: torch.Tensor) -> torch.device:
    """Return a tensor's device, and run no code of its subclass."""
    if type(tensor) is torch.Tensor:
        return tensor.device
    with torch._C.DisableTorchFunctionSubclass():
        device: torch.device = torch.Tensor.device.__get__(tensor)
        return device


def backward_pass() -> int | None:
    """Return a number of the backward pass that this thread is within, unique in the process; None outside of any."""
    number = torch._C._current_graph_task_id()
    return None if number == -1 else int(number)


def accepts_step_hooks(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether hooks can be registered: an optimiser that wraps another may have none of its own."""
    return hasattr(optimizer, "_optimizer_step_post_hooks")


def is_compiled(module: torch.nn.Module) -> bool:
    """Return whether calls of the module run compiled code, by `torch.compile(module)` or `module.compile()`."""
    return compiled_module(module) is not None or vars(module).get("_compiled_call_impl") is not None


def storage_id(tensor: torch.Tensor) -> int:
    """Identify the tensor's storage while it is alive, on any device: views of one storage share the id."""
    return int(tensor.untyped_storage()._cdata)


def written_arguments(func: Any, args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each positional argument that an operator (`OpOverload`) declares as written to."""
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield argument.name, value


def scale_tensor(scaler: torch.amp.GradScaler) -> torch.Tensor | None:
    """Return the scaler's current scale as a tensor on its device, without waiting; None before the first step."""
    return scaler._scale


@dataclass(frozen=True)
class FlatParameters:
    """Parameters that `FullyShardedDataParallel` has flattened: `held` are this rank's parts of `num_values` values."""

    num_values: int
    held: Sequence[torch.Tensor]


def flat_parameters(network: torch.nn.Module) -> list[FlatParameters]:
    """Return what each part of the network that is a `FullyShardedDataParallel` has flattened."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return []
    modules: Any = (each for each in network.modules() if isinstance(each, fsdp.FullyShardedDataParallel))
    flat = [module._handle.flat_param for module in modules if module._handle is not None]
    return [FlatParameters(sum(each._numels), [each, *(each._params or ())]) for each in flat]


def process_group_store() -> Any | None:
    """Return the store that the process group was built with; None without a process group, or if it has no store."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    find: Any = getattr(distributed.distributed_c10d, "_get_default_store", None)
    return None if find is None else find()


@dataclass(frozen=True)
class LoaderWorker:
    """This process as a loader's worker; `results` is the queue to the loader, which needs no more if `is_done()`."""

    number: int
    results: Any
    is_done: Callable[[], bool]
    sends_state: bool

    def failed(self, item: Any, error: LoaderError) -> Any:
        """Return what to put in `results` in place of `item`. Raises `ValueError` if `item` tells an error already."""
        index, sent = item
        told: Any = error
        if not self.sends_state:
            content = sent
        elif isinstance(sent, tuple):  # a batch, the worker, its state
            content, told = sent[0], (error, self.number, None)
        else:  # the worker's first state
            content, told = sent.initial_state, dataclasses.replace(sent, initial_state=error)
        if isinstance(content, LoaderError):
            raise ValueError("the error cannot be sent either")
        return index, told


def version_notes() -> list[str]:
    """Return a note if torch is newer than every version that this package was tested with."""
    newest = CHECKED_VERSIONS[-1]
    here, tested = ([int(number) for number in each.split(".")[:2]] for each in (torch.__version__, newest))
    return [f"torch {torch.__version__} is newer than {newest}, the newest that was tested"] if here > tested else []


_SENDS_STATE = {"torch.utils.data._utils.worker": False, "torchdata.stateful_dataloader.worker": True}


def loader_worker() -> LoaderWorker | None:
    """Return this process as the worker of a loader of torch or torchdata; None in any other process."""
    process: Any = multiprocessing.current_process()
    target: Any = getattr(process, "_target", None)
    sends_state = _SENDS_STATE.get(getattr(target, "__module__", ""))
    if sends_state is None or getattr(target, "__name__", "") != "_worker_loop":
        return None
    try:
        given = inspect.signature(target).bind(*process._args, **process._kwargs).arguments
        return LoaderWorker(given["worker_id"], given["data_queue"], given["done_event"].is_set, sends_state)
    except (TypeError, KeyError, AttributeError):  # another version
        return None


def clean_up_failed_capture(device: torch.device, pool: Any) -> None:
    """Finish what the end of a CUDA graph capture leaves undone when it fails: torch stops at its first error.

    Without this the device's generator still counts as captured and refuses further random numbers, and the allocator
    frees nothing of `pool`. May raise any error in other versions of torch.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(generator.clone_state())
    torch._C._cuda_endAllocateToPool(index, pool)
    torch._C._cuda_releasePool(index, pool)
