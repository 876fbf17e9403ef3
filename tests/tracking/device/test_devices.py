"""Devices by name: resolved or refused with a clear error, never replaced by another one."""

from types import SimpleNamespace

import pytest
import torch

from runmanager.errors import DeviceUnavailableError, UsageError
from runmanager.tracking.device.devices import (
    device_facts,
    made_current,
    peak_host_bytes,
    peak_memory,
    peak_reserved_bytes,
    reset_peak_memory,
    resolve_device,
)


def test_auto_is_the_accelerator_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    assert resolve_device("cpu") == torch.device("cpu")


def test_a_missing_device_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceUnavailableError, match=r"'cuda' was asked for but PyTorch sees no CUDA.*device=cpu"):
        resolve_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(DeviceUnavailableError, match="'cuda:2' was asked for but PyTorch sees no such device"):
        resolve_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "tpu9"])
def test_an_invalid_device_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"got '{name}'"):
        resolve_device(name)


def test_device_facts_of_the_cpu() -> None:
    facts = device_facts(torch.device("cpu"), cpu_model="a processor")
    assert facts["device_name"] == "a processor"
    assert {"cuda", "cudnn_benchmark", "tf32_matmul"} <= set(facts)
    peak = peak_memory(torch.device("cpu"))
    assert peak is not None and peak > 50 * 2**20
    assert 50 * 2**20 < peak <= peak_host_bytes()
    assert peak_reserved_bytes(torch.device("cpu")) is None


def test_an_accelerators_memory_comes_from_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    counts = SimpleNamespace(
        max_memory_allocated=lambda device: 3,
        max_memory_reserved=lambda device: 4,
        reset_peak_memory_stats=calls.append,
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: counts)
    device = torch.device("cuda:1")
    assert (peak_memory(device), peak_reserved_bytes(device)) == (3, 4)
    reset_peak_memory(device)
    assert calls == [device]
    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace())
    monkeypatch.setattr(torch, "accelerator", SimpleNamespace())
    assert (peak_memory(device), peak_reserved_bytes(device)) == (None, None)
    reset_peak_memory(device)


def test_apples_memory_is_counted_for_all_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    resets: list[torch.device] = []
    counts = SimpleNamespace(max_memory_allocated=lambda device: 5, reset_peak_memory_stats=resets.append)
    monkeypatch.setattr(torch, "accelerator", counts)
    device = torch.device("mps")
    assert (peak_memory(device), peak_reserved_bytes(device)) == (5, None)
    reset_peak_memory(device)
    assert resets == [device]


def test_an_allocator_that_does_not_count_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: torch.device) -> int:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats")

    names = ("max_memory_allocated", "max_memory_reserved", "reset_peak_memory_stats")
    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace(**dict.fromkeys(names, refuse)))
    device = torch.device("cuda")
    reset_peak_memory(device)
    assert (peak_memory(device), peak_reserved_bytes(device)) == (None, None)


def test_apples_gpus_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "get_name", lambda: "Apple M3", raising=False)
    assert device_facts(torch.device("mps"), cpu_model="arm")["device_name"] == "Apple M3"


def test_only_an_index_makes_a_device_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "device_index", lambda index: index)
    assert [made_current(torch.device(name)) for name in ("cuda:1", "cuda", "cpu:0")] == [1, None, None]
