"""The model's graph for TensorBoard, drawn from a copy so that nothing about the model or the run changes."""

import contextlib
import io
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.versions_pb2 import VersionDef
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._pytree import tree_map_only

from runmanager.tracking.network_call import NetworkCall
from runmanager.tracking.randomness import preserved
from runmanager.tracking.recording import Operation, Recording, record_pass, tensors_in
from runmanager.tracking.twins import unwrapped, with_data, without_data

__all__ = ["MAX_OPERATIONS", "DrawnGraph", "draw_graph"]

MAX_OPERATIONS = 5000
"""Of a graph: TensorBoard lays out no more in a time that anybody would wait."""
_MAX_COPIED_BYTES = 1 << 30
_PRODUCER = 22  # the version of GraphDef that TensorBoard's own PyTorch writer gives


@dataclass(frozen=True)
class DrawnGraph:
    """A GraphDef, serialised, and readable notes on what it lacks."""

    graph: bytes
    notes: Sequence[str] = ()


def draw_graph(network: torch.nn.Module, call: NetworkCall, *, device: torch.device) -> DrawnGraph:
    """What `network`, which is on `device`, does in a call: its operations, in the boxes of its modules.

    A copy makes the call, in eval mode, without gradients, with every random state, warning and line of output kept
    back: first one without data, which costs neither memory nor arithmetic; where the model asks for the values in its
    tensors, one with data. Nothing is traced or compiled, so that whatever can be called can be drawn.

    Raises whatever the model raises, `MemoryError` where a copy with data would take more than 1 GiB, and
    `_SharedError` where a copy shares with the model what a call would change.
    """
    model = unwrapped(network)
    with preserved(), torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with _left_alone(model):
            recording = _record(model, call, device)
    notes = () if recording.is_whole else (f"graph: of the model's first {MAX_OPERATIONS:,} operations only",)
    nodes = [_node(each) for each in recording.operations]
    return DrawnGraph(GraphDef(node=nodes, versions=VersionDef(producer=_PRODUCER)).SerializeToString(), notes)


class _SharedError(Exception):
    """A copy of a model is not one throughout."""


@contextlib.contextmanager
def _left_alone(model: torch.nn.Module) -> Iterator[None]:
    """Raises `_SharedError` where this thread calls a module of `model` that keeps something, as BatchNorm does.

    A copy can do that by a function that knows the model itself, as `lambda x: self.norm(x)`.
    """
    keeping = {module for module in model.modules() if any(True for _ in module.buffers(recurse=False))}
    thread = threading.get_ident()

    def refuse(module: torch.nn.Module, _args: object) -> None:
        if module in keeping and threading.get_ident() == thread:
            raise _SharedError(f"a copy of it calls its own {type(module).__name__}, and would change what that keeps")

    handle = register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()


def _record(model: torch.nn.Module, call: NetworkCall, device: torch.device) -> Recording:
    try:
        return _recorded(_copied(without_data(model)[0], model), call, torch.device("meta"))
    except Exception:  # whatever it is, it may come of what a copy without data cannot do
        if _num_bytes(model) > _MAX_COPIED_BYTES:
            raise MemoryError("it asks for values, and a copy of it would take more than 1 GiB") from None
        return _recorded(_copied(with_data(model), model), call, device)


def _copied(twin: torch.nn.Module, model: torch.nn.Module) -> torch.nn.Module:
    """The twin; raises `_SharedError` where a module says of itself how it is copied, and is not."""
    if shared := set(twin.modules()).intersection(model.modules()):
        raise _SharedError(f"a copy of it has the same {type(next(iter(shared))).__name__}")
    return twin


def _recorded(twin: torch.nn.Module, call: NetworkCall, device: torch.device) -> Recording:
    twin.eval()
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), (call.args, dict(call.kwargs)))
    if any(map(torch.nn.parameter.is_lazy, twin.parameters())):
        twin(*args, **kwargs)  # to make its weights is no part of what it does
    named = [*zip(call.names, args, strict=True), *kwargs.items()]
    names = [f"input/{name}" for given, value in named for name in _names(given, len(list(tensors_in(value))))]
    if len(names) == 1:
        names = ["input"]  # a box of its own would hide it
    return record_pass(twin, args, kwargs, names=names, limit=MAX_OPERATIONS)


def _names(given: str, count: int) -> Sequence[str]:
    """The names of the tensors in an argument."""
    return [given] if count == 1 else [f"{given}_{place}" for place in range(count)]


def _num_bytes(model: torch.nn.Module) -> int:
    return sum(each.nbytes for each in (*model.parameters(), *model.buffers()) if not torch.nn.parameter.is_lazy(each))


def _node(operation: Operation) -> NodeDef:
    """An operation as TensorBoard shows it: shapes on the edges, the rest beside it when it is clicked on."""
    shapes = [TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in shape]) for shape in operation.shapes]
    attributes = {"_output_shapes": AttrValue(list=AttrValue.ListValue(shape=shapes))}
    if operation.parameters:
        weights = "; ".join(f"{name} {list(shape)}" for name, shape in operation.parameters.items())
        attributes["parameters"] = AttrValue(s=weights.encode())
    if operation.module:
        attributes["module"] = AttrValue(s=operation.module.encode())
    return NodeDef(name=operation.name, op=operation.kind, input=operation.inputs, attr=attributes)
