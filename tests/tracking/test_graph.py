"""The model's graph: drawn without a trace on the model, the random states or the screen."""

import copy
import random
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.compat.proto.graph_pb2 import GraphDef
from torch import nn

from runmanager.tracking.graph import trace_graph

from .conftest import Noticing

SAMPLE = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))


class Noisy(nn.Module):
    """Draws in its forward pass from every generator, prints, warns, and branches on its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        print("a line of output")
        warnings.warn("a warning", stacklevel=1)
        np.random.rand()
        random.random()
        flat = inputs.flatten(1)
        return self.layer(flat + torch.randn(()) if float(flat.sum()) > 0 else -flat)


def states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), [str(part) for part in np.random.get_state()]


def nodes(network: nn.Module, sample: torch.Tensor = SAMPLE) -> list[str]:
    graph, run_metadata = trace_graph(network, sample)
    assert run_metadata
    return [node.name for node in GraphDef.FromString(graph).node]


def test_statistics_modes_gradients_and_random_states_stay() -> None:
    torch.manual_seed(0)
    network = Noticing().train()
    network[1].eval()  # a frozen BatchNorm in a training network
    network[1].requires_grad_(False)
    before = copy.deepcopy(network.state_dict())
    modes = [module.training for module in network.modules()]
    needs = [parameter.requires_grad for parameter in network.parameters()]
    found = states()
    assert any("Conv2d" in name for name in nodes(network))
    assert states() == found
    assert [module.training for module in network.modules()] == modes
    assert [parameter.requires_grad for parameter in network.parameters()] == needs
    assert all(parameter.grad is None for parameter in network.parameters())
    after = network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_forward_pass_with_noise_words_and_warnings_is_kept_back(capfd: pytest.CaptureFixture[str]) -> None:
    network = Noisy()
    found = states()
    assert nodes(network)
    assert states() == found
    assert capfd.readouterr() == ("", "")


def test_outputs_may_be_dicts() -> None:
    class ToDict(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 3)

        def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"scores": self.layer(inputs.flatten(1))}

    assert nodes(ToDict())


def test_a_compiled_model_is_traced_as_what_it_wraps() -> None:
    network = Noticing()
    assert Counter(nodes(torch.compile(network))) == Counter(nodes(network))  # nothing is compiled for it


def test_a_lazy_model_stays_lazy() -> None:
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    found = states()
    assert nodes(lazy)
    assert states() == found
    assert nn.parameter.is_lazy(lazy[1].weight)


def test_what_cannot_be_traced_raises_and_leaves_the_random_states() -> None:
    class Impossible(nn.Module):
        def forward(self, inputs: torch.Tensor) -> Any:
            torch.rand(1)
            raise RuntimeError("no way")

    found = states()
    with pytest.raises(RuntimeError, match="no way"):
        trace_graph(Impossible(), SAMPLE)
    assert states() == found
