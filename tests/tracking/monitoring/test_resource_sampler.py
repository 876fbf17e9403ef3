"""Sampling of CPU and device: load by other processes, also during a part of the run only, and readings of meters."""

from collections.abc import Callable, Set
from dataclasses import dataclass

import psutil
import pytest

from runmanager.records.run.run_record import DeviceReadings
from runmanager.tracking.monitoring import resource_sampler as module
from runmanager.tracking.monitoring.device_meter import EnergyCounter, Reading
from runmanager.tracking.monitoring.resource_sampler import CpuTimes, ResourceSampler


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


def sampler_of(machine: Machine, *, cost: float = 0.0) -> ResourceSampler:
    return ResourceSampler(cpu_clock=thread_clock(cost), now=lambda: machine.at)


def play(sampler: ResourceSampler, machine: Machine, *intervals: tuple[float, float]) -> None:
    """Sample every two seconds through intervals of (seconds, cores that others use)."""
    for seconds, others in intervals:
        for _ in range(int(seconds / 2)):
            machine.advance(2.0, others=others)
            sampler.sample()


def test_a_run_alone_has_no_contention(machine: Machine) -> None:
    sampler = sampler_of(machine)
    play(sampler, machine, (60, 0))
    cpu = sampler.cpu()
    assert (cpu.outside_cpu_share, cpu.outside_cpu_share_p90, cpu.steal_share, cpu.steal_share_p90) == (0, 0, 0, 0)


def test_the_quantile_shows_load_during_a_part_of_the_run(machine: Machine) -> None:
    sampler = sampler_of(machine)
    play(sampler, machine, (50, 0), (14, 3), (50, 0))
    cpu = sampler.cpu()
    assert cpu.outside_cpu_share == pytest.approx(14 * 3 / 4 / 114)
    assert cpu.outside_cpu_share < 0.10
    assert cpu.outside_cpu_share_p90 == 0.75


def test_the_quantile_ignores_load_during_less_than_a_tenth(machine: Machine) -> None:
    sampler = sampler_of(machine)
    play(sampler, machine, (60, 0), (4, 3), (60, 0))
    assert sampler.cpu().outside_cpu_share_p90 == 0


def test_steal_is_sampled_in_the_same_way(machine: Machine) -> None:
    sampler = sampler_of(machine)
    for stolen in (0, 0, 0, 2):
        machine.advance(2, stolen=stolen)
        sampler.sample()
    cpu = sampler.cpu()
    assert cpu.steal_share == 0.125 and cpu.steal_share_p90 == 0.5


def test_the_time_after_the_last_sample_counts_if_it_is_long_enough(machine: Machine) -> None:
    sampler = sampler_of(machine)
    machine.advance(0.5, others=3)
    assert sampler.cpu().outside_cpu_share_p90 is None
    assert sampler.cpu().outside_cpu_share == 0.75
    machine.advance(1.5, others=3)
    assert sampler.cpu().outside_cpu_share_p90 == 0.75


def test_expensive_samples_are_taken_less_often(machine: Machine) -> None:
    sampler = sampler_of(machine, cost=0.009)  # a thousandth of the time: a sample in nine seconds
    num_samples = 0
    for _ in range(100):
        machine.advance(2)
        before = sampler._last.at
        sampler.sample()
        num_samples += sampler._last.at > before
    assert num_samples == pytest.approx(20, abs=1)


def test_a_failed_sample_is_skipped(machine: Machine) -> None:
    sampler = sampler_of(machine)
    machine.fails = True
    play(sampler, machine, (10, 3))
    machine.fails = False
    assert sampler.cpu().outside_cpu_share == 0.75


