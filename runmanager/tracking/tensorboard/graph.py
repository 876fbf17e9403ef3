"""The model's graph for TensorBoard, drawn from a copy so that nothing about the model or the run changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.versions_pb2 import VersionDef

from runmanager.tracking.introspect.example_call import NetworkCall
from runmanager.tracking.introspect.isolation import isolated
from runmanager.tracking.introspect.model_copy import copy_to_meta, copy_with_data, unwrap
from runmanager.tracking.introspect.op_recorder import Operation, Recording, iter_tensors, record_operations
from runmanager.tracking.torch_internals import tree_map_only

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

    A copy makes the call, in eval mode, without gradients, and unnoticed: first one without data, which costs neither
    memory nor arithmetic; where the model asks for the values in its tensors, one with data. Nothing is traced or
    compiled, so that whatever can be called can be drawn.

    Raises whatever the model raises, `MemoryError` where a copy with data would take more than 1 GiB, and
    `SharedError` where a copy shares with the model what a call would change.
    """
    model = unwrap(network)
    with isolated(model), torch.no_grad():
        recording = _record(model, call, device)
    notes = () if recording.is_whole else (f"graph: of the model's first {MAX_OPERATIONS:,} operations only",)
    nodes = [_node(each) for each in recording.operations]
    return DrawnGraph(GraphDef(node=nodes, versions=VersionDef(producer=_PRODUCER)).SerializeToString(), notes)


def _record(model: torch.nn.Module, call: NetworkCall, device: torch.device) -> Recording:
    try:
        return _recorded(copy_to_meta(model)[0], call, torch.device("meta"))
    except Exception:  # whatever it is, it may come of what a copy without data cannot do
        if _num_bytes(model) > _MAX_COPIED_BYTES:
            raise MemoryError("it asks for values, and a copy of it would take more than 1 GiB") from None
        return _recorded(copy_with_data(model), call, device)


def _recorded(twin: torch.nn.Module, call: NetworkCall, device: torch.device) -> Recording:
    twin.eval()
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), (call.args, dict(call.kwargs)))
    if any(map(torch.nn.parameter.is_lazy, twin.parameters())):
        twin(*args, **kwargs)  # to make its weights is no part of what it does
    named = [*zip(call.names, args, strict=True), *kwargs.items()]
    names = [f"input/{name}" for given, value in named for name in _names(given, len(list(iter_tensors(value))))]
    if len(names) == 1:
        names = ["input"]  # a box of its own would hide it
    return record_operations(twin, args, kwargs, names=names, limit=MAX_OPERATIONS)


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
