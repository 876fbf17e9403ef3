"""The model's graph: drawn for any model, without effect on the model, random states, output or warnings."""

import contextlib
import copy
import random
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from torch import nn

from runmanager.tracking.introspect.call_recorder import example_call
from runmanager.tracking.tensorboard import graph
from runmanager.tracking.tensorboard.graph import DrawnGraph, draw_graph

from ..conftest import SelfReferencing, Stateful

BATCH = (torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.zeros(2, dtype=torch.int64))


class Noisy(nn.Module):
    """Uses every random generator, prints, warns and branches on its input in its forward pass."""

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


def random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), [str(part) for part in np.random.get_state()]


def draw(network: nn.Module, batch: Any = BATCH) -> DrawnGraph:
    call = example_call(network, batch)
    assert call is not None
    return draw_graph(network, call, device=torch.device("cpu"))


def nodes(network: nn.Module, batch: Any = BATCH) -> dict[str, NodeDef]:
    found = list(GraphDef.FromString(draw(network, batch).graph).node)
    named = {node.name: node for node in found}
    assert len(named) == len(found)
    for node in found:  # every edge has a source
        assert {name.partition(":")[0] for name in node.input} <= set(named), node.name
    return named


def node_types(network: nn.Module, batch: Any = BATCH) -> list[str]:
    return [node.op for node in nodes(network, batch).values()]


def shape(node: NodeDef) -> list[int]:
    (only,) = node.attr["_output_shapes"].list.shape
    return [each.size for each in only.dim]


def test_statistics_modes_gradients_and_random_states_do_not_change() -> None:
    torch.manual_seed(0)
    network = Stateful().train()
    network[1].eval()  # a frozen BatchNorm in a training network
    network[1].requires_grad_(False)
    before = copy.deepcopy(network.state_dict())
    modes = [module.training for module in network.modules()]
    needs = [parameter.requires_grad for parameter in network.parameters()]
    before_states = random_states()
    assert "conv2d" in node_types(network)
    assert random_states() == before_states
    assert [module.training for module in network.modules()] == modes
    assert [parameter.requires_grad for parameter in network.parameters()] == needs
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
    after = network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_noise_output_and_warnings_of_a_forward_pass_are_suppressed(capfd: pytest.CaptureFixture[str]) -> None:
    network = Noisy()
    before_states = random_states()
    assert "linear" in node_types(network)
    assert random_states() == before_states
    assert capfd.readouterr() == ("", "")


def test_resnet18_is_grouped_by_its_modules() -> None:
    found = nodes(torchvision.models.resnet18(num_classes=7), (torch.rand(1, 3, 32, 32),))
    counts = Counter(node.op for node in found.values())
    assert counts["conv2d"] == counts["batch_norm"] == 20 and counts["linear"] == 1 and counts["add_"] == 8
    block = "ResNet/Sequential[layer2]/BasicBlock[0]"
    first = found[f"{block}/Conv2d[conv1]/conv2d"]
    assert shape(first) == [1, 128, 4, 4]
    assert first.attr["parameters"].s == b"layer2.0.conv1.weight [128, 64, 3, 3]"
    assert b"stride=(2, 2)" in first.attr["module"].s
    merged = set(found[f"{block}/add_"].input)  # the block's output and its shortcut
    assert merged == {
        f"{block}/BatchNorm2d[bn2]/batch_norm",
        f"{block}/Sequential[downsample]/BatchNorm2d[1]/batch_norm",
    }
    assert list(found["output"].input) == ["ResNet/Linear[fc]/linear"]
    assert {node.op for node in found.values() if not node.input} == {"input"}  # the graph is connected


@dataclass
class Scores:
    """An output object, as some models return."""

    scores: torch.Tensor
    hidden: tuple[torch.Tensor | None, ...] = (None,)


