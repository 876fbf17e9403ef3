"""The model's graph for TensorBoard, recorded from a copy so that neither the model nor the run changes."""

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
        recording = _record(model, call, device)
    notes = () if recording.is_complete else (f"graph: of the model's first {MAX_OPERATIONS:,} operations only",)
    nodes = [_node(each) for each in recording.operations]
    return DrawnGraph(GraphDef(node=nodes, versions=VersionDef(producer=_PRODUCER)).SerializeToString(), notes)


def _record(model: torch.nn.Module, call: NetworkCall, device: torch.device) -> Recording:
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


def _record_copy(copied: torch.nn.Module, call: NetworkCall, device: torch.device) -> Recording:
    copied.eval()
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), (call.args, dict(call.kwargs)))
    if any(map(torch.nn.parameter.is_lazy, copied.parameters())):
        copied(*args, **kwargs)  # initialises weights, which does not belong in the graph
    named = [*zip(call.names, args, strict=True), *kwargs.items()]
    names = [f"input/{name}" for given, value in named for name in _tensor_names(given, len(list(iter_tensors(value))))]
    if len(names) == 1:
        names = ["input"]  # a box around it would hide it
    return record_operations(copied, args, kwargs, names=names, limit=MAX_OPERATIONS)


def _tensor_names(argument: str, count: int) -> Sequence[str]:
    """Name the `count` tensors in an argument."""
    return [argument] if count == 1 else [f"{argument}_{index}" for index in range(count)]


def _num_bytes(model: torch.nn.Module) -> int:
    return sum(each.nbytes for each in (*model.parameters(), *model.buffers()) if not torch.nn.parameter.is_lazy(each))


def _node(operation: Operation) -> NodeDef:
    """Convert an operation: TensorBoard shows shapes on the edges, and attributes when a node is selected."""
    shapes = [TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in shape]) for shape in operation.shapes]
    attributes = {"_output_shapes": AttrValue(list=AttrValue.ListValue(shape=shapes))}
    if operation.parameters:
        weights = "; ".join(f"{name} {list(shape)}" for name, shape in operation.parameters.items())
        attributes["parameters"] = AttrValue(s=weights.encode())
    if operation.module:
        attributes["module"] = AttrValue(s=operation.module.encode())
    return NodeDef(name=operation.name, op=operation.kind, input=operation.inputs, attr=attributes)
