"""Cost of a step: correct counts for a full batch, without memory for it and without effect on the run."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from runmanager.tracking.introspect.isolation import SharedModuleError
from runmanager.tracking.introspect.step_cost import StepCost, count_step_cost

from ..conftest import SelfReferencing, Stateful

IMAGES = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))


class TutorialNet(nn.Module):
    """The tutorials' network for images (1, 28, 28)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 12, 5)
        self.fc1, self.fc2, self.out = nn.Linear(192, 120), nn.Linear(120, 60), nn.Linear(60, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        images = F.max_pool2d(F.relu(self.conv1(images)), 2)
        images = F.max_pool2d(F.relu(self.conv2(images)), 2).flatten(1)
        return self.out(F.relu(self.fc2(F.relu(self.fc1(images)))))


def test_a_linear_layer_costs_what_was_counted_by_hand() -> None:
    layer = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    # Forward: bias, weight and inputs are read, outputs written: 3 + 12 + 20 + 15 numbers. Backward, for the weight:
    # 15 + 20 read, 12 written; for the bias: 15 read, 3 written. The inputs have no gradient.
    passes = 4 * ((3 + 12 + 20 + 15) + (15 + 20 + 12) + (15 + 3))
    # Each parameter and its gradient are read, the parameter is written.
    update = 4 * (3 * 12 + 3 * 3)
    flop = 2 * 5 * 4 * 3 * 2
    assert count_step_cost(layer, torch.rand(5, 4)) == StepCost(flop, 3, passes)
    assert count_step_cost(layer, torch.rand(5, 4), optimizer=optimizer) == StepCost(flop, 3 + 2, passes + update)


def test_the_tutorials_network_has_its_known_flop() -> None:
    cost = count_step_cost(TutorialNet(), torch.rand(1000, 1, 28, 28))
    assert cost.flop == 1000 * 1_221_840


def test_a_batch_larger_than_memory_is_counted() -> None:
    batch = torch.empty(10**9, 1, 28, 28, device="meta")  # three terabytes
    assert count_step_cost(TutorialNet(), batch).flop == 10**9 * 1_221_840


def test_flop_grow_with_the_batch_and_operations_do_not() -> None:
    one, two = (count_step_cost(TutorialNet(), torch.rand(size, 1, 28, 28)) for size in (64, 128))
    assert two.flop == 2 * (one.flop or 0) and two.operations == one.operations
    weights = 4 * sum(parameter.numel() for parameter in TutorialNet().parameters())
    assert 0 < 2 * (one.bytes or 0) - (two.bytes or 0) < 10 * weights  # only the weights' bytes do not grow


class Counting(TorchDispatchMode):
    """Records the operators of a real step on its device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view and func.namespace == "aten" and "empty" not in str(func):
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("make", [Stateful, lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.GELU())])
def test_operations_are_those_of_a_real_step(make: Callable[[], nn.Module]) -> None:
    network = make().train()
    with Counting() as counting:
        outputs = network(IMAGES)
        outputs.backward(outputs.detach())
    assert count_step_cost(network, IMAGES).operations == len(counting.names)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {}),
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.RMSprop, {}),
    ],
)
def test_the_optimisers_second_step_is_counted(kind: type[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    network = Stateful()
    optimizer = kind(network.parameters(), **options)
    network(IMAGES).sum().backward()
    optimizer.step()
    with Counting() as counting:
        optimizer.step()
    passes, whole = count_step_cost(network, IMAGES), count_step_cost(network, IMAGES, optimizer=optimizer)
    assert (whole.operations or 0) - (passes.operations or 0) == len(counting.names)
    assert whole.flop == passes.flop and (whole.bytes or 0) > (passes.bytes or 0)


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}])
def test_the_bytes_of_fused_and_foreach_steps(options: dict[str, Any]) -> None:
    layer = nn.Linear(4, 3, bias=False)
    optimizer = torch.optim.Adam(layer.parameters(), **options)
    passes, whole = (count_step_cost(layer, torch.rand(5, 4), optimizer=which) for which in (None, optimizer))
    # Parameter, gradient and two moments are read, all but the gradient written.
    # The step's number is read twice and written once.
    fused = 4 * 12 * (4 + 3) + 4 * 3
    update = (whole.bytes or 0) - (passes.bytes or 0)
    assert update == fused if "fused" in options else update > 2 * fused


def test_an_optimiser_that_cannot_run_on_meta_is_left_out() -> None:
    network = Stateful()
    optimizer = torch.optim.LBFGS(network.parameters())  # its step requires a closure
    assert count_step_cost(network, IMAGES, optimizer=optimizer) == count_step_cost(network, IMAGES)
    fused = torch.optim.SGD(network.parameters(), fused=True)  # its kernel does not support `meta`
    assert count_step_cost(network, IMAGES, optimizer=fused) == count_step_cost(network, IMAGES)


def test_the_run_does_not_change() -> None:
    torch.manual_seed(0)
    network = Stateful().train()
    network[1].eval()  # a frozen BatchNorm in a training network
    optimizer = torch.optim.Adam(network.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    network(IMAGES).sum().backward()
    optimizer.step()
    before = copy.deepcopy((network.state_dict(), optimizer.state_dict()))
    gradients = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
    modes = [module.training for module in network.modules()]
    random = torch.get_rng_state()
    assert count_step_cost(network, IMAGES, optimizer=optimizer).operations
    assert torch.equal(torch.get_rng_state(), random)
    assert [module.training for module in network.modules()] == modes
    after = network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before[0].items())
    for old, new in zip(before[1]["state"].values(), optimizer.state_dict()["state"].values(), strict=True):
        assert all(torch.equal(old[name], new[name]) for name in old)
    now = [parameter.grad for parameter in network.parameters()]
    assert all(grad is not None and torch.equal(old, grad) for old, grad in zip(gradients, now, strict=True))
    assert schedule.last_epoch == 0


def test_a_forward_pass_with_side_effects_has_none_on_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    class Printing(nn.Linear):
        calls = 0

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            print("called")
            return super().forward(inputs)

    network = Printing(4, 3)
    assert count_step_cost(network, torch.rand(5, 4)).flop == 240
    assert network.calls == 0 and capfd.readouterr() == ("", "")


def test_containers_that_a_forward_pass_changes_are_copied() -> None:
    class Appending(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)
            self.words, self.merges, self.sizes, self.seen = {"a": 0}, {("a", "b"): 0}, [1], {1}
            self.mixed: dict[str, list[int]] = {"sizes": self.sizes}

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            self.words["b"] = self.merges["b", "c"] = len(inputs)
            self.seen.add(len(inputs))
            self.mixed["sizes"].append(len(inputs))
            assert self.sizes == [1, len(inputs)], "a shared object is shared in the copy"
            return super().forward(inputs)

    network = Appending()
    assert count_step_cost(network, torch.rand(5, 4)).flop == 240
    assert (network.words, network.merges, network.sizes, network.seen) == ({"a": 0}, {("a", "b"): 0}, [1], {1})


def test_a_recurrent_layer_has_flop_only() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(4, 3, batch_first=True)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.layer(inputs)[0]

    # Forward: four gates of 3 from 4 inputs and 3 states, in each of 6 steps. Backward: as many for the weights, and
    # those of the states again for all states but the first; the inputs need none.
    forward = 2 * 5 * 6 * 4 * 3 * (4 + 3)
    backward = forward + 2 * 5 * 6 * 4 * 3 * 3
    cost = count_step_cost(Recurrent(), torch.rand(5, 6, 4))
    assert cost.operations is None and cost.bytes is None
    assert cost.flop is not None and abs(cost.flop - forward - backward) <= 2 * 2 * 5 * 4 * 3 * 3  # the ends


def test_lazy_frozen_and_compiled_models() -> None:
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    known = count_step_cost(flat, IMAGES)
    assert count_step_cost(lazy, IMAGES) == known
    assert nn.parameter.is_lazy(lazy[1].weight)
    assert count_step_cost(torch.compile(flat), IMAGES) == known  # type: ignore[arg-type]  # does not compile
    frozen = flat.requires_grad_(False)
    assert count_step_cost(frozen, IMAGES).flop == 2 * 20 * 64 * 3


def test_a_model_that_reads_its_values_raises_and_does_not_change() -> None:
    class Branching(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            torch.rand(1)
            return super().forward(inputs) if float(inputs.sum()) > 0 else inputs

    network, inputs = Branching(4, 3), torch.rand(5, 4)
    random = torch.get_rng_state()
    with pytest.raises((RuntimeError, NotImplementedError)):
        count_step_cost(network, inputs)
    assert torch.equal(torch.get_rng_state(), random)


def test_a_model_whose_copy_calls_the_original_raises() -> None:
    network = SelfReferencing()
    with pytest.raises(SharedModuleError, match="a copy of the model calls the original's BatchNorm2d"):
        count_step_cost(network, IMAGES)
    assert network.norm.num_batches_tracked == 0