class Meter:
    """A GPU with prepared readings, the last of which stays, that uses 300 W; its counter grows ten times a second."""

    def __init__(self, machine: Machine, *readings: Reading, is_of_host: bool = False) -> None:
        self.is_of_host = is_of_host
        self.own: list[Set[int]] = []
        self._readings = list(readings)
        self.energy = EnergyCounter(lambda: 300 * (machine.at * 10 // 1) / 10, step_seconds=0.1, now=lambda: machine.at)

    def read(self, own: Set[int]) -> Reading:
        self.own.append(own)
        return self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]


ALONE = Reading(0.5, 1e9, False, False)


def epochs_of(machine: Machine, meter: Meter, *, seconds: float, num: int, cost: float = 0.0) -> list[DeviceReadings]:
    """Play epochs with nothing between them."""
    sampler, found = sampler_of(machine, cost=cost), []
    for _ in range(num):
        sampler.epoch_begins(meter)
        machine.advance(seconds)
        ended = sampler.epoch_ends()
        assert ended is not None
        found.append(ended)
    return found


def test_the_device_is_read_during_epochs_and_at_their_ends(machine: Machine) -> None:
    meter = Meter(
        machine, Reading(0.5, 1e9, True, False), Reading(1.0, 3e9, False, True), Reading(0.0, 2e9, None, None)
    )
    sampler = sampler_of(machine)
    play(sampler, machine, (4, 0))
    assert sampler.epoch_ends() is None and meter.own == []
    sampler.epoch_begins(meter)
    play(sampler, machine, (4, 0))
    found = sampler.epoch_ends()
    assert found == DeviceReadings(utilization=0.5, clock_hertz=2e9, throttled_share=0.5, others_share=0.5)
    assert meter.own == [{7}] * 3


def test_a_short_epoch_has_a_reading_too(machine: Machine) -> None:
    (found,) = epochs_of(machine, Meter(machine, Reading(0.5, 1e9, True, True)), seconds=0.03, num=1)
    assert (found.throttled_share, found.others_share, found.clock_hertz) == (1.0, 1.0, 1e9)


def test_the_energy_of_epochs_shorter_than_a_step_adds_up(machine: Machine) -> None:
    found = epochs_of(machine, Meter(machine, ALONE), seconds=0.03, num=100)
    assert sum(each.joules or 0.0 for each in found) == pytest.approx(900, abs=30)
    assert sorted(each.joules or 0.0 for each in found)[50] == 0  # so their median is none
    assert sum(each.counter_steps or 0.0 for each in found) == pytest.approx(30)
    assert sum(each.seconds or 0.0 for each in found) == pytest.approx(3)


@pytest.mark.parametrize("has_others", [True, None])
def test_the_energy_of_a_device_that_others_used_or_may_have_is_unknown(
    machine: Machine, has_others: bool | None
) -> None:
    (found,) = epochs_of(machine, Meter(machine, Reading(0.5, 1e9, False, has_others)), seconds=30, num=1)
    assert (found.joules, found.seconds, found.counter_steps) == (None, None, None)


def test_slow_meters_are_read_at_the_ends_of_few_epochs(machine: Machine) -> None:
    meter = Meter(machine, ALONE)
    found = epochs_of(machine, meter, seconds=0.03, num=40, cost=0.01)  # a hundredth of the time: one in a second
    assert len(meter.own) == 2 and sum(each.clock_hertz is not None for each in found) == 1
    assert all(each.joules is not None for each in found)


@pytest.mark.parametrize(("others", "is_known"), [(0.0, True), (0.05, True), (2.0, False)])
def test_the_energy_of_a_host_is_known_where_others_hardly_compute(
    machine: Machine, others: float, is_known: bool
) -> None:
    sampler = sampler_of(machine)
    meter = Meter(machine, Reading(), is_of_host=True)
    sampler.epoch_begins(meter)
    machine.advance(3.0, others=others)
    found = sampler.epoch_ends()
    assert found is not None and (found.joules is not None) is is_known and found.others_share is None


def test_the_energy_of_a_host_is_unknown_before_its_load_was_seen(machine: Machine) -> None:
    (found,) = epochs_of(machine, Meter(machine, Reading(), is_of_host=True), seconds=0.5, num=1)
    assert found.joules is None


def test_the_real_machine_can_be_sampled() -> None:
    sample = CpuTimes.now()
    assert psutil.Process().pid in sample.own_processes
    assert 0 < sample.own <= sample.busy
