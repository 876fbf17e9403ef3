"""Sampling of CPU and GPU: load by other processes, also during a part of the run only, and GPU readings."""

from collections.abc import Callable, Set
from dataclasses import dataclass, field

import psutil
import pytest

from runmanager.tracking.monitoring import resource_sampler as module
from runmanager.tracking.monitoring.resource_sampler import CpuTimes, GpuMeans, GpuReading, ResourceSampler


@dataclass
class Machine:
    """A machine with four cores and the run on one of them; the test advances its time."""

    at: float = 100.0
    busy: float = 50.0
    own: float = 5.0
    steal: float = 1.0
    own_processes: frozenset[int] = frozenset({7})
    fails: bool = False

    def sample(self, *, of: int | None = None) -> CpuTimes:
        if self.fails:
            raise psutil.NoSuchProcess(7)
        return CpuTimes(self.at, self.busy, self.steal, self.own, self.own_processes)

    def advance(self, seconds: float, *, others: float = 0.0, stolen: float = 0.0) -> None:
        """Advance by `seconds` in which other processes use `others` cores and the hypervisor `stolen`."""
        self.at += seconds
        self.own += seconds
        self.busy += seconds * (1 + others)
        self.steal += seconds * stolen


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(CpuTimes, "now", machine.sample)
    monkeypatch.setattr(module.os, "cpu_count", lambda: 4)
    return machine


def thread_clock(seconds: float) -> Callable[[], float]:
    """Return a clock of the thread's CPU time that advances by `seconds` per call."""
    times = iter(seconds * at for at in range(10_000))
    return lambda: next(times)


def play(sampler: ResourceSampler, machine: Machine, *intervals: tuple[float, float]) -> None:
    """Sample every two seconds through intervals of (seconds, cores that others use)."""
    for seconds, others in intervals:
        for _ in range(int(seconds / 2)):
            machine.advance(2.0, others=others)
            sampler.sample(lambda: machine.at)


def test_a_run_alone_has_no_contention(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=thread_clock(0))
    play(sampler, machine, (60, 0))
    cpu = sampler.cpu()
    assert (cpu.outside_cpu_share, cpu.outside_cpu_share_p90, cpu.steal_share, cpu.steal_share_p90) == (0, 0, 0, 0)


def test_the_quantile_shows_load_during_a_part_of_the_run(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=thread_clock(0))
    play(sampler, machine, (50, 0), (14, 3), (50, 0))
    cpu = sampler.cpu()
    assert cpu.outside_cpu_share == pytest.approx(14 * 3 / 4 / 114)
    assert cpu.outside_cpu_share < 0.10
    assert cpu.outside_cpu_share_p90 == 0.75


def test_the_quantile_ignores_load_during_less_than_a_tenth(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=thread_clock(0))
    play(sampler, machine, (60, 0), (4, 3), (60, 0))
    assert sampler.cpu().outside_cpu_share_p90 == 0


def test_steal_is_sampled_in_the_same_way(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=thread_clock(0))
    for stolen in (0, 0, 0, 2):
        machine.advance(2, stolen=stolen)
        sampler.sample(lambda: machine.at)
    cpu = sampler.cpu()
    assert cpu.steal_share == 0.125 and cpu.steal_share_p90 == 0.5


def test_the_time_after_the_last_sample_counts_if_it_is_long_enough(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=thread_clock(0))
    machine.advance(0.5, others=3)
    assert sampler.cpu().outside_cpu_share_p90 is None
    assert sampler.cpu().outside_cpu_share == 0.75
    machine.advance(1.5, others=3)
    assert sampler.cpu().outside_cpu_share_p90 == 0.75


def test_expensive_samples_are_taken_less_often(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=thread_clock(0.009))  # a thousandth of the time: a sample in nine seconds
    num_samples = 0
    for _ in range(100):
        machine.advance(2)
        before = sampler._last.at
        sampler.sample(lambda: machine.at)
        num_samples += sampler._last.at > before
    assert num_samples == pytest.approx(20, abs=1)


def test_a_failed_sample_is_skipped(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=thread_clock(0))
    machine.fails = True
    play(sampler, machine, (10, 3))
    machine.fails = False
    assert sampler.cpu().outside_cpu_share == 0.75


@dataclass
class Meter:
    """A GPU with prepared readings."""

    readings: list[GpuReading]
    own: list[Set[int]] = field(default_factory=list)

    def read(self, own: Set[int]) -> GpuReading:
        self.own.append(own)
        return self.readings.pop(0)

    def energy_joules(self) -> float | None:
        return None


def test_the_gpu_is_read_during_training_only(machine: Machine) -> None:
    meter = Meter([GpuReading(0.5, 100.0, 1e9, True, False), GpuReading(1.0, None, 2e9, False, True)])
    sampler = ResourceSampler(meter, cpu_clock=thread_clock(0))
    play(sampler, machine, (4, 0))
    assert sampler.gpu() == GpuMeans()
    sampler.is_training = True
    play(sampler, machine, (4, 0))
    assert sampler.gpu() == GpuMeans(0.75, 100.0, 1.5e9, 0.5, 0.5)
    assert meter.own == [{7}, {7}]


def test_the_real_machine_can_be_sampled() -> None:
    sample = CpuTimes.now()
    assert psutil.Process().pid in sample.own_processes
    assert 0 < sample.own <= sample.busy
