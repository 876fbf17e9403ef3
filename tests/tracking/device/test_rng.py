"""Random states: there and back again, through a checkpoint that loads nothing but weights."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from runmanager.tracking.device.rng import preserve_random_states, random_states, restore_random_states, seed_everything


def draw() -> tuple[float, ...]:
    return (
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        float(torch.rand(())),
        float(torch.randn(())),
    )


def test_the_same_seed_draws_the_same() -> None:
    seed_everything(7)
    first = draw()
    seed_everything(7)
    assert draw() == first
    seed_everything(8)
    assert draw() != first
    seed_everything(2**63 - 1)  # NumPy takes 32 bits only


def test_states_survive_a_file_of_weights_only(tmp_path: Path) -> None:
    seed_everything(3)
    draw()  # an odd number of Gaussians leaves one cached in Python and in NumPy
    torch.save(random_states(), tmp_path / "states.pt")
    expected = [draw() for _ in range(700)]  # beyond one refill of the Mersenne twisters
    seed_everything(4)
    restore_random_states(torch.load(tmp_path / "states.pt", weights_only=True))
    assert [draw() for _ in range(700)] == expected


def test_a_body_may_draw_unnoticed() -> None:
    seed_everything(5)
    expected = draw()
    seed_everything(5)
    with preserve_random_states():
        draw()
    assert draw() == expected
    seed_everything(5)
    with pytest.raises(ValueError, match="inside"), preserve_random_states():
        draw()
        raise ValueError("inside")
    assert draw() == expected


def test_an_idle_accelerator_is_not_started_to_ask_for_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> bool:
        raise AssertionError("CUDA was started")

    monkeypatch.setattr(torch.cuda, "is_available", start)
    with preserve_random_states():
        assert set(random_states()) == {"python", "numpy", "torch"}
