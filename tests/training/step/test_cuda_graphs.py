"""Captured steps: the same training as with eager steps, even if settings change between two steps.

`CpuGraphDevice` records a step as a device does: it keeps the operations and their current values without running
them, and later repeats them on the same memory.
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
from runmanager.training.options.job import Precision, TrainingOptions
from runmanager.training.step import cuda_graphs as graphs
from runmanager.training.step.amp import CountingScaler
from runmanager.training.step.cuda_graphs import CudaGraphs, graph_device
from runmanager.training.step.optimizers import build_optimizer, build_scheduler
from runmanager.training.step.stepper import Forward, Stepper

NUM_STEPS = 12
BATCH, LAST = 8, 3


class CpuGraphDevice:
    """A `GraphDevice` that imitates capturing on the CPU."""

    def __init__(self, stepper: Stepper, *, waits: list[str] | None = None, refuses: Exception | None = None) -> None:
        self.captures = self.replays = self.side_steps = 0
        self._network, self._optimizer = stepper.network, stepper._optimizer
        self._waits = waits or []
        self._refuses = refuses

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        self.side_steps += 1
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
        options = [{key: value for key, value in group.items() if key != "params"} for group in groups]
        assert all(group.get("capturable", True) for group in groups)
        result = self._without_side_effects(work)
        parameters = list(self._network.parameters())
        gradients = [parameter.grad for parameter in parameters]
        for gradient in gradients:
            gradient.fill_(float("nan"))  # a capture computes nothing

        def replay() -> None:
            self.replays += 1
            now = [dict(group) for group in groups]
            for group, values in zip(groups, options, strict=True):
                group.update(values)  # a captured step does not see later changes by the host
            current_gradients = [parameter.grad for parameter in parameters]
            for target, value in zip(result, work(), strict=True):
                target.copy_(value)
            for parameter, target, current in zip(parameters, gradients, current_gradients, strict=True):
                target.copy_(parameter.grad)
                parameter.grad = current  # a captured step fills the same memory, regardless of what refers to it
            for group, values in zip(groups, now, strict=True):
                group.update(values)

        return replay, result

    def _without_side_effects(self, work: Callable[[], tuple[torch.Tensor, torch.Tensor]]):
        tensors = [*self._network.parameters(), *self._network.buffers()]
        tensors += [each for state in self._optimizer.state.values() for each in state.values()]
        before = [each.detach().clone() for each in tensors]
        result = work()
        with torch.no_grad():
            for each, value in zip(tensors, before, strict=True):
                each.copy_(value)
        return tuple(each.clone() for each in result)


class Training:
    """Steps on fixed batches, and their results."""

    def __init__(self, optimizer=None, schedule=None, *, scaler=False, seed=0) -> None:
        torch.manual_seed(seed)
        # The gradient of a bias before the normalisation is only rounding noise, which Adam would amplify.
        self.network = nn.Sequential(nn.Linear(5, 7, bias=False), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))
        options = optimizer or AdamOptions()
        self.optimizer = build_optimizer(options, self.network.parameters(), lr=0.05)
        self.scheduler = build_scheduler(
            schedule or ConstantOptions(), self.optimizer, num_epochs=1, steps_per_epoch=NUM_STEPS
        )
        self.stepper = Stepper(Forward(self.network), self.optimizer, scaler=CountingScaler("cpu") if scaler else None)
        self.losses: list[torch.Tensor] = []
        self.messages: list[str] = []

    def replaying(self, *, num_warmups=2, required=False, **how) -> "Training":
        self.device = CpuGraphDevice(self.stepper, **how)
        self.stepper.use_graphs(self.device, num_warmups=num_warmups, required=required, notify=self.messages.append)
        return self

    def run(self, start=0, stop=NUM_STEPS) -> "Training":
        for number in range(start, stop):
            generator = torch.Generator().manual_seed(number)
            size = LAST if number % 4 == 3 else BATCH  # each epoch of four steps ends with a smaller batch
            images, labels = torch.rand(size, 5, generator=generator), torch.randint(3, (size,), generator=generator)
            loss, preds = self.stepper.train(images, labels)
            assert preds.shape == (size, 3)
            self.losses.append(loss.clone())  # the next step may write to it
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
def test_replayed_steps_train_as_eager_ones(optimizer, schedule):
    plain = Training(optimizer, schedule).run()
    graphed = Training(optimizer, schedule).replaying().run()
    # The device reads the learning rates as float32.
    assert torch.allclose(graphed.numbers(), plain.numbers(), rtol=1e-5)
    assert (graphed.device.captures, graphed.device.replays) == (1, NUM_STEPS - 2 - 3)
    assert not graphed.messages
    assert all(isinstance(group["lr"], float) for group in graphed.optimizer.param_groups)
    assert not any(group.get("capturable") for group in graphed.optimizer.param_groups)
    assert alike(graphed.gradients(), plain.gradients())


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5, 6])
def test_gradients_are_correct_after_each_kind_of_step(stop):
    plain, graphed = Training().run(stop=stop), Training().replaying().run(stop=stop)
    assert alike(graphed.gradients(), plain.gradients())


def test_a_returned_loss_does_not_change_later():
    graphed = Training().replaying().run()
    assert len({float(loss) for loss in graphed.losses}) == len(graphed.losses)


def test_scaled_gradients_are_applied_outside_the_captured_step():
    plain = Training(scaler=True).run()
    graphed = Training(scaler=True).replaying().run()
    assert torch.equal(graphed.numbers(), plain.numbers())
    assert graphed.stepper.state_dict() == plain.stepper.state_dict()
    assert graphed.device.replays


@pytest.mark.parametrize("broken_at", [1, 6])
def test_a_resumed_training_equals_an_uninterrupted_one(broken_at):
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


def test_a_step_is_captured_with_the_last_warm_up_step():
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
def test_a_step_that_cannot_be_captured_runs_eagerly_or_is_refused(how, why):
    plain = Training().run()
    graphed = Training().replaying(**how).run()
    assert torch.equal(graphed.numbers(), plain.numbers())
    (line,) = graphed.messages
    assert line.startswith("graphs: steps are not replayed") and why in line
    with pytest.raises(ConfigurationError, match=r"`graphs` must be auto or false for this model, got true; its step"):
        Training().replaying(required=True, **how).run()


def test_out_of_memory_during_a_required_capture_is_raised():
    lacking = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    graphed = Training().replaying(refuses=lacking).run()
    assert torch.equal(graphed.numbers(), Training().run().numbers())
    assert "cannot be captured: CUDA out of memory" in graphed.messages[0]
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
        ({"graphs": "auto", "micro_batch": None}, "cuda", True),
        ({"graphs": "auto", "micro_batch": 10}, "cuda", True),
    ],
)
def test_which_settings_capture_steps(monkeypatch, changes, device, captures):
    monkeypatch.setattr(graphs, "CudaGraphs", lambda device: device)
    options = dataclasses.replace(TrainingOptions(model=CnnOptions()), **changes)
    assert (graph_device(options, torch.device(device)) is not None) is captures


class DeviceError(RuntimeError):
    """An error of the device itself."""


class FakeCapture:
    """Replacement for `torch.cuda.graph`: its stream is current during the capture, and after a failed one.

    After an error of the device, ending the capture fails too; after an error of the host it does not.
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
def clean_up_calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Records the clean-up calls, on a fake CUDA device."""
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


ALL_CLEAN_UP_CALLS = ["a new state", ("_cuda_endAllocateToPool", 0, (0, 1)), ("_cuda_releasePool", 0, (0, 1))]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [(DeviceError, ALL_CLEAN_UP_CALLS), (RuntimeError, [])],
    ids=["of the device's", "of the host's"],
)
def test_a_failed_capture_raises_its_cause_and_is_cleaned_up(clean_up_calls, kind, wanted):
    def unable() -> tuple[torch.Tensor, torch.Tensor]:
        raise kind("a value was read")

    with pytest.raises(kind, match="a value was read"):
        CudaGraphs(torch.device("cuda")).capture(unable)
    assert FakeCapture.current == "the run's"
    assert clean_up_calls == wanted
    result = torch.ones(()), torch.ones(2, 3)
    assert CudaGraphs(torch.device("cuda")).capture(lambda: result)[1] is result
    assert clean_up_calls == wanted


def test_a_replay_copies_none_of_its_results():
    stepper = Training().replaying().run(0, 3).stepper
    images, labels = torch.rand(BATCH, 5), torch.zeros(BATCH, dtype=torch.int64)
    first, second = (stepper.train(images, labels) for _ in range(2))
    assert [each.data_ptr() for each in first] == [each.data_ptr() for each in second]


def test_the_checks_for_a_gpu_hold_for_a_device_that_imitates_one(monkeypatch):
    from ...gpu import test_cuda_runs as checks

    use_graphs = Stepper.use_graphs
    monkeypatch.setattr(checks, "DEVICE", torch.device("cpu"))
    monkeypatch.setattr(checks, "IS_CUDA", False)
    monkeypatch.setattr(checks, "CudaGraphs", lambda device: None)
    monkeypatch.setattr(Stepper, "use_graphs", lambda self, _, **how: use_graphs(self, CpuGraphDevice(self), **how))
    checks.test_captured_steps_train_like_others(AdamOptions(), Precision.FP32)
