"""Somebody's hooks: called by their own calls and steps alone, however often a copy is called; what computes, stays."""

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.nn.utils import parametrizations, prune
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from runmanager import RunManager
from runmanager.tracking.introspect.example_call import NetworkCall
from runmanager.tracking.introspect.hook_isolation import global_hooks_disabled
from runmanager.tracking.introspect.model_copy import SharedModuleError, copy_to_meta, copy_with_data, isolated
from runmanager.tracking.introspect.step_cost import StepCost, count_step_cost
from runmanager.tracking.tensorboard.graph import draw_graph

from ..conftest import Body, Noticing

IMAGES = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def kinds(network: nn.Module, inputs: torch.Tensor = IMAGES) -> str:
    """The graph as it is written: the names of its operations are in it."""
    return draw_graph(network, NetworkCall((inputs[:1],), names=("inputs",)), device=torch.device("cpu")).graph.decode(
        "latin-1"
    )


class Diary:
    """Counts what it is called for, and cannot be copied: it has a lock."""

    def __init__(self) -> None:
        self.calls = Counter[str]()
        self._lock = threading.Lock()

    def note(self, what: str, *_: object) -> None:
        with self._lock:
            self.calls[what] += 1

    def __call__(self, *_: object) -> None:
        self.note("object")


@contextmanager
def on_everything(diary: Diary) -> Iterator[None]:
    """Hooks on all modules and all optimisers."""
    with ExitStack() as handles:
        for register, what in (
            (modules.register_module_forward_pre_hook, "any begins"),
            (modules.register_module_forward_hook, "any ends"),
            (modules.register_module_full_backward_pre_hook, "any backward"),
            (register_optimizer_step_post_hook, "any step"),
        ):
            handles.callback(register(partial(diary.note, what)).remove)
        yield


def test_hooks_are_called_by_the_loop_alone(loader: DataLoader[Any], tmp_path: Path, train: Body) -> None:
    network, diary, seen = Noticing(), Diary(), []
    network[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
    network[0].register_forward_pre_hook(lambda *_: diary.note("begins"))
    network[5].register_full_backward_hook(lambda *_: diary.note("backward"))
    network[1].register_forward_hook(diary, with_kwargs=True, always_call=True)
    network.register_forward_hook(diary.note)  # type: ignore[arg-type]  # counts by the network itself
    network.register_state_dict_post_hook(partial(diary.note, "state"))
    manager = RunManager(tmp_path / "sweep", console=False)
    with on_everything(diary), manager.run({}, network, loader) as run:
        assert not diary.calls and not seen  # the graph is drawn, the work is counted
        train(run, network, loader)
    assert run.record.measurements.operations_per_step is not None
    assert not [note for note in run.record.notes if "graph" in note or "work" in note]
    steps, num_modules = 2 * 3, len(list(network.modules()))
    assert len(seen) == steps and all(not output.is_meta for output in seen)
    assert diary.calls == {
        **dict.fromkeys(["begins", "backward", "object", network, "any step"], steps),
        **dict.fromkeys(["any begins", "any ends", "any backward"], steps * num_modules),
    }


def test_hooks_on_all_modules_are_held_back_from_this_thread_alone() -> None:
    network, diary = nn.ReLU(), Diary()
    with on_everything(diary):
        with global_hooks_disabled():
            network(IMAGES)
            assert not diary.calls
            other = threading.Thread(target=network, args=(IMAGES,))
            other.start()
            other.join(60)
            assert diary.calls["any ends"] == 1
        network(IMAGES)
        assert diary.calls["any ends"] == 2
    network(IMAGES)
    assert diary.calls["any ends"] == 2


def weight_norm(layer: nn.Linear) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the older way, by a hook
        return nn.utils.weight_norm(layer)


def pruned(layer: nn.Linear) -> nn.Module:
    return prune.l1_unstructured(layer, "weight", 0.5)


@pytest.mark.parametrize(
    ("changed", "computes_by"),
    [
        (weight_norm, "_weight_norm"),
        (nn.utils.spectral_norm, "mv"),
        (pruned, "mul"),
        (parametrizations.weight_norm, "_weight_norm"),
        (parametrizations.spectral_norm, "dot"),
    ],
)
def test_weights_that_pytorch_computes_before_a_call_are_computed(
    changed: Callable[[nn.Linear], nn.Module], computes_by: str
) -> None:
    network = nn.Sequential(nn.Flatten(), changed(nn.Linear(64, 3)))
    network(IMAGES).sum().backward()  # now the weight is no leaf, where a hook computes it
    network.zero_grad()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    weight = network[1].weight if "parametriz" not in changed.__module__ else None
    work = count_step_cost(network, IMAGES)
    plain = count_step_cost(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), IMAGES)
    assert (work.operations or 0) > (plain.operations or 0)
    assert computes_by in kinds(network)
    after = network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert weight is None or network[1].weight is weight
    assert all(parameter.grad is None for parameter in network.parameters())


