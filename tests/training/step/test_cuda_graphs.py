"""Captured steps: the same training as without, whatever changes between two steps.

The stand-in writes a step down as a device does: it keeps what the host had said to do, with the values of that time,
does nothing, and later does it again and again on the same memory.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from runmanager.errors import ConfigurationError
from runmanager.training.options.groups import AdamOptions, CnnOptions, ConstantOptions, OneCycleOptions, SgdOptions
from runmanager.training.options.job import TrainingOptions
from runmanager.training.step import cuda_graphs as graphs
from runmanager.training.step.amp import CountingScaler
from runmanager.training.step.cuda_graphs import CudaGraphs, graph_device
from runmanager.training.step.optimizers import build_optimizer
from runmanager.training.step.schedulers import build_scheduler
from runmanager.training.step.stepper import Forward, Stepper

NUM_STEPS = 12
BATCH, LAST = 8, 3


class StandIn:
    """Captures on the CPU."""

    def __init__(self, stepper: Stepper, *, waits: list[str] | None = None, refuses: Exception | None = None) -> None:
        self.captures = self.replays = self.beside_steps = 0
        self._network, self._optimizer = stepper.network, stepper._optimizer
        self._waits = waits or []
        self._refuses = refuses

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        self.beside_steps += 1
        yield

    @contextmanager
    def record_waits(self) -> Iterator[list[str]]:
        waits: list[str] = []
        yield waits
        waits += self._waits

    def capture(self, work: Callable[[], tuple[torch.Tensor, torch.Tensor]]):
        if self._refuses is not None:
            raise self._refuses
        self.captures += 1
        groups = self._optimizer.param_groups
        said = [{key: value for key, value in group.items() if key != "params"} for group in groups]
        assert all(group.get("capturable", True) for group in groups)
        made = self._without_doing(work)
        parameters = list(self._network.parameters())
        gradients = [parameter.grad for parameter in parameters]
        for gradient in gradients:
            gradient.fill_(float("nan"))  # nothing was computed

        def replay() -> None:
            self.replays += 1
            now = [dict(group) for group in groups]
            for group, values in zip(groups, said, strict=True):
                group.update(values)  # a captured step knows nothing of what the host has said since
            pointed_at = [parameter.grad for parameter in parameters]
            for place, value in zip(made, work(), strict=True):
                place.copy_(value)
            for parameter, place, pointer in zip(parameters, gradients, pointed_at, strict=True):
                place.copy_(parameter.grad)
                parameter.grad = pointer  # a captured step fills memory, and knows nothing of who points at it
            for group, values in zip(groups, now, strict=True):
                group.update(values)

        return replay, made

    def _without_doing(self, work: Callable[[], tuple[torch.Tensor, torch.Tensor]]):
        tensors = [*self._network.parameters(), *self._network.buffers()]
        tensors += [each for state in self._optimizer.state.values() for each in state.values()]
        before = [each.detach().clone() for each in tensors]
        made = work()
        with torch.no_grad():
            for each, value in zip(tensors, before, strict=True):
                each.copy_(value)
        return tuple(each.clone() for each in made)


class Training:
    """Some steps on fixed batches, and what they came to."""

    def __init__(self, optimizer=None, schedule=None, *, scaler=False, seed=0) -> None:
        torch.manual_seed(seed)
        # A bias before the normalisation would have gradients of rounding alone, which Adam makes large.
        self.network = nn.Sequential(nn.Linear(5, 7, bias=False), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))
        options = optimizer or AdamOptions()
        self.optimizer = build_optimizer(options, self.network.parameters(), lr=0.05)
        self.scheduler = build_scheduler(
            schedule or ConstantOptions(), self.optimizer, num_epochs=1, steps_per_epoch=NUM_STEPS
        )
        self.stepper = Stepper(Forward(self.network), self.optimizer, scaler=CountingScaler("cpu") if scaler else None)
        self.losses: list[torch.Tensor] = []
        self.told: list[str] = []

    def replaying(self, *, num_warmups=2, required=False, **how) -> "Training":
        self.device = StandIn(self.stepper, **how)
        self.stepper.use_graphs(self.device, num_warmups=num_warmups, required=required, notify=self.told.append)
        return self

    def run(self, start=0, stop=NUM_STEPS) -> "Training":
        for number in range(start, stop):
            generator = torch.Generator().manual_seed(number)
            size = LAST if number % 4 == 3 else BATCH  # each epoch of four steps ends with a smaller batch
            images, labels = torch.rand(size, 5, generator=generator), torch.randint(3, (size,), generator=generator)
            loss, preds = self.stepper.train(images, labels)
            assert preds.shape == (size, 3)
            self.losses.append(loss)
            self.scheduler.step()
            if number % 4 == 3:
                self.network.eval()
                with torch.no_grad():
                    self.losses.append(self.stepper.evaluate(images, labels)[0])
                self.network.train()
        return self

    def numbers(self) -> torch.Tensor:
        return torch.stack(self.losses)

    def gradients(self) -> list[torch.Tensor]:
        return [parameter.grad for parameter in self.network.parameters()]


def alike(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.allclose(*pair, rtol=1e-3, atol=1e-6) for pair in zip(some, others, strict=True))


KINDS = [
    pytest.param(AdamOptions(), id="fused"),
    pytest.param(AdamOptions(fused=False), id="not fused"),
    pytest.param(SgdOptions(momentum=0.9, fused=True), id="fused sgd"),
    pytest.param(SgdOptions(momentum=0.9), id="sgd"),
]


@pytest.mark.parametrize("optimizer", KINDS)
@pytest.mark.parametrize("schedule", [ConstantOptions(), OneCycleOptions()])
def test_replayed_steps_train_as_others_do(optimizer, schedule):
    plain = Training(optimizer, schedule).run()
    graphed = Training(optimizer, schedule).replaying().run()
    # Rates are float32 where a device reads them.
    assert torch.allclose(graphed.numbers(), plain.numbers(), rtol=1e-5)
    assert (graphed.device.captures, graphed.device.replays) == (1, NUM_STEPS - 2 - 3)
    assert not graphed.told
    assert all(isinstance(group["lr"], float) for group in graphed.optimizer.param_groups)
    assert not any(group.get("capturable") for group in graphed.optimizer.param_groups)
    assert alike(graphed.gradients(), plain.gradients())


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5, 6])
def test_gradients_are_where_one_looks_after_each_kind_of_step(stop):
    plain, graphed = Training().run(stop=stop), Training().replaying().run(stop=stop)
    assert alike(graphed.gradients(), plain.gradients())


def test_a_loss_that_is_kept_stays_what_it_was():
    graphed = Training().replaying().run()
    assert len({float(loss) for loss in graphed.losses}) == len(graphed.losses)


def test_scaled_gradients_are_used_outside_of_the_captured_step():
    plain = Training(scaler=True).run()
    graphed = Training(scaler=True).replaying().run()
    assert torch.equal(graphed.numbers(), plain.numbers())
    assert graphed.stepper.state_dict() == plain.stepper.state_dict()
    assert graphed.device.replays


@pytest.mark.parametrize("broken_at", [1, 6])
def test_a_training_goes_on_after_a_break_as_if_there_had_been_none(broken_at):
    whole = Training(schedule=OneCycleOptions()).run()
    first = Training(schedule=OneCycleOptions()).replaying().run(stop=broken_at)
    parts = ("network", "optimizer", "scheduler", "stepper")
    states = {name: getattr(first, name).state_dict() for name in parts}
    second = Training(schedule=OneCycleOptions(), seed=1)
    for name, state in states.items():
        getattr(second, name).load_state_dict(state)
    second.replaying().run(start=broken_at)
    assert torch.allclose(torch.cat([first.numbers(), second.numbers()]), whole.numbers(), rtol=1e-5)
    assert second.device.captures == 1


def test_it_is_captured_with_the_last_of_the_warm_up_steps():
    graphed = Training().replaying(num_warmups=1).run(stop=1)
    assert (graphed.device.captures, graphed.device.replays) == (1, 0)
    graphed.run(start=1, stop=2)
    assert graphed.device.replays == 1


REFUSAL = RuntimeError("operation not permitted when stream is capturing\nmore of it")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"waits": ["called a synchronizing CUDA operation"]}, "the host waits for the device in it"),
        ({"refuses": REFUSAL}, "cannot be captured: operation not permitted when stream is capturing"),
    ],
)
def test_a_step_that_cannot_be_captured_is_made_as_ever_or_refused(how, why):
    plain = Training().run()
    graphed = Training().replaying(**how).run()
    assert torch.equal(graphed.numbers(), plain.numbers())
    (line,) = graphed.told
    assert line.startswith("graphs: steps are not replayed") and why in line
    with pytest.raises(ConfigurationError, match=r"`graphs` must be auto or false for this model, got true; its step"):
        Training().replaying(required=True, **how).run()


def test_memory_that_does_not_suffice_for_a_captured_step_is_a_result_where_it_must_be_captured():
    lacking = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    graphed = Training().replaying(refuses=lacking).run()
    assert torch.equal(graphed.numbers(), Training().run().numbers())
    assert "cannot be captured: CUDA out of memory" in graphed.told[0]
    with pytest.raises(torch.OutOfMemoryError):
        Training().replaying(required=True, refuses=lacking).run()


@pytest.mark.parametrize(
    ("changes", "device", "captures"),
    [
        ({"graphs": False}, "cuda", False),
        ({"graphs": True}, "cuda", True),
        ({"graphs": "auto"}, "cuda:1", True),
        ({"graphs": True}, "cpu", False),
        ({"graphs": "auto"}, "mps", False),
        ({"graphs": "auto", "model": {"_target_": "mine.Net"}}, "cuda", False),
        ({"graphs": True, "model": {"_target_": "mine.Net"}}, "cuda", True),
        ({"graphs": "auto", "on_oom": "halve"}, "cuda", False),
        ({"graphs": "auto", "micro_batch": "auto"}, "cuda", False),
        ({"graphs": "auto", "micro_batch": 10}, "cuda", True),
    ],
)
def test_which_runs_capture_their_steps(monkeypatch, changes, device, captures):
    monkeypatch.setattr(graphs, "CudaGraphs", lambda device: device)
    options = dataclasses.replace(TrainingOptions(model=CnnOptions()), **changes)
    assert (graph_device(options, torch.device(device)) is not None) is captures


class DeviceError(RuntimeError):
    """What the device itself refuses."""


class FakeCapture:
    """`torch.cuda.graph` where there is no GPU: its stream is the current one meanwhile, and a failed capture's too.

    An error of the device ends the capture, whose own end then fails; one of the host alone does not.
    """

    current: object = "the run's"

    def __init__(self, graph: object, *, pool: object, stream: object, capture_error_mode: str) -> None:
        assert pool == (0, 1)
        self._stream = stream

    def __enter__(self) -> None:
        FakeCapture.current = self._stream

    def __exit__(self, *error: object) -> None:
        if isinstance(error[1], DeviceError):
            raise RuntimeError("operation failed due to a previous error during capture")
        FakeCapture.current = "the run's"


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was done by force, on CUDA where there is none."""
    done: list[object] = []
    generator = SimpleNamespace(clone_state=lambda: "a new state", graphsafe_set_state=done.append)
    fakes = {
        "Stream": lambda device: "the second",
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "graph": FakeCapture,
        "graph_pool_handle": lambda: (0, 1),
        "current_device": lambda: 0,
        "default_generators": [generator],
        "current_stream": lambda device: FakeCapture.current,
        "set_stream": lambda stream: setattr(FakeCapture, "current", stream),
    }
    monkeypatch.setattr(FakeCapture, "current", "the run's")
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
        monkeypatch.setattr(torch._C, name, lambda *given, name=name: done.append((name, *given)), raising=False)
    return done


ALL_BY_FORCE = ["a new state", ("_cuda_endAllocateToPool", 0, (0, 1)), ("_cuda_releasePool", 0, (0, 1))]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [(DeviceError, ALL_BY_FORCE), (RuntimeError, [])],
    ids=["of the device's", "of the host's"],
)
def test_a_capture_that_fails_says_why_and_leaves_all_as_it_was(forced, kind, wanted):
    def unable() -> tuple[torch.Tensor, torch.Tensor]:
        raise kind("a value was asked for")

    with pytest.raises(kind, match="a value was asked for"):
        CudaGraphs(torch.device("cuda")).capture(unable)
    assert FakeCapture.current == "the run's"
    assert forced == wanted
    made = torch.ones(()), torch.ones(2, 3)
    assert CudaGraphs(torch.device("cuda")).capture(lambda: made)[1] is made
    assert forced == wanted
