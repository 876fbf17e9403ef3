"""The optimisers: their settings arrive, frozen parameters stay out."""

import pytest
import torch
from torch import nn

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.optimizers import build_optimizer
from runmanager.training.options import AdamOptions, AdamWOptions, CnnOptions, SgdOptions


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
def test_settings_arrive(options, kind, expected):
    optimizer = build_optimizer(options, nn.Linear(2, 2).parameters(), lr=0.25)
    assert type(optimizer) is kind
    group = optimizer.param_groups[0]
    assert {key: group[key] for key in expected} == expected
    assert group["lr"] == 0.25


def test_frozen_parameters_are_left_out():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    optimizer = build_optimizer(SgdOptions(), model.parameters(), lr=0.1)
    assert [tuple(each.shape) for each in optimizer.param_groups[0]["params"]] == [(2, 3), (2,)]


def test_a_model_with_nothing_to_train_is_refused():
    with pytest.raises(ConfigurationError, match="requires a gradient, got none; unfreeze"):
        build_optimizer(SgdOptions(), nn.Linear(2, 2).requires_grad_(False).parameters(), lr=0.1)


def test_options_of_another_group_are_refused():
    with pytest.raises(UsageError, match="optimizer dataclass"):
        build_optimizer(CnnOptions(), nn.Linear(2, 2).parameters(), lr=0.1)
