"""torchvision's classifiers, adapted to the images."""

import importlib

import pytest
import torch

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.models.builtin_models import Resized, architecture_faults, build_model, import_torchvision
from runmanager.training.options.groups import TorchvisionModelOptions as Options

FAMILIES = ["alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "inception_v3", "maxvit_t"]
FAMILIES += ["mnasnet0_5", "mobilenet_v3_small", "resnet18", "shufflenet_v2_x0_5", "squeezenet1_1"]
FAMILIES += ["swin_t", "swin_v2_t", "vgg11", "vit_b_16", "vit_b_32", "vit_h_14"]


@pytest.mark.parametrize("architecture", ["resnet18", "vgg16", "regnet_y_400mf"])
@pytest.mark.parametrize("in_shape", [(1, 28, 28), (3, 32, 32)])
def test_logits(architecture, in_shape):
    model = build_model(Options(architecture=architecture), in_shape=in_shape, num_classes=10).eval()
    with torch.no_grad():
        assert model(torch.rand(2, *in_shape)).shape == (2, 10)


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("in_shape", [(1, 28, 28), (3, 40, 36)])
def test_every_family_supports_small_images(architecture, in_shape):
    with torch.device("meta"):  # shapes without computing values
        model = build_model(Options(architecture=architecture), in_shape=in_shape, num_classes=10)
        model.train()
        assert model(torch.empty(2, *in_shape)).shape == (2, 10)


def test_all_classifiers_are_known():
    assert architecture_faults("wide_resnet101_2") == []
    models = import_torchvision().models
    assert all(not architecture_faults(name) for name in models.list_models(module=models))


def test_the_first_layer_is_adapted_to_the_channels_and_keeps_its_scale():
    torch.manual_seed(0)
    model = build_model(Options(), in_shape=(1, 64, 64), num_classes=10)
    usual = build_model(Options(), in_shape=(3, 64, 64), num_classes=10)
    assert model.conv1.weight.shape == (64, 1, 7, 7)
    with torch.no_grad():
        grey = torch.rand(8, 1, 64, 64) - 0.5
        ratio = model.conv1(grey).std() / usual.conv1(torch.rand(8, 3, 64, 64) - 0.5).std()
    assert 0.8 < ratio < 1.25


def test_images_are_resized_only_if_needed():
    assert not isinstance(build_model(Options(), in_shape=(3, 32, 48), num_classes=10), Resized)
    assert build_model(Options(), in_shape=(3, 28, 48), num_classes=10).side == 48
    assert build_model(Options(input_size=64), in_shape=(3, 32, 32), num_classes=10).side == 64
    shrunk = build_model(Options(input_size=32), in_shape=(3, 64, 64), num_classes=10).eval()
    assert shrunk(torch.rand(1, 3, 64, 64)).shape == (1, 10)


@pytest.mark.parametrize(
    ("options", "in_shape", "message"),
    [
        (
            Options(architecture="resnet81"),
            (3, 32, 32),
            "must be a classifier of torchvision.models, got resnet81; did",
        ),
        (Options(), (2,), r"must take images .*got samples of shape \(2,\); use `model=mlp`"),
        (Options(input_size=16), (3, 32, 32), "`model.input_size` must be at least 32 for resnet18, got 16"),
        (Options(architecture="vit_b_16", input_size=40), (3, 32, 32), "a multiple of 16 for vit_b_16, got 40"),
    ],
)
def test_unsupported_settings_are_refused(options, in_shape, message):
    with pytest.raises(ConfigurationError, match=message):
        build_model(options, in_shape=in_shape, num_classes=10)


def test_an_incompatible_torchvision_is_explained(monkeypatch):
    def broken(_name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(UsageError, match=r"operator torchvision::nms does not exist.*same index.*doctor"):
        import_torchvision()