class Elaborate(nn.Module):
    """Takes two inputs and a keyword, branches on values, and returns an object that tracers do not support."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.ones(3))
        self.gru = nn.GRU(3, 2, batch_first=True)

    def forward(self, left: torch.Tensor, right: torch.Tensor, *, mask: torch.Tensor | None = None) -> Scores:
        scores = self.left(left) * self.scale
        for _ in range(int((left > 0).sum() >= 0) + 1):
            scores = scores + self.right(right)
        if mask is not None:
            scores[mask] = 0
        steps, _last = self.gru(scores[:, None])
        first, _second = steps.chunk(2, dim=2)
        return Scores(scores, (first, None))


PAIR = torch.rand(2, 4), torch.rand(2, 4)


@pytest.mark.parametrize(
    ("batch", "inputs"),
    [
        ((*PAIR, torch.zeros(2)), {"input/left", "input/right"}),
        ((PAIR, torch.zeros(2)), {"input/left", "input/right"}),
        ({"left": PAIR[0], "right": PAIR[1], "mask": torch.ones(2, dtype=torch.bool), "label": 0}, None),
        (({"left": PAIR[0], "right": PAIR[1]}, torch.zeros(2)), {"input/left", "input/right"}),
    ],
    ids=["parts of the batch", "pair", "by name", "mapping of inputs"],
)
def test_several_inputs_branches_and_objects_can_be_draw(batch: Any, inputs: set[str] | None) -> None:
    found = nodes(Elaborate(), batch)
    assert {name for name, node in found.items() if node.op == "input"} == (
        inputs or {"input/left", "input/right", "input/mask"}
    )
    assert shape(found["input/left"]) == [1, 4]  # one sample of the batch
    assert ("Elaborate/setitem" in found) == (inputs is None)
    assert found["Elaborate/mul"].attr["parameters"].s == b"scale [3]"
    assert {"Elaborate/Linear[right]/linear", "Elaborate/Linear[right]/linear_1"} <= set(found)  # called twice
    assert set(found["output"].input) == {
        "Elaborate/add_1" if inputs else "Elaborate/setitem",
        "Elaborate/chunk",
    }


def test_the_second_of_several_outputs_has_its_own_edge() -> None:
    class Halves(nn.Module):
        def forward(self, inputs: torch.Tensor) -> dict[str, Any]:
            _first, second = inputs.flatten(1).chunk(2, dim=1)
            return {"scores": second.relu(), "number": 3, "nothing": None}

    assert list(nodes(Halves())["Halves/relu"].input) == ["Halves/chunk:1"]


def test_wrappers_are_removed_at_any_depth() -> None:
    plain = nn.Sequential(Stateful(), nn.ReLU())
    wrapped = nn.Sequential(nn.DataParallel(Stateful()), torch.compile(nn.ReLU()))
    assert list(nodes(wrapped)) == list(nodes(plain))
    assert list(nodes(torch.compile(nn.DataParallel(plain)))) == list(nodes(plain))  # does not compile


def test_a_scripted_module_is_one_operation() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.trace(nn.Sequential(nn.Linear(64, 5), nn.ReLU()), torch.rand(1, 64))
    found = nodes(nn.Sequential(nn.Flatten(), scripted, nn.Linear(5, 3)))
    (inside,) = [node for node in found.values() if "[1]" in node.name]
    assert list(inside.input) == ["Sequential/Flatten[0]/flatten"]
    assert list(found["Sequential/Linear[2]/linear"].input) == [inside.name]


def test_a_lazy_model_stays_lazy() -> None:
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    before_states = random_states()
    assert "linear" in node_types(lazy)
    assert random_states() == before_states
    assert nn.parameter.is_lazy(lazy[1].weight)


def test_a_huge_model_is_drawn_without_a_copy_of_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "_MAX_COPIED_BYTES", 100)
    assert "linear" in node_types(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)))
    with pytest.raises(MemoryError, match="reads values"):
        draw(Noisy())


def test_a_long_model_is_drawn_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MAX_OPERATIONS", 4)
    drawing = draw(Stateful())
    assert len(GraphDef.FromString(drawing.graph).node) == 4
    assert drawing.notes == ("graph: of the model's first 4 operations only",)


def test_a_batch_without_tensors_gives_no_call() -> None:
    assert example_call(Stateful(), (["words"], torch.zeros(1))) is None
    assert example_call(Stateful(), (torch.zeros(0, 1, 8, 8), torch.zeros(0))) is None
    assert example_call(Stateful(), []) is None


def test_a_model_that_raises_leaves_the_random_states() -> None:
    class Impossible(nn.Module):
        def forward(self, inputs: torch.Tensor) -> Any:
            torch.rand(1)
            raise RuntimeError("no way")

    before_states = random_states()
    with pytest.raises(RuntimeError, match="no way"):
        draw(Impossible())
    assert random_states() == before_states


class Catching(nn.Module):
    """Catches errors of a layer, and all other exceptions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(7, 3)
        self.second = nn.Linear(64, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        flat = inputs.flatten(1)
        with contextlib.suppress(RuntimeError):
            self.first(flat)
        for _ in range(20):
            with contextlib.suppress(Exception):
                flat = flat + 1
        return self.second(flat)


def test_operations_after_a_caught_error_are_outside_the_layer_that_failed():
    names = [*nodes(Catching())]
    assert "Catching/add" in names
    assert "Catching/Linear[second]/linear" in names
    assert not any("[first]" in name for name in names)


def test_the_model_cannot_catch_the_limit_on_operations(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graph, "MAX_OPERATIONS", 10)
    network = Catching()
    calls = Counter[str]()
    network.second.register_forward_pre_hook(lambda *_: calls.update(["second"]))
    assert draw(network).notes == ("graph: of the model's first 10 operations only",)
    assert not calls


class Single(SelfReferencing):
    """A singleton: copying returns the original."""

    def __deepcopy__(self, _memo: Any) -> "Single":
        return self


@pytest.mark.parametrize("kind", [SelfReferencing, Single])
def test_a_model_whose_copy_calls_the_original_is_not_drawn(kind: type[SelfReferencing]):
    network = kind()
    before = copy.deepcopy(network.state_dict())
    with pytest.raises(Exception, match="a copy of the model"):
        draw(network)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    network(BATCH[0])  # training may call it
    assert network.norm.num_batches_tracked == 1
