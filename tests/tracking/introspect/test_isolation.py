"""Isolation of model copies: hooks, modes, output and warnings, without effect on other threads."""

import contextlib
import io
import os
import sys
import threading
import warnings

import pytest
import torch
from torch import nn

from runmanager.tracking.introspect.call_recorder import NetworkCall
from runmanager.tracking.introspect.isolation import SharedModuleError, global_hooks_disabled, isolated, quiet_thread
from runmanager.tracking.introspect.model_copy import copy_to_meta
from runmanager.tracking.introspect.step_cost import StepCost, count_step_cost
from runmanager.tracking.tensorboard.graph import draw_graph

from .hook_diary import HookDiary, global_hooks

IMAGES = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def draw(network: nn.Module, inputs: torch.Tensor = IMAGES) -> str:
    """Return the serialised graph, which contains the names of its operations."""
    call = NetworkCall((inputs[:1],), names=("inputs",))
    return draw_graph(network, call, device=torch.device("cpu")).graph.decode("latin-1")


def run_in_thread(function: object) -> None:
    thread = threading.Thread(target=function)  # type: ignore[arg-type]
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("error")
def test_only_this_thread_is_quiet_and_only_within_the_body(capsys: pytest.CaptureFixture[str]) -> None:
    def others() -> None:
        print("of another thread")
        with pytest.warns(UserWarning, match="of another"):
            warnings.warn("of another", stacklevel=1)

    before = sys.stdout
    with quiet_thread():
        print("suppressed")
        sys.stdout.writelines(["sup", "pressed"])
        warnings.warn("suppressed", stacklevel=1)  # warnings are errors in this test
        run_in_thread(others)
    print("afterwards")
    with pytest.raises(UserWarning, match="afterwards"):
        warnings.warn("afterwards", stacklevel=1)
    assert sys.stdout is before
    assert capsys.readouterr().out == "of another thread\nafterwards\n"


@pytest.mark.filterwarnings("error")
def test_a_redirection_that_outlives_the_body_restores_a_stream_that_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Another thread may redirect output and change warning filters within the body and restore them after it."""
    filters, before = warnings.filters, sys.stdout
    overlapping = contextlib.ExitStack()
    try:
        with quiet_thread():
            overlapping.enter_context(contextlib.redirect_stdout(io.StringIO()))
            overlapping.enter_context(warnings.catch_warnings())
        with pytest.raises(UserWarning, match="within"):
            warnings.warn("within", stacklevel=1)
        overlapping.close()
        print("afterwards")
        assert capsys.readouterr().out == "afterwards\n" and warnings.filters is filters
    finally:
        sys.stdout = before


def test_a_fork_can_be_quiet_while_the_parent_is() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with quiet_thread():
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks with threads
        child = os.fork()
    if child == 0:
        import signal

        signal.alarm(60)  # kills a fork that waits for the lock
        with quiet_thread():
            os._exit(7)
    done.set()
    thread.join(60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_global_hooks_are_disabled_for_this_thread_only() -> None:
    network, diary = nn.ReLU(), HookDiary()
    with global_hooks(diary):
        with global_hooks_disabled():
            network(IMAGES)
            assert not diary.calls
            other = threading.Thread(target=network, args=(IMAGES,))
            other.start()
            other.join(60)
            assert diary.calls["any forward end"] == 1
        network(IMAGES)
        assert diary.calls["any forward end"] == 2
    network(IMAGES)
    assert diary.calls["any forward end"] == 2


def test_calling_a_layer_of_the_original_with_hooks_raises() -> None:
    class BoundToOriginal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.ReLU()
            self.call = lambda inputs: self.layer(inputs)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.call(inputs)

    network, diary = BoundToOriginal(), HookDiary()
    assert count_step_cost(network, IMAGES) == StepCost(0, 1, 2 * IMAGES.nbytes)
    network.layer.register_forward_pre_hook(diary)
    for use_copy in (count_step_cost, draw):
        with pytest.raises(SharedModuleError, match="the original's ReLU"):
            use_copy(network, IMAGES)
    assert not diary.calls


def test_a_layer_with_buffers_and_a_replaced_forward_raises() -> None:
    network = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 2, 3))
    norm, convolution = network[0].forward, network[1].forward
    network[1].forward = lambda inputs: convolution(inputs)
    assert count_step_cost(network[:1], IMAGES).operations and "conv2d" in draw(network)  # a layer without buffers
    network[0].forward = lambda inputs: norm(inputs)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(SharedModuleError, match="the original's BatchNorm2d"):
        draw(network)
    with pytest.raises(SharedModuleError, match="the original's BatchNorm2d"):
        count_step_cost(network, IMAGES)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_modes_that_a_forward_sets_globally_are_restored() -> None:
    class Setting(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            torch.set_default_dtype(torch.float64)
            torch.set_grad_enabled(False)
            return super().forward(inputs)

    network = Setting(4, 2)
    with isolated(network):
        copy_to_meta(network)[0](torch.empty(1, 4, device="meta", dtype=torch.float32))
    assert torch.get_default_dtype() is torch.float32 and torch.is_grad_enabled()
