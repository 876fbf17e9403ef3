"""The optimisers: settings, fused implementations, frozen parameters and saved states."""

import dataclasses

import pytest
import torch
from torch import nn

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.options.groups import AdamOptions, AdamWOptions, CnnOptions, SgdOptions
from runmanager.training.step.optimizers import build_optimizer


@pytest.mark.parametrize(
    ("options", "kind", "expected"),
    [
        (
            SgdOptions(momentum=0.9, weight_decay=0.1, nesterov=True),
            torch.optim.SGD,
            {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
        ),
        (
            AdamOptions(betas=[0.8, 0.9], eps=1e-6, weight_decay=0.2),
            torch.optim.Adam,
            {"betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.2},
        ),
        (AdamWOptions(), torch.optim.AdamW, {"betas": (0.9, 0.999), "weight_decay": 0.01}),
    ],
)
def test_settings_are_passed_on(options, kind, expected):
    optimizer = build_optimizer(options, nn.Linear(2, 2).parameters(), lr=0.25)
    assert type(optimizer) is kind
    group = optimizer.param_groups[0]
    assert {key: group[key] for key in expected} == expected
    assert group["lr"] == 0.25


@pytest.mark.parametrize(
    ("options", "fused"),
    [
        (SgdOptions(momentum=0.9), False),
        (SgdOptions(momentum=0.9, fused=True), True),
        (AdamOptions(), True),
        (AdamOptions(fused=False), False),
        (AdamWOptions(), True),
    ],
)
def test_fused_is_used_if_faster_or_requested(options, fused):
    layer = nn.Linear(2, 2)
    optimizer = build_optimizer(options, layer.parameters(), lr=0.1)
    layer(torch.ones(1, 2)).sum().backward()
    with torch.profiler.profile() as profile:
        optimizer.step()
    assert any(event.key.startswith("aten::_fused_") for event in profile.key_averages()) is fused


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [SgdOptions(momentum=0.9, nesterov=True), AdamOptions(), AdamWOptions()])
def test_fused_steps_have_the_same_result(options, dtype):
    weights = []
    for fused in (False, True):
        layer = nn.Linear(3, 2, dtype=dtype)
        nn.init.ones_(layer.weight)
        optimizer = build_optimizer(dataclasses.replace(options, fused=fused), [layer.weight], lr=0.1)
        for step in range(5):
            layer.weight.grad = torch.full((2, 3), 0.5 - step, dtype=dtype)
            optimizer.step()
        weights.append(layer.weight.detach())
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    assert torch.allclose(*weights, rtol=tolerance, atol=0)


def test_optimisers_of_scaled_gradients_are_fused():
    for options, fused in ((SgdOptions(), True), (AdamOptions(), True), (SgdOptions(fused=False), None)):
        optimizer = build_optimizer(options, nn.Linear(2, 2).parameters(), lr=0.1, is_scaled=True)
        assert optimizer.param_groups[0]["fused"] is fused


def test_unsupported_fused_is_refused():
    odd = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ConfigurationError, match=r"`optimizer.fused` must be null or false .* got true; .*complex64"):
        build_optimizer(AdamOptions(fused=True), [odd], lr=0.1)
    assert build_optimizer(AdamOptions(), [odd], lr=0.1).param_groups[0]["fused"] is None
    nowhere = nn.Linear(1, 1, device="meta").parameters()
    with pytest.raises(ConfigurationError, match="PyTorch has no fused kernels for meta"):
        build_optimizer(SgdOptions(fused=True), nowhere, lr=0.1)


@pytest.mark.parametrize(("saved", "here"), [(True, False), (False, True)])
def test_a_state_can_be_loaded_by_another_implementation(saved, here):
    def create(fused):
        layer = nn.Linear(2, 2)
        nn.init.ones_(layer.weight)
        return layer, build_optimizer(AdamOptions(fused=fused), [layer.weight], lr=0.1)

    def step(layer, optimizer, value):
        layer.weight.grad = torch.full((2, 2), value)
        optimizer.step()

    whole, broken = create(here), create(saved)
    for each in (whole, broken):
        step(*each, 1.0)
    layer, optimizer = create(here)
    layer.load_state_dict(broken[0].state_dict())
    optimizer.load_state_dict(broken[1].state_dict())
    assert bool(optimizer.param_groups[0]["fused"]) is here
    for each in (whole, (layer, optimizer)):
        step(*each, -2.0)
    assert torch.allclose(layer.weight, whole[0].weight)


def test_frozen_parameters_are_left_out():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    optimizer = build_optimizer(SgdOptions(), model.parameters(), lr=0.1)
    assert [tuple(each.shape) for each in optimizer.param_groups[0]["params"]] == [(2, 3), (2,)]


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(ConfigurationError, match="requires a gradient, got none; unfreeze"):
        build_optimizer(SgdOptions(), nn.Linear(2, 2).requires_grad_(False).parameters(), lr=0.1)


def test_options_of_another_group_are_refused():
    with pytest.raises(UsageError, match="optimizer dataclass"):
        build_optimizer(CnnOptions(), nn.Linear(2, 2).parameters(), lr=0.1)
