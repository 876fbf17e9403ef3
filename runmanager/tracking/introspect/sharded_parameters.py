"""Parameters of a network, of which a rank may hold a part."""

from typing import Any, cast

import torch

from runmanager.tracking.torch_internals import flat_parameters

__all__ = ["has_sharded_parameters", "is_sharded", "local_part", "num_parameters"]


def num_parameters(network: torch.nn.Module) -> int | None:
    """Return the number of parameters of the whole network, frozen ones included.

    None while a lazy module has unknown shapes.
    """
    parameters = list(network.parameters())
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in parameters):
        return None
    flattened = flat_parameters(network)
    held = {id(each) for flat in flattened for each in flat.held}
    count = sum(parameter.numel() for parameter in parameters if id(parameter) not in held)  # a DTensor's is global
    return count + sum(flat.num_values for flat in flattened)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor that this rank holds: what reads the others would wait for all ranks."""
    to_local: Any = getattr(tensor, "to_local", None)
    return tensor if to_local is None else cast(torch.Tensor, to_local())


def has_sharded_parameters(network: torch.nn.Module) -> bool:
    """Return whether other ranks may have parts of the network's parameters: a call of it waits for them."""
    return bool(flat_parameters(network)) or any(map(is_sharded, network.parameters()))


def is_sharded(tensor: torch.Tensor) -> bool:
    """Return whether the tensor may have parts in other ranks, as a `DTensor` has."""
    return hasattr(tensor, "to_local")
