"""The device and the memory that a cell of any program has used, where the program does not report them."""

import pytest
import torch

from runmanager.app.programs.cell_supervisor import _SeenDevice
from runmanager.records.run.run_record import Environment
from runmanager.tracking.device import devices


@pytest.mark.parametrize("name", ["cuda:1", "xpu", "mps"])
def test_they_are_those_of_the_accelerator_that_was_used_most(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    used = [torch.device(name), torch.device("cuda:0")]
    monkeypatch.setattr(devices, "devices_in_use", lambda: used)
    monkeypatch.setattr(devices, "device_facts", lambda device, cpu_model: {"device_name": f"the {device}"})
    monkeypatch.setattr(devices, "peak_memory", {used[0]: 7}.get)
    environment = Environment(cpu_model="a processor")
    assert _SeenDevice().added_to(environment).device_name == f"the {name}"
    assert _SeenDevice().peak_memory_bytes() == 7
    used.clear()
    assert _SeenDevice().added_to(environment).device_name == "a processor"
    assert (_SeenDevice().peak_memory_bytes() or 0) > 10 * 2**20
