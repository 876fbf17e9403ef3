"""Model copies: without user hooks, with the hooks that compute weights, and without changes to the original."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.utils.data import DataLoader

from runmanager import RunManager
from runmanager.tracking.introspect.call_recorder import NetworkCall
from runmanager.tracking.introspect.isolation import isolated
from runmanager.tracking.introspect.model_copy import copy_to_meta, copy_with_data
from runmanager.tracking.introspect.step_cost import count_step_cost
from runmanager.tracking.tensorboard.graph import draw_graph

from ..conftest import Body, Stateful
from .hook_diary import HookDiary, global_hooks

IMAGES = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def graph_text(network: nn.Module, inputs: torch.Tensor = IMAGES) -> str:
    """Return the serialised graph, which contains the names of its operations."""
    return draw_graph(network, NetworkCall((inputs[:1],), names=("inputs",)), device=torch.device("cpu")).graph.decode(
        "latin-1"
    )


def test_user_hooks_are_called_by_the_training_loop_only(loader: DataLoader[Any], tmp_path: Path, train: Body) -> None:
    network, diary, outputs = Stateful(), HookDiary(), []
    network[0].register_forward_hook(lambda module, inputs, output: outputs.append(output))
    network[0].register_forward_pre_hook(lambda *_: diary.note("forward"))
    network[5].register_full_backward_hook(lambda *_: diary.note("backward"))
    network[1].register_forward_hook(diary, with_kwargs=True, always_call=True)
    network.register_forward_hook(diary.note)  # type: ignore[arg-type]  # the event is the network itself
    network.register_state_dict_post_hook(partial(diary.note, "state"))
    manager = RunManager(tmp_path / "sweep", console=False)
    with global_hooks(diary), manager.run({}, network, loader) as run:
        assert not diary.calls and not outputs  # the graph is drawn and the step's cost is counted
        train(run, network, loader)
    assert run.record.measurements.operations_per_step is not None
    assert not [note for note in run.record.notes if "graph" in note or "work" in note]
    steps, num_modules = 2 * 3, len(list(network.modules()))
    assert len(outputs) == steps and all(not output.is_meta for output in outputs)
    assert diary.calls == {
        **dict.fromkeys(["forward", "backward", "object", network, "any step"], steps),
        **dict.fromkeys(["any forward", "any forward end", "any backward"], steps * num_modules),
    }


HAS_META_WEIGHT_NORM = torch._C._dispatch_has_kernel_for_dispatch_key("aten::_weight_norm_interface_backward", "Meta")


def weight_norm(layer: nn.Linear) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # deprecated: it uses a hook
        return nn.utils.weight_norm(layer)


def pruned(layer: nn.Linear) -> nn.Module:
    return prune.l1_unstructured(layer, "weight", 0.5)


@pytest.mark.parametrize(
    ("reparametrize", "operation"),
    [
        (weight_norm, "_weight_norm"),
        (nn.utils.spectral_norm, "mv"),
        (pruned, "mul"),
        (parametrizations.weight_norm, "_weight_norm"),
        (parametrizations.spectral_norm, "dot"),
    ],
)
def test_weights_computed_by_torchs_hooks_are_computed_in_copies(
    reparametrize: Callable[[nn.Linear], nn.Module], operation: str
) -> None:
    if operation == "_weight_norm" and not HAS_META_WEIGHT_NORM:
        pytest.skip("this PyTorch cannot differentiate it without data: a run notes that its work is unknown")
    network = nn.Sequential(nn.Flatten(), reparametrize(nn.Linear(64, 3)))
    network(IMAGES).sum().backward()  # a weight that a hook computes is not a leaf from here on
    network.zero_grad()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    weight = network[1].weight if "parametriz" not in reparametrize.__module__ else None
    work = count_step_cost(network, IMAGES)
    plain = count_step_cost(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), IMAGES)
    assert (work.operations or 0) > (plain.operations or 0)
    assert operation in graph_text(network)
    after = network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert weight is None or network[1].weight is weight
    assert all(parameter.grad is None for parameter in network.parameters())


class Collecting(nn.Module):
    """Collects the outputs of its layers through its own hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.Linear(8, 3))
        self.outputs: list[torch.Tensor] = []
        for layer in self.layers:
            layer.register_forward_hook(self.collect)

    def collect(self, _module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        self.outputs.append(output)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.outputs.clear()
        self.layers(images)
        return torch.cat([each.flatten(1) for each in self.outputs], dim=1)


def test_a_network_with_hooks_of_its_own_modules_is_copied_with_them() -> None:
    network = Collecting()
    network(IMAGES)
    outputs = list(network.outputs)
    assert "cat" in graph_text(network) and count_step_cost(network, IMAGES).flop
    assert len(network.outputs) == 3 and all(one is other for one, other in zip(network.outputs, outputs, strict=True))
    uninitialized = Collecting()  # its lazy layer has no weights yet
    assert count_step_cost(uninitialized, IMAGES) == count_step_cost(network, IMAGES)


def test_objects_that_refer_to_each_other_are_visited_once() -> None:
    class Node:
        def __init__(self) -> None:
            self.neighbours: list[Node] = []

    network, nodes = nn.Linear(64, 3), [Node() for _ in range(80)]
    for node in nodes:
        node.neighbours = nodes.copy()
    network.nodes = nodes  # type: ignore[assignment]
    nodes[-1].output = weight = network.weight * 2  # type: ignore[attr-defined]
    with isolated(network):
        twin, _ = copy_to_meta(network)
    assert twin.nodes[0].neighbours[-1].output.is_meta and not weight.is_meta


@pytest.mark.parametrize("make_copy", [copy_with_data, lambda network: copy_to_meta(network)[0]])
def test_a_copy_has_torchs_hooks_only_in_their_order(make_copy: Callable[[nn.Module], nn.Module]) -> None:
    network, order = nn.Linear(4, 3), []
    network.register_forward_hook(lambda *_: order.append("user"))
    prune.identity(network, "bias")
    prune.identity(network, "weight")
    network.register_forward_pre_hook(lambda *_: order.append("user"))
    with isolated(network):
        twin = make_copy(network)
        twin(torch.empty(2, 4, device=twin.weight_orig.device))
    assert [hook._tensor_name for hook in twin._forward_pre_hooks.values()] == ["bias", "weight"]
    assert not twin._forward_hooks and not order
    assert len(network._forward_pre_hooks) == 3 and len(network._forward_hooks) == 1
