"""`channels_last=auto` and `micro_batch=auto`: what they become, and that a step stays the same."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from runmanager.training.criteria import Loss
from runmanager.training.models.builtin_models import build_model
from runmanager.training.options.groups import CnnOptions, LogisticOptions, MlpOptions, TorchvisionModelOptions
from runmanager.training.options.job import TrainingOptions
from runmanager.training.step import automatic_step
from runmanager.training.step.automatic_step import resolved_channels_last, resolved_micro_batch
from runmanager.training.step.stepper import Stepper, build_stepper

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
IMAGES = (1, 16, 16)
COLOUR = (3, 32, 32)
BATCH = 11


@pytest.fixture
def in_float64() -> Iterator[None]:
    """All weights and images are float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def small_blocks(monkeypatch: pytest.MonkeyPatch, network: nn.Module, in_shape: tuple[int, ...], samples: int) -> None:
    """Let a process keep blocks for this many samples of the network only."""
    whole = automatic_step.fast_piece_size(network, in_shape)
    if whole is not None:
        monkeypatch.setattr(automatic_step, "_LARGEST_BYTES", samples * automatic_step._LARGEST_BYTES // whole)


def convolutions(*layers: nn.Module, after: tuple[nn.Module, ...] = ()) -> nn.Sequential:
    """A network of images with these layers between its convolutions and, after flattening, `after` them."""
    torch.manual_seed(0)
    last = (nn.Flatten(), *after, nn.Linear(8 * 12 * 12, 4))
    thin = (nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 1))
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), *layers, *thin, *last)


def built(options: Any, in_shape: tuple[int, ...] = IMAGES) -> nn.Module:
    torch.manual_seed(0)
    return build_model(options, in_shape=in_shape, num_classes=4)


def clipping() -> nn.Module:
    """A network whose gradients are clipped value by value in each backward pass."""
    network = convolutions()
    for parameter in network.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-0.001, 0.001))
    return network


def looking(network: nn.Module) -> nn.Module:
    network[1].register_forward_hook(lambda module, inputs, output: output - output.mean(dim=0))
    return network


def replaced(network: nn.Module) -> nn.Module:
    network[1].forward = lambda images: images - images.mean(dim=0)
    return network


class Transformer(nn.Module):
    """A class of the user: what it does with a batch is not known."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.conv = nn.Conv2d(1, 1, 1)
        self.out = nn.Linear(16, 4)

    def forward(self, images: Tensor) -> Tensor:
        rows = self.encoder(self.conv(images).squeeze(1))
        return self.out((rows - rows.mean(dim=0)).mean(dim=1))


def torchvision(architecture: str) -> Callable[[], nn.Module]:
    return lambda: built(TorchvisionModelOptions(architecture=architecture), COLOUR)


# What `auto` becomes: channels last, and whether a batch is split.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], bool, bool]] = {
    "cnn": (lambda: built(CnnOptions()), False, True),
    "mlp": (lambda: built(MlpOptions()), False, True),
    "logistic": (lambda: built(LogisticOptions()), False, True),
    "layers": (lambda: convolutions(nn.GroupNorm(2, 8), nn.Dropout(0.0)), True, True),
    "batch normalisation": (lambda: convolutions(nn.BatchNorm2d(8)), True, False),
    "instance normalisation": (lambda: convolutions(nn.InstanceNorm2d(8, track_running_stats=True)), True, False),
    "dropout of features": (lambda: convolutions(after=(nn.Dropout(0.5),)), True, False),
    "dropout of images": (lambda: convolutions(nn.Dropout(0.5)), False, False),
    "softmax over samples": (lambda: convolutions(nn.Softmax(dim=0)), False, False),
    "clipped gradients": (clipping, False, False),
    "a hook": (lambda: looking(convolutions()), False, False),
    "a replaced forward": (lambda: replaced(convolutions()), False, False),
    "a class of the user": (Transformer, False, False),
    "resnet18": (torchvision("resnet18"), False, False),
    "mobilenet_v3_small": (torchvision("mobilenet_v3_small"), True, False),
    "squeezenet1_1": (torchvision("squeezenet1_1"), False, False),
}


def losses(network: nn.Module, in_shape: tuple[int, ...], *, loss: Loss | None = None, **settings: Any) -> Any:
    """Train three steps and evaluate one batch; return the losses and the stepper."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    options = TrainingOptions(batch_size=BATCH, **settings)
    stepper = build_stepper(
        options, network, optimizer, device=CPU, in_shape=in_shape, notify=lambda line: None, loss=loss
    )
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(BATCH, *in_shape, generator=generator)
    labels = torch.randint(4, (BATCH,), generator=generator)
    labels[:3] = -100  # ignored by the loss: pieces have different numbers of labels that count
    network.train()
    torch.manual_seed(2)
    found = [stepper.train(images, labels)[0].item() for _ in range(3)]
    with torch.no_grad():
        found.append(stepper.evaluate(images, labels)[0].item())
    return found, stepper


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("name", NETWORKS)
def test_auto_computes_the_same_as_the_plain_way(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    make, channels_last, splits = NETWORKS[name]
    in_shape = COLOUR if name[-1].isdigit() or name.endswith("small") else IMAGES
    plain, _ = losses(make(), in_shape, channels_last=False, micro_batch=None)
    small_blocks(monkeypatch, make(), in_shape, samples=4)
    found, stepper = losses(make(), in_shape)
    assert (stepper.choices["channels_last"], stepper.piece_size is not None) == (channels_last, splits)
    assert found == pytest.approx(plain, rel=1e-9, abs=1e-9)
    if not (channels_last or splits):
        assert found == plain


def resolved(network: nn.Module, in_shape: tuple[int, ...] = IMAGES, **settings: Any) -> tuple[bool, int | None]:
    options = TrainingOptions(**{"batch_size": 100_000, **settings})
    device = torch.device(settings.get("device", "cpu"))
    return (
        resolved_channels_last(options, network, device=device, in_shape=in_shape),
        resolved_micro_batch(options, network, Loss(), device=device, in_shape=in_shape),
    )


@pytest.mark.usefixtures("in_float64")
def test_a_loss_that_is_no_mean_over_samples_keeps_its_batch_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    class Contrast(nn.Module):
        def forward(self, preds: Tensor, labels: Tensor) -> Tensor:
            return (preds @ preds.T).logsumexp(dim=1).mean()

    plain, _ = losses(convolutions(), IMAGES, loss=Loss(Contrast()), channels_last=False, micro_batch=None)
    small_blocks(monkeypatch, convolutions(), IMAGES, samples=4)
    found, stepper = losses(convolutions(), IMAGES, loss=Loss(Contrast()))
    assert (stepper.choices["channels_last"], stepper.piece_size) == (True, None)
    assert found == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (True, True)),
        ({"precision": "bf16"}, (False, False)),
        ({"compile": True}, (False, False)),
        ({"device": "mps"}, (False, False)),
        ({"channels_last": False}, (False, True)),
        ({"channels_last": True, "precision": "bf16", "micro_batch": 3}, (True, True)),
        ({"batch_size": 5}, (True, False)),
        ({"batch_size": 5, "eval_batch_size": 100_000}, (True, True)),
    ],
)
def test_settings_and_device_decide(changes: dict[str, Any], expected: tuple[bool, bool]) -> None:
    channels_last, size = resolved(convolutions(), **changes)
    assert (channels_last, size is not None) == expected


