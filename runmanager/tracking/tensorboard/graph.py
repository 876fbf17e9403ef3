"""The model's graph for TensorBoard: the operations of a call of a copy, so that neither model nor run changes."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.versions_pb2 import VersionDef
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from runmanager.tracking.introspect.call_recorder import NetworkCall
from runmanager.tracking.introspect.isolation import isolated
from runmanager.tracking.introspect.model_copy import copy_to_meta, copy_with_data, iter_tensors, unwrap
from runmanager.tracking.torch_internals import tree_map_only

MAX_OPERATIONS = 5000
"""Most operations in a graph: TensorBoard takes too long to lay out more."""
_MAX_COPIED_BYTES = 1 << 30
_PRODUCER = 22  # the GraphDef version that torch's SummaryWriter writes


@dataclass(frozen=True)
class DrawnGraph:
    """A serialised GraphDef, and readable notes on what it lacks."""

    graph: bytes
    notes: Sequence[str] = ()


def draw_graph(network: torch.nn.Module, call: NetworkCall, *, device: torch.device) -> DrawnGraph:
    """Draw the operations of a call of `network`, which is on `device`, grouped by its modules.

    A copy is called in isolation, in eval mode and without gradients. The first attempt is a copy on `meta`, which
    takes no memory and no arithmetic; a model that reads values of its tensors is copied with its data. Nothing is
    traced or compiled, so that every model that can be called can be drawn.

    Raises what the model raises, `MemoryError` if a copy with data would take more than 1 GiB, and `SharedModuleError`
    if a copy shares modules with the model.
    """
    model = unwrap(network)
    with isolated(model), torch.no_grad():
        recorder = _record(model, call, device)
    notes = () if recorder.is_complete else (f"graph: of the model's first {MAX_OPERATIONS:,} operations only",)
    graph = GraphDef(node=recorder.nodes, versions=VersionDef(producer=_PRODUCER))
    return DrawnGraph(graph.SerializeToString(), notes)


def _record(model: torch.nn.Module, call: NetworkCall, device: torch.device) -> "_Recorder":
    try:
        return _record_copy(copy_to_meta(model)[0], call, torch.device("meta"))
    except Exception:  # any error may come from the missing data
        if any(tensor.is_meta for tensor in iter_tensors((call.args, call.kwargs))) and device.type != "meta":
            raise
        if _num_bytes(model) > _MAX_COPIED_BYTES:
            raise MemoryError(
                "the model reads values of its tensors, and a copy with data would take more than 1 GiB"
            ) from None
        return _record_copy(copy_with_data(model), call, device)


def _record_copy(copied: torch.nn.Module, call: NetworkCall, device: torch.device) -> "_Recorder":
    copied.eval()
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), (call.args, dict(call.kwargs)))
    if any(map(torch.nn.parameter.is_lazy, copied.parameters())):
        copied(*args, **kwargs)  # initialises weights, which does not belong in the graph
    named = [*zip(call.names, args, strict=True), *kwargs.items()]
    names = [f"input/{name}" for given, value in named for name in _tensor_names(given, len(list(iter_tensors(value))))]
    if len(names) == 1:
        names = ["input"]  # a box around it would hide it
    recorder = _Recorder(copied)
    recorder.record(names, args, kwargs)
    return recorder


def _tensor_names(argument: str, count: int) -> Sequence[str]:
    """Name the `count` tensors in an argument."""
    return [argument] if count == 1 else [f"{argument}_{index}" for index in range(count)]


def _num_bytes(model: torch.nn.Module) -> int:
    return sum(each.nbytes for each in (*model.parameters(), *model.buffers()) if not torch.nn.parameter.is_lazy(each))


class _LimitError(BaseException):
    """The limit is exceeded. Not an `Exception`, so that networks that catch those do not catch it."""


class _Recorder(TorchFunctionMode):
    """Records a call of a network as nodes of a graph, up to `MAX_OPERATIONS`; then `is_complete` is False.

    Nodes are the outermost calls of torch functions and tensor methods that return tensors. A module with no visible
    call, such as a scripted one, is a node as a whole. Names are unique and contain the modules around the call:
    `Net/Conv2d[first]/conv2d`. TensorBoard shows shapes on the edges, and attributes when a node is selected.
    """

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.nodes: list[NodeDef] = []
        self.is_complete = True
        self._network = network
        self._scopes = _scopes(network)
        self._stack: list[torch.nn.Module] = []
        self._name_counts: Counter[str] = Counter()
        # Holds each tensor during the pass, so that ids stay unique.
        self._producers: dict[int, tuple[torch.Tensor, str]] = {}
        self._parameters = {
            id(tensor): name for held in (network.named_parameters(), network.named_buffers()) for name, tensor in held
        }

    def record(self, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Call the network; `names` are those of the tensors in its inputs. Raises what the network raises."""
        # Hooks for all modules, as scripted modules accept none of their own; those of other networks are ignored.
        handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),  # also after an error, which may be caught
        ]
        try:
            for name, tensor in zip(names, iter_tensors((args, kwargs)), strict=True):
                self._add(name, "input", [], [tensor])
            with self:
                outputs = self._network(*args, **kwargs)
            self._add("output", "output", iter_tensors(outputs), [])
        except _LimitError:
            self.is_complete = False
        finally:
            for handle in handles:
                handle.remove()

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        kind = _kind_of(func)
        produced = list(iter_tensors(args[0] if kind == "setitem" else outputs))
        if produced:
            scope = f"{self._scopes[self._stack[-1]]}/" if self._stack else ""
            self._add(scope + kind, kind, iter_tensors((args, kwargs)), produced)
        return outputs

    def _enter(self, module: torch.nn.Module, _args: Any) -> None:
        """Handle the start of a module."""
        if module in self._scopes:
            self._stack.append(module)

    def _leave(self, module: torch.nn.Module, args: Any, outputs: Any) -> None:
        """Handle the end of a module."""
        if module not in self._scopes:
            return
        self._stack.pop()
        unknown = [tensor for tensor in iter_tensors(outputs) if not self._is_known(tensor)]
        if unknown:
            kind = type(module).__name__
            self._add(f"{self._scopes[module]}/{kind}", kind, iter_tensors(args), unknown)

    def _is_known(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._producers or id(tensor) in self._parameters

    def _add(self, name: str, kind: str, used: Iterable[torch.Tensor], produced: Sequence[torch.Tensor]) -> None:
        """Add a node by the tensors that it used and produced: `name:1` is the second one that another produced."""
        if len(self.nodes) == MAX_OPERATIONS:
            raise _LimitError
        self._name_counts[name] += 1
        if self._name_counts[name] > 1:
            name = f"{name}_{self._name_counts[name] - 1}"
        used = list({id(tensor): tensor for tensor in used}.values())
        inputs = [self._producers[id(tensor)][1] for tensor in used if id(tensor) in self._producers]
        weights = {self._parameters[id(each)]: list(each.shape) for each in used if id(each) in self._parameters}
        shapes = [TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in each.shape]) for each in produced]
        attributes = {"_output_shapes": AttrValue(list=AttrValue.ListValue(shape=shapes))}
        if weights:
            text = "; ".join(f"{weight} {shape}" for weight, shape in weights.items())
            attributes["parameters"] = AttrValue(s=text.encode())
        if self._stack and not any(self._stack[-1].children()):  # whose `repr` is short
            attributes["module"] = AttrValue(s=repr(self._stack[-1]).encode())
        self.nodes.append(NodeDef(name=name, op=kind, input=inputs, attr=attributes))
        for index, tensor in enumerate(produced):
            self._producers[id(tensor)] = (tensor, f"{name}:{index}" if index else name)


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
