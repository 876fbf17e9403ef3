"""What a run met: others on the machine, also those that came for a part of the run only, and the GPU's meters."""

from collections.abc import Callable, Set
from dataclasses import dataclass, field

import psutil
import pytest

from runmanager.tracking.environment import resource_sampler as module
from runmanager.tracking.environment.gpu_meter import GpuReading
from runmanager.tracking.environment.resource_sampler import CpuTimes, GpuMeans, ResourceSampler


@dataclass
class Machine:
    """A machine of four cores with the run on one of them, whose time the test moves on."""

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

    def pass_by(self, seconds: float, *, others: float = 0.0, stolen: float = 0.0) -> None:
        """So many seconds in which others have so many cores to themselves."""
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


def spends(seconds: float) -> Callable[[], float]:
    """A clock of the thread's own time, of which each look takes so much."""
    times = iter(seconds * at for at in range(10_000))
    return lambda: next(times)


def play(sampler: ResourceSampler, machine: Machine, *stretches: tuple[float, float]) -> None:
    """Looks every two seconds through stretches of (seconds, cores that others have)."""
    for seconds, others in stretches:
        for _ in range(int(seconds / 2)):
            machine.pass_by(2.0, others=others)
            sampler.sample(lambda: machine.at)


def test_a_quiet_run_met_nobody(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=spends(0))
    play(sampler, machine, (60, 0))
    met = sampler.cpu()
    assert (met.outside_cpu_share, met.outside_cpu_share_p90, met.steal_share, met.steal_share_p90) == (0, 0, 0, 0)


def test_who_came_for_a_part_is_seen_though_the_mean_hides_it(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=spends(0))
    play(sampler, machine, (50, 0), (14, 3), (50, 0))
    met = sampler.cpu()
    assert met.outside_cpu_share == pytest.approx(14 * 3 / 4 / 114)
    assert met.outside_cpu_share < 0.10
    assert met.outside_cpu_share_p90 == 0.75


def test_who_came_for_less_than_a_tenth_is_not(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=spends(0))
    play(sampler, machine, (60, 0), (4, 3), (60, 0))
    assert sampler.cpu().outside_cpu_share_p90 == 0


def test_what_the_hypervisor_took_is_seen_in_the_same_way(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=spends(0))
    for stolen in (0, 0, 0, 2):
        machine.pass_by(2, stolen=stolen)
        sampler.sample(lambda: machine.at)
    met = sampler.cpu()
    assert met.steal_share == 0.125 and met.steal_share_p90 == 0.5


def test_the_stretch_after_the_last_look_counts_unless_it_is_too_short_to_measure(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=spends(0))
    machine.pass_by(0.5, others=3)
    assert sampler.cpu().outside_cpu_share_p90 is None
    assert sampler.cpu().outside_cpu_share == 0.75
    machine.pass_by(1.5, others=3)
    assert sampler.cpu().outside_cpu_share_p90 == 0.75


def test_looks_that_take_long_are_taken_less_often(machine: Machine) -> None:
    sampler = ResourceSampler(
        cpu_clock=spends(0.009)
    )  # of the run's time a thousandth may be spent: a look in nine seconds
    looks = 0
    for _ in range(100):
        machine.pass_by(2)
        before = sampler._last.at
        sampler.sample(lambda: machine.at)
        looks += sampler._last.at > before
    assert looks == pytest.approx(20, abs=1)


def test_a_look_that_fails_does_no_harm(machine: Machine) -> None:
    sampler = ResourceSampler(cpu_clock=spends(0))
    machine.fails = True
    play(sampler, machine, (10, 3))
    machine.fails = False
    assert sampler.cpu().outside_cpu_share == 0.75


@dataclass
class Meter:
    """A GPU whose looks the test has written down."""

    looks: list[GpuReading]
    own: list[Set[int]] = field(default_factory=list)

    def read(self, own: Set[int]) -> GpuReading:
        self.own.append(own)
        return self.looks.pop(0)

    def energy_joules(self) -> float | None:
        return None


def test_the_gpu_is_looked_at_while_the_run_trains(machine: Machine) -> None:
    meter = Meter([GpuReading(0.5, 100.0, 1e9, True, False), GpuReading(1.0, None, 2e9, False, True)])
    sampler = ResourceSampler(meter, cpu_clock=spends(0))
    play(sampler, machine, (4, 0))
    assert sampler.gpu() == GpuMeans()
    sampler.is_training = True
    play(sampler, machine, (4, 0))
    assert sampler.gpu() == GpuMeans(0.75, 100.0, 1.5e9, 0.5, 0.5)
    assert meter.own == [{7}, {7}]


def test_a_real_machine_can_be_looked_at() -> None:
    sample = CpuTimes.now()
    assert psutil.Process().pid in sample.own_processes
    assert 0 < sample.own <= sample.busy
