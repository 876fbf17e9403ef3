"""The model's graph for TensorBoard, drawn from a copy so that nothing about the model or the run changes."""

import contextlib
import copy
import io
import warnings

import torch

from runmanager.tracking.randomness import preserved

__all__ = ["trace_graph"]


def trace_graph(network: torch.nn.Module, sample: torch.Tensor) -> tuple[bytes, bytes]:
    """The graph (GraphDef) and its RunMetadata, serialised, of `network` on `sample` (1, …).

    Traces a deep copy in eval mode, without gradients, with every random state, warning and line of output kept back.
    Raises whatever tracing raises: plenty of models cannot be traced, and the caller says so in a note.
    """
    from torch.utils.tensorboard._pytorch_graph import graph

    model = getattr(network, "_orig_mod", network)  # what torch.compile wrapped; its wrapper cannot be traced
    with preserved(), torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        twin = copy.deepcopy(model).eval()
        if any(torch.nn.parameter.is_lazy(parameter) for parameter in twin.parameters()):
            twin(sample)  # tracing wants lazy layers to know their shapes
        graph_def, run_metadata = graph(twin, sample, verbose=False, use_strict_trace=False)
    return graph_def.SerializeToString(), run_metadata.SerializeToString()