class Collecting(nn.Module):
    """Takes what its layers have said by its own hooks, as models do that are made of others."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.Linear(8, 3))
        self.said: list[torch.Tensor] = []
        for layer in self.layers:
            layer.register_forward_hook(self.take)

    def take(self, _module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        self.said.append(output)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.said.clear()
        self.layers(images)
        return torch.cat([each.flatten(1) for each in self.said], dim=1)


def test_a_network_that_hooks_itself_is_followed_and_keeps_what_it_has() -> None:
    network = Collecting()
    network(IMAGES)
    said = list(network.said)
    assert "cat" in kinds(network) and count_step_cost(network, IMAGES).flop
    assert len(network.said) == 3 and all(one is other for one, other in zip(network.said, said, strict=True))
    assert count_step_cost(Collecting(), IMAGES) == count_step_cost(
        network, IMAGES
    )  # whose lazy layer had no weights yet


def test_a_layer_that_a_copy_calls_in_place_of_its_own_is_refused_where_it_has_hooks() -> None:
    class Knowing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.ReLU()
            self.call = lambda inputs: self.layer(inputs)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.call(inputs)

    network, diary = Knowing(), Diary()
    assert count_step_cost(network, IMAGES) == StepCost(0, 1, 2 * IMAGES.nbytes)
    network.layer.register_forward_pre_hook(diary)
    for look in (count_step_cost, kinds):
        with pytest.raises(SharedModuleError, match="its own ReLU"):
            look(network, IMAGES)
    assert not diary.calls


def test_a_layer_whose_forward_somebody_wrapped_keeps_what_it_has() -> None:
    network = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 2, 3))
    norm, convolution = network[0].forward, network[1].forward
    network[1].forward = lambda inputs: convolution(inputs)
    assert count_step_cost(network[:1], IMAGES).operations and "conv2d" in kinds(network)  # that keeps nothing
    network[0].forward = lambda inputs: norm(inputs)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(SharedModuleError, match="its own BatchNorm2d"):
        kinds(network)
    with pytest.raises(SharedModuleError, match="its own BatchNorm2d"):
        count_step_cost(network, IMAGES)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_what_a_network_holds_is_looked_at_once_however_it_hangs_together() -> None:
    class Node:
        def __init__(self) -> None:
            self.neighbours: list[Node] = []

    network, nodes = nn.Linear(64, 3), [Node() for _ in range(80)]
    for node in nodes:
        node.neighbours = nodes.copy()
    network.nodes = nodes  # type: ignore[assignment]
    nodes[-1].said = weight = network.weight * 2  # type: ignore[attr-defined]
    with isolated(network):
        twin, _ = copy_to_meta(network)
    assert twin.nodes[0].neighbours[-1].said.is_meta and not weight.is_meta


@pytest.mark.parametrize("copied", [copy_with_data, lambda network: copy_to_meta(network)[0]])
def test_a_copy_has_the_hooks_of_nobody_else_in_their_order(copied: Callable[[nn.Module], nn.Module]) -> None:
    network, order = nn.Linear(4, 3), []
    network.register_forward_hook(lambda *_: order.append("mine"))
    prune.identity(network, "bias")
    prune.identity(network, "weight")
    network.register_forward_pre_hook(lambda *_: order.append("mine"))
    with isolated(network):
        twin = copied(network)
        twin(torch.empty(2, 4, device=twin.weight_orig.device))
    assert [hook._tensor_name for hook in twin._forward_pre_hooks.values()] == ["bias", "weight"]
    assert not twin._forward_hooks and not order
    assert len(network._forward_pre_hooks) == 3 and len(network._forward_hooks) == 1


def test_what_a_forward_sets_for_the_whole_process_is_put_back() -> None:
    class Setting(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            torch.set_default_dtype(torch.float64)
            torch.set_grad_enabled(False)
            return super().forward(inputs)

    network = Setting(4, 2)
    with isolated(network):
        copy_to_meta(network)[0](torch.empty(1, 4, device="meta", dtype=torch.float32))
    assert torch.get_default_dtype() is torch.float32 and torch.is_grad_enabled()
