"""Readings of a fake NVML and of a kernel's counters: units, missing meters, steps, and processes of others."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runmanager.tracking.monitoring.device_meter import EnergyCounter, NvmlMeter, Reading, open_host_meter, open_meter

HANDLE = object()


class FakeError(Exception):
    """The library's exception."""


class FakeNvml:
    """The used part of the module `pynvml`; a value of None is not supported."""

    NVMLError = FakeError
    NVML_CLOCK_SM = 1

    def __init__(self, **values: Any) -> None:
        self.values = {"gpu": 75, "megahertz": 1980, "reasons": 0, "pids": [], **values}
        self.uuids: list[str] = []

    def _value(self, name: str, handle: object) -> Any:
        assert handle is HANDLE
        if self.values[name] is None:
            raise FakeError("not supported")
        return self.values[name]

    def nvmlInit(self) -> None:
        if self.values.get("broken"):
            raise FakeError("driver not loaded")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:
        self.uuids.append(uuid)
        if not uuid.startswith(self.values.get("kind", "GPU-")):
            raise FakeError("not found")
        return HANDLE

    def nvmlDeviceGetUtilizationRates(self, handle: object) -> Any:
        return SimpleNamespace(gpu=self._value("gpu", handle), memory=10)

    def nvmlDeviceGetClockInfo(self, handle: object, kind: int) -> Any:
        assert kind == self.NVML_CLOCK_SM
        return self._value("megahertz", handle)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object) -> Any:
        return self._value("reasons", handle)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> Any:
        return [SimpleNamespace(pid=pid) for pid in self._value("pids", handle)]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: object) -> Any:
        return self._value("millijoules", handle)


def read(own: frozenset[int] = frozenset(), **values: Any) -> Reading:
    return NvmlMeter(FakeNvml(**values), HANDLE).read(own)


def test_units() -> None:
    assert read() == Reading(0.75, 1.98e9, False, None)
    assert NvmlMeter(FakeNvml(millijoules=1500), HANDLE).energy.joules() == 1.5


def test_missing_meters_give_none() -> None:
    nothing = dict.fromkeys(("gpu", "megahertz", "reasons", "pids", "millijoules"))
    assert read(**nothing) == Reading()
    assert NvmlMeter(FakeNvml(**nothing), HANDLE).energy.joules() is None


@pytest.mark.parametrize("reasons", [0x00, 0x01, 0x02, 0x10, 0x100, 0x03])
def test_idle_and_configured_clocks_do_not_count_as_throttling(reasons: int) -> None:
    assert read(reasons=reasons).is_throttled is False


@pytest.mark.parametrize("reasons", [0x04, 0x08, 0x20, 0x40, 0x80, 0x21])
def test_power_and_heat_count_as_throttling(reasons: int) -> None:
    assert read(reasons=reasons).is_throttled is True


@pytest.mark.parametrize(
    ("pids", "others"),
    [
        ([], None),  # it would have this process
        ([os.getpid()], False),
        ([os.getpid(), 4], True),
        ([os.getpid(), 7], False),  # a worker of the run
        ([7], False),
        ([1234], False),  # this process by its id on the host, in a container
        ([1234, 1235], True),
    ],
)
def test_processes_of_the_run_do_not_count_as_others(pids: list[int], others: bool | None) -> None:
    assert read(frozenset({7}), pids=pids).has_others is others


@pytest.mark.parametrize(("pids", "others"), [([1234], False), ([1234, 1235], None), ([os.getpid(), 1235], True)])
def test_on_a_shared_gpu_in_a_container_others_are_unknown(pids: list[int], others: bool | None) -> None:
    meter = NvmlMeter(FakeNvml(pids=pids), HANDLE, is_shared=True)
    assert meter.read(frozenset({7})).has_others is others


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc"))
    return torch.device("cuda:1")


@pytest.mark.parametrize(("kind", "uuids"), [("GPU-", ["GPU-abc"]), ("MIG-", ["GPU-abc", "MIG-abc"])])
def test_the_gpu_is_found_by_its_unique_id(
    cuda: torch.device, monkeypatch: pytest.MonkeyPatch, kind: str, uuids: list[str]
) -> None:
    fake = FakeNvml(kind=kind)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    meter = open_meter(cuda)
    assert meter is not None and fake.uuids == uuids
    assert meter.read(frozenset()).clock_hertz == 1.98e9


@pytest.mark.parametrize("module", [None, FakeNvml(broken=True), FakeNvml(kind="none")])
def test_without_library_or_driver_no_meter_is_opened(
    cuda: torch.device, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert open_meter(cuda) is None


def test_other_devices_have_no_meter() -> None:
    assert open_meter(torch.device("mps")) is None


def test_a_counter_that_stands_still_has_longer_steps() -> None:
    values, times = iter([5.0, 5.0, 5.0, 6.0, 6.0]), iter([0.0, 0.05, 0.25, 0.3, 0.35])
    counter = EnergyCounter(lambda: next(values), step_seconds=0.1, now=lambda: next(times))
    steps = []
    for _ in range(5):
        counter.joules()
        steps.append(counter.step_seconds)
    assert steps == [0.1, 0.1, 0.25, 0.25, 0.25]


def zone(folder: Path, name: str, kind: str, *, microjoules: int) -> Path:
    made = folder / name
    made.mkdir(parents=True)
    for file, text in (("name", kind), ("energy_uj", microjoules), ("max_energy_range_uj", 10_000_000)):
        (made / file).write_text(f"{text}\n")
    return made


def test_the_energy_of_a_host_is_that_of_all_its_processors(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", microjoules=9_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", microjoules=5_000_000)  # a part of it
    zone(tmp_path, "intel-rapl:1", "package-1", microjoules=2_000_000)
    zone(tmp_path, "intel-rapl:2", "psys", microjoules=7_000_000)  # of the board, which has both
    meter = open_host_meter(tmp_path)
    assert meter is not None and meter.energy.joules() == pytest.approx(11.0)
    (first / "energy_uj").write_text("1000000")  # it began at zero again after 10 J
    assert meter.energy.joules() == pytest.approx(13.0)
    (first / "energy_uj").unlink()
    assert meter.energy.joules() is None


def test_counters_that_cannot_be_read_are_no_meter(tmp_path: Path) -> None:
    assert open_host_meter(tmp_path) is None
    (zone(tmp_path, "intel-rapl:0", "package-0", microjoules=1) / "energy_uj").unlink()
    assert open_host_meter(tmp_path) is None
