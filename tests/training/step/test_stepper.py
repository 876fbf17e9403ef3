"""Optimiser steps: whole or in pieces, in every precision and memory format, and repeated after out of memory."""

import contextlib
import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runmanager.errors import ConfigurationError, TensorMismatchError
from runmanager.training.models.builtin_models import build_model
from runmanager.training.options.groups import CnnOptions
from runmanager.training.options.job import Precision, TrainingOptions
from runmanager.training.step.amp import CountingScaler, float32_precision, precision_faults
from runmanager.training.step.micro_batches import MicroBatches, needs_whole_batches
from runmanager.training.step.stepper import Forward, Stepper, build_stepper

CPU = torch.device("cpu")
IMAGES = (1, 16, 16)


def cnn(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return build_model(CnnOptions(), in_shape=IMAGES, num_classes=4).to(dtype)


def batch(count: int = 23, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(count, *IMAGES, generator=generator, dtype=dtype)
    return images, torch.randint(4, (count,), generator=generator)


def step_of(network: nn.Module, **changes: Any) -> Stepper:
    forward = Forward(network, **{key: changes.pop(key) for key in ("precision", "channels_last") if key in changes})
    return Stepper(forward, torch.optim.Adam(network.parameters(), lr=0.01), **changes)


def trained(network: nn.Module, *, steps: int = 3, **changes: Any) -> tuple[list[float], nn.Module]:
    stepper = step_of(network.train(), **changes)
    images, labels = batch(dtype=next(network.parameters()).dtype)
    return [stepper.train(images, labels)[0].item() for _ in range(steps)], network


def close(one: nn.Module, other: nn.Module, tolerance: float) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in pairs)


def test_a_step_equals_one_written_by_hand() -> None:
    by_hand = cnn().train()
    optimizer = torch.optim.Adam(by_hand.parameters(), lr=0.01)
    images, labels = batch()
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(by_hand(images), labels)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    losses, network = trained(cnn())
    assert losses == expected
    assert close(network, by_hand, 0)


@pytest.mark.parametrize("size", [1, 7, 12, 22])
def test_pieces_give_the_step_of_the_whole_batch(size: int) -> None:
    whole_losses, whole = trained(cnn(torch.float64))
    losses, network = trained(cnn(torch.float64), pieces=MicroBatches(size))
    assert losses == pytest.approx(whole_losses, rel=1e-12)
    assert close(network, whole, 1e-12)


@pytest.mark.parametrize("size", [None, 5, 23, 100])
def test_a_step_returns_the_loss_and_predictions_of_the_whole_batch_in_order(size: int | None) -> None:
    network = cnn(torch.float64)
    images, labels = batch(dtype=torch.float64)
    expected = network(images)
    for make in (
        step_of(network, pieces=MicroBatches(size)).evaluate,
        step_of(network, pieces=MicroBatches(size)).train,
    ):
        loss, preds = make(images, labels)
        assert torch.allclose(preds, expected, rtol=0, atol=1e-12)
        assert loss.item() == pytest.approx(F.cross_entropy(expected, labels).item(), rel=1e-12)


def test_pieces_have_nearly_equal_sizes() -> None:
    sizes = []

    def compute_piece(images: torch.Tensor, labels: torch.Tensor, share: float) -> tuple[torch.Tensor, torch.Tensor]:
        sizes.append((len(images), len(labels), share))
        return torch.zeros(()), images

    images, labels = batch(10)
    MicroBatches(4).compute(compute_piece, images, labels, network=nn.Identity())
    assert sizes == [(4, 4, 0.4), (3, 3, 0.3), (3, 3, 0.3)]


def test_channels_last_changes_only_the_layout() -> None:
    seen = []
    plain_losses, plain = trained(cnn(torch.float64))
    network = cnn(torch.float64)
    network.conv2.register_forward_hook(
        lambda module, inputs, output: seen.append(output.is_contiguous(memory_format=torch.channels_last))
    )
    losses, network = trained(network, channels_last=True)
    assert losses == pytest.approx(plain_losses, rel=1e-12)
    assert close(network, plain, 1e-10)
    assert seen and all(seen)


def test_a_batch_that_does_not_fit_is_explained() -> None:
    images, labels = batch()
    with pytest.raises(TensorMismatchError, match="channels"):
        step_of(cnn(), channels_last=True).train(images.expand(-1, 3, -1, -1), labels)


class Small(nn.Module):
    """A network with memory for `room` samples, which draws random numbers and counts its samples in a buffer."""

    def __init__(self, room: int, error: Callable[[], Exception] = lambda: torch.OutOfMemoryError("no room")) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(256, 4).double()
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.room, self.error = room, error
        self.drawn: list[float] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.seen += len(images)
        self.drawn.append(random.random() + float(np.random.random()))
        scores = self.layer(self.dropout(images.flatten(1)))
        if len(images) > self.room:
            raise self.error()
        return scores


ERRORS = {
    "cuda's": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
    "the host's": MemoryError,
    "the allocator's": lambda: RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_out_of_memory_halves_the_pieces_and_repeats_the_step(error: Callable[[], Exception]) -> None:
    messages: list[str] = []
    images, labels = batch(16, torch.float64)
    results = []
    for room, pieces in ((4, MicroBatches(halve_on_oom=True, notify=messages.append)), (16, MicroBatches(4))):
        network = Small(room, error)
        random.seed(3), np.random.seed(3), torch.manual_seed(3)
        stepper = step_of(network, pieces=pieces)
        losses = [stepper.train(images, labels)[0].item() for _ in range(2)]
        results.append((losses, network.layer.weight.detach().clone(), network.seen.item(), network.drawn[-8:]))
        assert pieces.size == 4
    (losses, weight, seen, drawn), (wanted_losses, wanted_weight, wanted_seen, wanted_drawn) = results
    assert losses == wanted_losses and torch.equal(weight, wanted_weight)
    assert (seen, drawn) == (wanted_seen, wanted_drawn)
    assert messages == [
        "out of memory with 16 samples at once: steps are computed in pieces of 8",
        "out of memory with 8 samples at once: steps are computed in pieces of 4",
    ]


def test_out_of_memory_in_a_later_piece_discards_earlier_gradients() -> None:
    network = Small(16)
    images, labels = batch(16, torch.float64)
    calls = []

    def full_once(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("no room")

    network.dropout.p = 0.0
    handle = network.layer.register_forward_pre_hook(full_once)
    step_of(network, pieces=MicroBatches(8, halve_on_oom=True)).train(images, labels)
    handle.remove()
    whole = Small(16)
    whole.dropout.p = 0.0
    step_of(whole).train(images, labels)
    assert len(calls) == 2 + 4
    assert torch.allclose(network.layer.weight.grad, whole.layer.weight.grad, rtol=0, atol=1e-15)
    assert network.seen.item() == 16


def test_evaluation_is_halved_too_and_a_piece_of_one_sample_raises() -> None:
    images, labels = batch(16, torch.float64)
    stepper = step_of(Small(4), pieces=MicroBatches(halve_on_oom=True))
    with torch.no_grad():
        assert stepper.evaluate(images, labels)[1].shape == (16, 4)
    assert stepper.state_dict()["micro_batch"] == 4
    with pytest.raises(torch.OutOfMemoryError):
        step_of(Small(0), pieces=MicroBatches(halve_on_oom=True)).train(images, labels)
    with pytest.raises(torch.OutOfMemoryError):
        step_of(Small(4)).train(images, labels)
    with pytest.raises(ValueError, match="mine"):
        step_of(Small(4, lambda: ValueError("mine")), pieces=MicroBatches(halve_on_oom=True)).train(images, labels)


def test_out_of_memory_in_an_evaluation_keeps_the_gradients_of_the_last_step() -> None:
    images, labels = batch(16, torch.float64)
    network = Small(4)
    stepper = step_of(network, pieces=MicroBatches(halve_on_oom=True))
    stepper.train(images[:4], labels[:4])
    gradient = network.layer.weight.grad
    assert gradient is not None
    before = gradient.clone()
    with torch.no_grad():
        stepper.evaluate(images, labels)
    assert network.layer.weight.grad is gradient and torch.equal(gradient, before)


def test_a_resumed_stepper_keeps_the_piece_size() -> None:
    images, labels = batch(16, torch.float64)
    stepper = step_of(Small(4), pieces=MicroBatches(halve_on_oom=True))
    stepper.train(images, labels)
    messages: list[str] = []
    resumed = step_of(Small(4), pieces=MicroBatches(halve_on_oom=True, notify=messages.append))
    resumed.load_state_dict(stepper.state_dict())
    resumed.train(images, labels)
    assert messages == []


def test_bf16_casts_products_but_not_weights() -> None:
    seen = []
    network = cnn()
    network.fc1.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    losses, network = trained(network, precision=Precision.BF16)
    wanted, _ = trained(cnn())
    assert set(seen) == {torch.bfloat16}
    assert losses == pytest.approx(wanted, rel=0.02) and losses != wanted
    assert {each.dtype for each in network.parameters()} == {torch.float32}


@pytest.mark.parametrize("fused", [True, False])
def test_fp16_skips_steps_that_overflow_and_counts_them(fused: bool) -> None:
    def create(network: nn.Module) -> Stepper:
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01, fused=fused)
        return Stepper(Forward(network, precision=Precision.FP16), optimizer, scaler=CountingScaler("cpu"))

    network = cnn()
    stepper = create(network)
    images, labels = batch()
    stepper.train(images, labels)
    before = copy.deepcopy(network.state_dict())
    stepper.train(images * float("inf"), labels)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert stepper.num_skipped == 1
    stepper.train(images, labels)
    assert not torch.equal(network.fc1.weight, before["fc1.weight"])
    assert stepper.state_dict()["scaler"]["scale"] == 2.0**15
    resumed = create(cnn())
    resumed.load_state_dict(stepper.state_dict())
    assert resumed.num_skipped == 1 and resumed.state_dict() == stepper.state_dict()
    resumed.train(images * float("inf"), labels)
    assert resumed.num_skipped == 2


def rounding() -> list[Any]:
    """The TF32 settings of the process, by PyTorch's older and newer API."""
    cudnn: Any = torch.backends.cudnn
    older = [torch.backends.cuda.matmul.allow_tf32, cudnn.allow_tf32, torch.get_float32_matmul_precision()]
    return [*older, *rounding_of_newer()]


@pytest.mark.parametrize("own", ["highest", "high"])
def test_tf32_settings_are_restored_after_a_run(own: str) -> None:
    whole = ([False, False, "highest"], {"ieee", "none"})
    rounded = ([True, True, "high"], {"tf32"})
    with float32_precision(Precision.FP32):  # restores the settings that this test changes
        torch.set_float32_matmul_precision(own)
        before = rounding()
        for precision, (older, newer) in ((Precision.TF32, rounded), (Precision.FP32, whole)):
            with pytest.raises(KeyError), float32_precision(precision):
                assert rounding()[:3] == older and set(rounding()[3:]) <= newer
                raise KeyError
            assert rounding() == before


def test_the_setting_for_all_backends_is_overridden() -> None:
    with float32_precision(Precision.FP32):  # restores the settings that this test changes
        try:
            torch.backends.fp32_precision = "tf32"
            before = rounding_of_newer()
            assert "tf32" in before
            with float32_precision(Precision.FP32):
                assert "tf32" not in rounding_of_newer()
            assert rounding_of_newer() == before
        finally:
            torch.backends.fp32_precision = "none"
    assert rounding_of_newer() == ["none", "tf32", "tf32"]


def rounding_of_newer() -> list[str]:
    cudnn: Any = torch.backends.cudnn
    return [each.fp32_precision for each in (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn)]


@pytest.mark.parametrize(
    ("frozen", "wanted"), [(False, True), (True, False)], ids=["in training mode", "always in eval mode"]
)
def test_batch_normalisation_needs_whole_batches(frozen: bool, wanted: bool) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(256, 4), nn.BatchNorm1d(4))
    if frozen:
        network[2].train = lambda mode=True: network[2]
        network[2].training = False
    assert needs_whole_batches(network) is wanted


@pytest.mark.parametrize("keeps", [True, False])
def test_instance_normalisation_with_running_statistics_needs_whole_batches(keeps: bool) -> None:
    norm = nn.InstanceNorm2d(1, track_running_stats=keeps)
    whole, pieces = (nn.Sequential(copy.deepcopy(norm), nn.Flatten(), nn.Linear(256, 4)) for _ in range(2))
    for network, size in ((whole, None), (pieces, 5)):
        step_of(network.train(), pieces=MicroBatches(size)).train(*batch())
    alike = all(torch.allclose(a, b) for a, b in zip(whole.buffers(), pieces.buffers(), strict=True))
    assert needs_whole_batches(whole) is keeps is not alike


def build(network: nn.Module, *, in_shape: tuple[int, ...] = IMAGES, **settings: Any) -> Stepper:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    options = TrainingOptions(**settings)
    return build_stepper(options, network, optimizer, device=CPU, in_shape=in_shape, notify=lambda line: None)


NORMED = nn.Sequential(nn.Flatten(), nn.Linear(256, 4), nn.BatchNorm1d(4))


@pytest.mark.parametrize(
    ("network", "settings", "message"),
    [
        (
            NORMED,
            {"micro_batch": 5},
            "`micro_batch` must be null or auto for a model with batch normalisation or running statistics, got 5",
        ),
        (
            NORMED,
            {"on_oom": "halve"},
            "`on_oom` must be fail for a model with batch normalisation or running statistics, got halve",
        ),
        (cnn(), {"precision": "fp16"}, "`precision` must be fp32 or bf16 on the CPU, got fp16"),
        (cnn(), {"precision": "tf32"}, "`precision` must be fp32 or bf16 on the CPU, got tf32"),
        (cnn(torch.float64), {"precision": "bf16"}, "be fp32 for a model with weights of torch.float64, got bf16"),
        (cnn(), {"channels_last": True, "in_shape": (256,)}, "`channels_last` must be false for samples that are no"),
    ],
)
def test_unsupported_settings_are_refused_in_one_line(
    network: nn.Module, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(network, **settings)
    (line,) = caught.value.faults
    assert message in line


CAPABILITIES = [
    ((7, 5), Precision.TF32, "`precision` must be fp32 or fp16 on a Card, got tf32; it needs compute capability"),
    ((7, 5), Precision.BF16, "`precision` must be fp32 or fp16 on a Card, got bf16;"),
    ((7, 5), Precision.FP16, ""),
    ((8, 0), Precision.TF32, ""),
    ((9, 0), Precision.BF16, ""),
]


@pytest.mark.parametrize(("capability", "precision", "message"), CAPABILITIES)
def test_a_precision_that_a_gpu_does_not_support_is_refused(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], precision: Precision, message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Card")
    lines = precision_faults(precision, torch.device("cuda"))
    assert len(lines) == bool(message) and all(line.startswith(message) for line in lines)


def test_tf32_needs_an_nvidia_gpu() -> None:
    (line,) = precision_faults(Precision.TF32, torch.device("mps"))
    assert line == "`precision` must be another one on mps, got tf32; only NVIDIA's GPUs have TF32."


@pytest.mark.parametrize(("on_oom", "size"), [("halve", 8), ("fail", None)])
def test_only_on_oom_halves_batches_on_an_accelerator(on_oom: str, size: int | None) -> None:
    messages: list[str] = []
    network = Small(8)
    options = TrainingOptions(on_oom=on_oom)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    gpu = torch.device("cuda")
    stepper = build_stepper(options, network, optimizer, device=gpu, in_shape=IMAGES, notify=messages.append)
    assert stepper.piece_size is None
    with pytest.raises(torch.OutOfMemoryError) if size is None else contextlib.nullcontext():
        stepper.train(*batch(16, torch.float64))
    assert stepper.piece_size == size and len(messages) == (size is not None)
