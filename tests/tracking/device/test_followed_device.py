"""The device that a run is measured on: the one that its program uses, also where that appears later."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import runmanager
from runmanager import RunManager
from runmanager.records.run.run_record import Environment
from runmanager.records.storage.reader import StoredRun
from runmanager.tracking import epoch_recorder, run
from runmanager.tracking.device.devices import device_in_use, devices_in_use, is_same_device
from runmanager.tracking.lifecycle import run_measurements

from ..conftest import Timeline

CPU, SECOND = torch.device("cpu"), torch.device("cuda:1")
OnlyRun = Callable[[], StoredRun]


class Machine:
    """A host with two GPUs, of which a test says which one is used; each device has a clock."""

    def __init__(self) -> None:
        self.used = CPU
        self.clocks: dict[torch.device, Timeline] = {}

    def clock(self, device: torch.device) -> Timeline:
        return self.clocks.setdefault(device, Timeline())

    def pass_by(self, device: torch.device, seconds: float) -> None:
        """Let work of `seconds` on a device end; the host sees only its launch."""
        self.clock(device).now += seconds
        if device != CPU:
            self.clock(CPU).now += seconds / 100


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine()
    for module in (epoch_recorder, run):
        monkeypatch.setattr(module, "clock_for", made.clock)
    monkeypatch.setattr(epoch_recorder, "device_in_use", lambda: made.used)
    monkeypatch.setattr(epoch_recorder, "device_of", lambda network: made.used if network is not None else None)
    monkeypatch.setattr(
        run_measurements, "device_facts", lambda device, **_: {"device_name": f"the GPU {device.index}"}
    )
    monkeypatch.setattr(run_measurements, "open_meter", lambda device, *, is_shared: None)
    for module in (run_measurements, run):
        monkeypatch.setattr(module, "peak_memory", lambda device: 1000 + (device.index or 0))
    monkeypatch.setattr(run_measurements, "peak_reserved_bytes", lambda device: None)
    monkeypatch.setattr(run_measurements, "reset_peak_memory", lambda device: None)
    yield made


def loop(folder: Path, machine: Machine, *, first_used_in: int | None, num: int = 3) -> Any:
    """Epochs of 10 s, on the second GPU from within the given one on, or from before the first."""
    with runmanager.start_run(params={}, root=folder / "sweep") as active:
        if first_used_in is None:
            machine.used = SECOND
        for epoch in active.epochs(num):
            if epoch.number == first_used_in:
                machine.used = SECOND
            machine.pass_by(machine.used, 10.0)
            epoch.track(1.0, samples=100)
    return active


def test_a_device_that_is_used_before_the_first_epoch_has_its_clock(
    tmp_path: Path, machine: Machine, only_run: OnlyRun
) -> None:
    active = loop(tmp_path, machine, first_used_in=None)
    stored = only_run()
    assert [epoch.epoch_seconds for epoch in stored.epochs] == [10.0] * 3
    assert active.device == SECOND and stored.record.environment.device_name == "the GPU 1"
    assert stored.record.measurements.peak_allocated_bytes == stored.record.peak_memory_bytes == 1001


def test_the_epoch_within_which_a_device_appears_has_no_times(
    tmp_path: Path, machine: Machine, only_run: OnlyRun
) -> None:
    loop(tmp_path, machine, first_used_in=2)
    stored = only_run()
    assert [epoch.epoch_seconds for epoch in stored.epochs] == [10.0, None, 10.0]
    assert stored.epochs[1].wall_seconds is None and stored.epochs[1].samples == 100
    (note,) = [line for line in stored.record.notes if "no times" in line]
    assert note.startswith("epoch 2 has no times: it began before cuda:1 was seen to be used")


def test_an_interval_of_steps_within_which_a_device_appears_has_no_times(
    tmp_path: Path, machine: Machine, only_run: OnlyRun
) -> None:
    # The second interval begins with the step after which the device is seen.
    with runmanager.start_run(params={}, root=tmp_path / "sweep", record_every=2) as active:
        for step in range(8):
            machine.used = SECOND if step else CPU
            machine.pass_by(machine.used, 10.0)
            active.track(1.0, samples=100)
    assert [epoch.epoch_seconds for epoch in only_run().epochs] == [None, None, 20.0, 20.0]


class Placed(nn.Linear):
    """A network that notes where it was moved."""

    moves: tuple[Any, ...] = ()

    def to(self, *places: Any, **_: Any) -> "Placed":  # type: ignore[override]
        self.moves += places
        return self


def test_a_network_on_another_gpu_of_its_kind_stays_there_as_a_whole(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runmanager.tracking.manager.resolve_device", torch.device)
    monkeypatch.setattr("runmanager.tracking.manager.capture_environment", lambda device, code: Environment())
    monkeypatch.setattr("runmanager.tracking.device.devices._index", lambda device: device.index or 0)
    machine.used = SECOND
    for name, moved_to in (("cuda", SECOND), ("cuda:0", torch.device("cuda:0"))):
        network = Placed(2, 2)
        with RunManager(tmp_path / name, console=False).run({"device": name}, network, []) as active:
            assert network.moves == (moved_to,) and active.device == SECOND


@pytest.mark.parametrize("used", [torch.device("cuda:0"), SECOND])
def test_a_run_is_measured_on_the_gpu_of_its_network_whichever_is_current(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, used: torch.device, only_run: OnlyRun
) -> None:
    current = 0
    monkeypatch.setattr("runmanager.tracking.manager.resolve_device", torch.device)
    monkeypatch.setattr("runmanager.tracking.manager.capture_environment", lambda device, code: Environment())
    monkeypatch.setattr(
        "runmanager.tracking.device.devices._index", lambda device: current if device.index is None else device.index
    )
    machine.used = used
    begun = RunManager(tmp_path / "sweep", console=False).run({"device": "cuda"}, Placed(2, 2), [])
    current = used.index
    with begun as active:
        for epoch in active.epochs(3):
            machine.pass_by(used, 10.0)
            epoch.track(1.0, samples=100)
            current = 1 - current  # as to evaluate there
    assert active.device == used and [epoch.epoch_seconds for epoch in only_run().epochs] == [10.0] * 3
    assert only_run().record.environment.device_name == ("the GPU 1" if used == SECOND else None)


def test_devices_in_use_are_those_with_memory_the_one_with_the_most_first(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = {0: 0, 1: 7, 2: 9}
    gpus = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 3,
        current_device=lambda: 0,
        max_memory_allocated=lambda device: peaks[device.index],
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: gpus)
    assert devices_in_use() == [torch.device("cuda:2"), torch.device("cuda:1")]
    assert device_in_use() == torch.device("cuda:2")
    peaks |= {1: 0, 2: 0}
    assert devices_in_use() == [] and device_in_use() == CPU


def test_a_device_without_an_index_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace(current_device=lambda: 1))
    assert is_same_device(torch.device("cuda"), SECOND) and not is_same_device(torch.device("cuda:0"), SECOND)
    assert is_same_device(CPU, torch.device("cpu:0")) and not is_same_device(CPU, SECOND)
