"""The model's graph for TensorBoard, drawn from a copy so that nothing about the model or the run changes."""

import contextlib
import copy
import io
import warnings

import torch
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.step_stats_pb2 import DeviceStepStats, StepStats
from tensorboard.compat.proto.versions_pb2 import VersionDef

from runmanager.tracking.randomness import preserved

__all__ = ["trace_graph"]

_PRODUCER = 22  # the version of GraphDef that TensorBoard's own PyTorch writer gives


def trace_graph(network: torch.nn.Module, sample: torch.Tensor) -> tuple[bytes, bytes]:
    """The graph (GraphDef) and its RunMetadata, serialised, of `network` on `sample` (1, …).

    Traces a deep copy in eval mode, without gradients, with every random state, warning and line of output kept back.
    Raises whatever tracing raises: plenty of models cannot be traced, and the caller says so in a note.
    """
    from torch.utils.tensorboard._pytorch_graph import parse

    model = getattr(network, "_orig_mod", network)  # what torch.compile wrapped; its wrapper cannot be traced
    with preserved(), torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        twin = copy.deepcopy(model).eval()
        if any(torch.nn.parameter.is_lazy(parameter) for parameter in twin.parameters()):
            twin(sample)  # tracing wants lazy layers to know their shapes
        # PyTorch's own check would run the model twice more to tell of what depends on the data, and for that import
        # a second's worth of modules; what is drawn is the same.
        trace = torch.jit.trace(twin, sample, strict=False, check_trace=False)
        torch._C._jit_pass_inline(trace.graph)
        nodes = parse(trace.graph, trace, (sample,))
    steps = StepStats(dev_stats=[DeviceStepStats(device="/device:CPU:0")])  # TensorBoard shows it nowhere
    graph = GraphDef(node=nodes, versions=VersionDef(producer=_PRODUCER))
    return graph.SerializeToString(), RunMetadata(step_stats=steps).SerializeToString()
