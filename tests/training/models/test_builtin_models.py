"""The models: numbers of parameters, shapes, and errors."""

import copy

import pytest
import torch
import torch.nn.functional as F

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.models.builtin_models import Network, build_model
from runmanager.training.options.groups import CnnOptions, LogisticOptions, MlpOptions, MlpTowerOptions

MNIST = (1, 28, 28)


def num_parameters(model):
    return sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize(
    ("options", "in_shape", "num_classes", "expected"),
    [
        (CnnOptions(), MNIST, 10, 32_998),
        (MlpOptions(), MNIST, 10, 25_450),
        (LogisticOptions(), MNIST, 10, 7_850),
        (MlpTowerOptions(depth=2), (2,), 2, 22),
        (MlpTowerOptions(depth=8), (2,), 2, 44_710),
        (MlpTowerOptions(depth=10), (2,), 2, 703_142),
        (MlpTowerOptions(depth=12), (2,), 2, 11_201_190),
    ],
)
def test_number_of_parameters(options, in_shape, num_classes, expected):
    with torch.device("meta"):
        assert num_parameters(build_model(options, in_shape=in_shape, num_classes=num_classes)) == expected


@pytest.mark.parametrize("options", [CnnOptions(), MlpOptions(hidden=[8, 4]), LogisticOptions(), MlpTowerOptions()])
@pytest.mark.parametrize("in_shape", [MNIST, (3, 32, 32), (2, 16, 40)])
def test_shape_of_the_logits(options, in_shape):
    model = build_model(options, in_shape=in_shape, num_classes=7)
    logits = model(torch.rand(3, *in_shape))
    assert logits.shape == (3, 7)
    logits.sum().backward()
    assert all(each.grad is not None for each in model.parameters())


def test_the_cnn_has_the_tutorials_layers():
    model = build_model(CnnOptions(), in_shape=MNIST, num_classes=10)
    shapes = {name: tuple(each.shape) for name, each in model.named_parameters() if name.endswith("weight")}
    assert shapes == {
        "conv1.weight": (6, 1, 5, 5),
        "conv2.weight": (12, 6, 5, 5),
        "fc1.weight": (120, 192),
        "fc2.weight": (60, 120),
        "out.weight": (10, 60),
    }


class ReluThenPool(Network):
    """The network with the tutorials' order of ReLU and pooling."""

    def forward(self, images):
        hidden = F.max_pool2d(F.relu(self.conv1(images)), kernel_size=2, stride=2)
        hidden = F.max_pool2d(F.relu(self.conv2(hidden)), kernel_size=2, stride=2)
        hidden = F.relu(self.fc1(hidden.flatten(start_dim=1)))
        return self.out(F.relu(self.fc2(hidden)))


@pytest.mark.parametrize("in_shape", [MNIST, (3, 32, 32), (2, 17, 21)])
def test_the_cnn_equals_relu_before_pooling(in_shape):
    torch.manual_seed(0)
    model = build_model(CnnOptions(), in_shape=in_shape, num_classes=10).double()
    tutorials = ReluThenPool(in_shape, 10).double()
    tutorials.load_state_dict(model.state_dict())
    images = torch.randn(16, *in_shape, dtype=torch.float64)  # all values differ, so ties do not occur
    outputs = []
    for each in (model, tutorials):
        outputs.append(each(images))
        F.cross_entropy(outputs[-1], torch.arange(16) % 10).backward()
    assert torch.equal(*outputs)
    gradients = [[parameter.grad for parameter in each.parameters()] for each in (model, tutorials)]
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.mark.parametrize("in_shape", [(2,), (1, 15, 28)])
def test_the_cnn_refuses_small_images(in_shape):
    with pytest.raises(ConfigurationError, match=r"at least 16x16, got samples of shape \(.*use `model=mlp`"):
        build_model(CnnOptions(), in_shape=in_shape, num_classes=2)


def test_weights_depend_on_the_global_seed():
    torch.manual_seed(3)
    first = build_model(CnnOptions(), in_shape=MNIST, num_classes=10).state_dict()
    torch.manual_seed(3)
    again = build_model(CnnOptions(), in_shape=MNIST, num_classes=10).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_a_model_can_be_copied():
    model = build_model(CnnOptions(), in_shape=MNIST, num_classes=10)
    images = torch.rand(2, *MNIST)
    assert torch.equal(copy.deepcopy(model)(images), model(images))


def test_options_of_another_group_are_refused():
    with pytest.raises(UsageError, match="model dataclass"):
        build_model(object(), in_shape=MNIST, num_classes=10)


NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self, in_shape, num_classes, width=8):
        super().__init__()
        self.width = width
        self.layer = torch.nn.Linear(in_shape[-1], num_classes)

    def forward(self, images):
        return self.layer(images).flatten(1)

def fixed():
    return torch.nn.Flatten()

def no_module(num_classes):
    return num_classes
"""


def test_a_custom_model_receives_the_arguments_that_it_takes(own_module):
    own_module("mynets", NET)
    options = {"name": "custom", "_target_": "mynets.Net", "width": 64}
    model = build_model(options, in_shape=(5,), num_classes=3)
    assert model.width == 64
    assert model(torch.rand(2, 5)).shape == (2, 3)
    assert isinstance(build_model({"_target_": "mynets.fixed"}, in_shape=(5,), num_classes=3), torch.nn.Flatten)


def test_settings_of_a_custom_model_have_precedence(own_module):
    own_module("mynets", NET)
    model = build_model({"_target_": "mynets.Net", "num_classes": 11}, in_shape=(5,), num_classes=3)
    assert model.layer.out_features == 11


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"_target_": "mynets.Nett"}, "`model._target_` must name something that exists.*mynets has no 'Nett'.*'Net'"),
        ({"_target_": "mynets.Net", "widht": 3}, r"`model.widht` must be an argument of mynets.Net.*'width'"),
        ({"_target_": "mynets.no_module"}, "must return a torch.nn.Module, got int"),
        (
            {"_target_": "no_such_module.Net"},
            "module 'no_such_module' is neither in the current folder .* installed packages",
        ),
        ({"_target_": "Net"}, "must be a dotted name, got 'Net'"),
        ({"name": "custom"}, "must be a dotted name, got None"),
        ({"_target_": "mynets.__name__"}, "must name a class or a function"),
    ],
)
def test_a_wrong_target_is_explained(own_module, options, message):
    own_module("mynets", NET)
    with pytest.raises(ConfigurationError, match=message):
        build_model(options, in_shape=(5,), num_classes=3)