def eights(groups: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, groups=groups), nn.Flatten())


@pytest.mark.parametrize(
    ("network", "precision", "capability", "expected"),
    [
        (eights, "bf16", (9, 0), True),
        (eights, "fp16", (7, 0), True),
        (eights, "fp32", (9, 0), False),
        (eights, "tf32", (9, 0), False),
        (eights, "fp16", (6, 1), False),
        (lambda: eights(groups=16), "bf16", (9, 0), False),
        (lambda: built(CnnOptions()), "bf16", (9, 0), False),
        (lambda: built(MlpOptions()), "bf16", (9, 0), False),
    ],
)
def test_on_cuda_channels_are_last_only_where_tensor_cores_use_it_and_batches_stay_whole(
    monkeypatch: pytest.MonkeyPatch,
    network: Callable[[], nn.Module],
    precision: str,
    capability: tuple[int, int],
    expected: bool,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", None)
    assert resolved(network(), device="cuda", precision=precision) == (expected, None)


def test_layers_that_take_samples_for_something_else_keep_their_batch_whole() -> None:
    over_the_batch = nn.Sequential(nn.Flatten(), nn.LayerNorm((2, 256)), nn.Linear(256, 4))
    assert resolved(over_the_batch) == (False, None)
    assert resolved(nn.Sequential(nn.Flatten(), nn.LayerNorm(256), nn.Linear(256, 4)))[1] is not None
    attention = nn.MultiheadAttention(16, 2)  # its first dimension is that of positions
    assert resolved(nn.Sequential(nn.Flatten(), attention))[1] is None


def test_a_resumed_stepper_keeps_the_memory_format_and_the_piece_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide() -> nn.Module:
        return convolutions(nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1))

    small_blocks(monkeypatch, wide(), IMAGES, samples=4)

    def stepper(**settings: Any) -> tuple[Stepper, nn.Module]:
        network = wide()
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        options = TrainingOptions(batch_size=BATCH, **settings)
        return build_stepper(
            options, network, optimizer, device=CPU, in_shape=IMAGES, notify=lambda line: None
        ), network

    def is_last(network: nn.Module) -> bool:
        return bool(network[2].weight.is_contiguous(memory_format=torch.channels_last))

    chosen, plain = stepper(), stepper(channels_last=False, micro_batch=None)
    assert (chosen[0].choices["channels_last"], chosen[0].piece_size, is_last(chosen[1])) == (True, 4, True)
    for here, there in ((chosen, plain), (plain, chosen)):
        state = there[0].state_dict()
        resumed, network = stepper(channels_last=here[0].choices["channels_last"], micro_batch=here[0].piece_size)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state and is_last(network) is there[0].choices["channels_last"]
    older = {key: value for key, value in plain[0].state_dict().items() if key != "channels_last"}
    chosen[0].load_state_dict(older)  # of a version that did not store it
    assert chosen[0].choices["channels_last"]
