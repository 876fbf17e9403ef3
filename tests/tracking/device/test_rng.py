"""Random states: saved and restored, also through a checkpoint loaded with `weights_only`."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from runmanager.tracking.device import devices
from runmanager.tracking.device.devices import (
    preserve_random_states,
    random_states,
    restore_random_states,
    seed_everything,
)


def draw() -> tuple[float, ...]:
    return (
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        float(torch.rand(())),
        float(torch.randn(())),
    )


def test_equal_seeds_draw_equal_numbers() -> None:
    seed_everything(7)
    first = draw()
    seed_everything(7)
    assert draw() == first
    seed_everything(8)
    assert draw() != first
    seed_everything(2**63 - 1)  # NumPy accepts 32 bits only


def test_states_can_be_loaded_with_weights_only(tmp_path: Path) -> None:
    seed_everything(3)
    draw()  # an odd number of Gaussians leaves one cached in Python and in NumPy
    torch.save(random_states(), tmp_path / "states.pt")
    expected = [draw() for _ in range(700)]  # beyond one refill of the Mersenne twisters
    seed_everything(4)
    restore_random_states(torch.load(tmp_path / "states.pt", weights_only=True))
    assert [draw() for _ in range(700)] == expected


def test_a_host_with_fewer_gpus_restores_the_states_of_those(monkeypatch: pytest.MonkeyPatch) -> None:
    restored: list[str] = []
    monkeypatch.setattr(devices, "accelerator_in_use", lambda: "cuda")
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: ["first", "second"])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", restored.extend)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    restore_random_states(random_states())
    assert restored == ["first"]


def test_the_states_of_apples_gpu_are_included_once_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [torch.tensor(1)]
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 1)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: states[-1])
    monkeypatch.setattr(torch.mps, "set_rng_state", states.append)
    with preserve_random_states():
        states.append(torch.tensor(2))
    assert [int(state) for state in states] == [1, 2, 1]


def test_preserve_random_states() -> None:
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


def test_reading_states_does_not_initialize_an_idle_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> bool:
        raise AssertionError("CUDA was started")

    monkeypatch.setattr(torch.cuda, "is_available", start)
    with preserve_random_states():
        assert set(random_states()) == {"python", "numpy", "torch"}
