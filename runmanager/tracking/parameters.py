"""How many parameters a network has."""

import torch

__all__ = ["num_parameters"]


def num_parameters(network: torch.nn.Module) -> int | None:
    """Frozen ones too; None while a lazy module does not know its shapes."""
    parameters = list(network.parameters())
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in parameters):
        return None
    return sum(parameter.numel() for parameter in parameters)
