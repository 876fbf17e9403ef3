"""The schedules: the rate of each epoch or step, and resuming from a checkpoint."""

import io
import math

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.options.groups import (
    CnnOptions,
    ConstantOptions,
    CosineOptions,
    MultistepOptions,
    OneCycleOptions,
)
from runmanager.training.step.optimizers import build_scheduler, one_cycle_factor

ALL = [ConstantOptions(), MultistepOptions(milestones=[2, 5], gamma=0.2), CosineOptions(), OneCycleOptions()]


def create(options, *, lr=0.5, num_epochs=10, steps_per_epoch=3):
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=lr)
    return optimizer, build_scheduler(options, optimizer, num_epochs=num_epochs, steps_per_epoch=steps_per_epoch)


def rates(optimizer, scheduler, count):
    seen = []
    for _ in range(count):
        seen.append(optimizer.param_groups[0]["lr"])
        assert scheduler.lr == seen[-1]
        optimizer.step()
        scheduler.step()
    return seen


def test_constant():
    assert rates(*create(ConstantOptions()), 10) == [0.5] * 10


def test_a_milestone_of_5_lowers_the_rate_from_epoch_6_on():
    seen = rates(*create(MultistepOptions(milestones=[5], gamma=0.2)), 10)
    assert seen == pytest.approx([0.5] * 5 + [0.1] * 5)


def test_cosine():
    seen = rates(*create(CosineOptions(min_lr=0.1)), 11)
    assert seen == pytest.approx([0.1 + 0.4 * (1 + math.cos(math.pi * epoch / 10)) / 2 for epoch in range(11)])


def test_cosine_refuses_a_minimum_above_the_rate():
    with pytest.raises(ConfigurationError, match=r"`scheduler.min_lr` must be at most `lr`=0.5, got 0.6"):
        create(CosineOptions(min_lr=0.6))


@pytest.mark.parametrize(("pct_start", "epochs", "steps"), [(0.3, 10, 3), (0.1, 4, 7), (0.55, 5, 20)])
def test_onecycle_has_pytorchs_rates_and_keeps_the_momentum(pct_start, epochs, steps):
    optimizer, scheduler = create(OneCycleOptions(pct_start=pct_start), num_epochs=epochs, steps_per_epoch=steps)
    assert scheduler.step_interval == "step"
    reference = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.5, momentum=0.9)
    cycle = OneCycleLR(reference, max_lr=0.5, total_steps=epochs * steps, pct_start=pct_start)
    expected = []
    for _ in range(epochs * steps):
        expected.append(reference.param_groups[0]["lr"])
        reference.step()
        if len(expected) < epochs * steps:
            cycle.step()
    assert rates(optimizer, scheduler, epochs * steps) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert optimizer.param_groups[0]["momentum"] == 0


@pytest.mark.parametrize("total", [1, 2, 3, 4])
@pytest.mark.parametrize("pct_start", [0.0, 0.25, 0.5, 0.999])
def test_onecycle_with_few_steps_stays_within_its_bounds(total, pct_start):
    factors = [one_cycle_factor(step, total_steps=total, pct_start=pct_start) for step in range(total + 1)]
    assert all(0 < factor <= 1 for factor in factors)


@pytest.mark.parametrize("options", ALL)
def test_a_schedule_resumes_from_its_state(options):
    whole = rates(*create(options), 9)
    optimizer, scheduler = create(options)
    assert rates(optimizer, scheduler, 4) == whole[:4]
    file = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    optimizer, scheduler = create(options)
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    assert rates(optimizer, scheduler, 5) == whole[4:]


def test_options_of_another_group_are_refused():
    with pytest.raises(UsageError, match="scheduler dataclass"):
        create(CnnOptions())
