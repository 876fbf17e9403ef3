"""Recorded calls: which ones belong to a step, and that recording neither waits for the device nor lasts."""

import threading

import torch
from torch import nn

from runmanager.tracking.introspect.call_recorder import MAX_STEPS, CallRecorder


def recorder_of(network: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> CallRecorder:
    recorder = CallRecorder()
    recorder.is_in_evaluation = lambda: False
    recorder.install(network, optimizer)
    return recorder


def test_a_step_is_recorded_without_reading_a_value() -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).to("meta")  # from which nothing can be read
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    recorder = recorder_of(network, optimizer)
    inputs = torch.empty(2, 4, device="meta")
    first, second = network(inputs), network(input=inputs)
    first.sum().backward()
    optimizer.step()
    recorder.step_tracked({"samples": 2})
    (step,) = recorder.steps
    assert recorder.failure == "" and step.num_updates == 1 and step.units == {"samples": 2}
    assert [call.module for call in step.calls] == [network, network], "inner modules are part of the outer call"
    assert [list(call.passes.values()) for call in step.calls] == [[{0}], []]
    assert step.calls[1].arguments[1]["input"].shape == (2, 4)
    assert second.requires_grad


def test_calls_of_other_threads_and_of_evaluations_are_not_recorded() -> None:
    network = nn.Linear(4, 3)
    recorder = recorder_of(network)
    thread = threading.Thread(target=network, args=(torch.rand(2, 4),))
    thread.start()
    thread.join()
    recorder.is_in_evaluation = lambda: True
    network(torch.rand(2, 4))
    recorder.is_in_evaluation = None
    network(torch.rand(2, 4))
    recorder.step_tracked({"samples": 2})
    assert recorder.steps[0].calls == []


def test_an_error_in_a_call_leaves_the_next_one_recorded() -> None:
    network = nn.Sequential(nn.Linear(4, 3))
    recorder = recorder_of(network)
    for width in (5, 4):
        try:
            network(torch.rand(2, width))
        except RuntimeError:
            assert width == 5
    recorder.step_tracked({"samples": 2})
    (call,) = recorder.steps[0].calls
    assert call.arguments[0][0].shape == (2, 4)


def test_hooks_leave_inner_modules_after_a_step_and_all_in_the_end() -> None:
    network = nn.ModuleDict({"used": nn.Sequential(nn.Linear(4, 3)), "rare": nn.Linear(4, 3)})
    recorder = recorder_of(network)
    used, inner, rare = network["used"], network["used"][0], network["rare"]  # type: ignore[index]
    for number in range(MAX_STEPS):
        used(torch.rand(2, 4))
        if number == 5:
            rare(torch.rand(2, 4))
        recorder.step_tracked({"samples": 2})
        assert not inner._forward_hooks and bool(used._forward_hooks) == (number + 1 < MAX_STEPS)
    assert recorder.is_finished and not rare._forward_hooks
    assert [len(step.calls) for step in recorder.steps[4:7]] == [1, 2, 1]
    recorder.remove()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
