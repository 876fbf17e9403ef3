"""Calibration: probes are timed in rounds, and the best time of each counts."""

import itertools

import pytest
import torch

from runmanager.tracking.monitoring import calibration
from runmanager.tracking.monitoring.calibration import Probe, best_seconds, calibrate, thread_counts

from ..conftest import Timeline

CPU = torch.device("cpu")


def test_probes_run_in_rounds_and_the_best_time_counts() -> None:
    clock, order = Timeline(), []
    times = {"one": itertools.chain([3.0, 2.0, 5.0], itertools.repeat(4.0)), "two": itertools.repeat(1.0)}

    def probe(name: str) -> Probe:
        def work() -> None:
            order.append(name)
            clock.now += next(times[name])

        return Probe(name, work, 1.0)

    best = best_seconds([probe("one"), probe("two")], clock, seconds=30.0, now=lambda: clock.now)
    assert best == {"one": 2.0, "two": 1.0}
    assert order == ["one", "two"] * (len(order) // 2) and len(order) >= 10
    assert clock.num_waits == 2 * len(order), "the device is idle before each probe and synchronised after it"


def test_every_probe_is_timed_even_without_time() -> None:
    clock = Timeline()
    count = itertools.count()
    best_seconds([Probe("one", lambda: next(count), 1.0)], clock, seconds=0.0, now=lambda: 0.0)
    assert next(count) > 1


def test_the_cpu_has_peak_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_MIN_PRODUCT_SECONDS", 0.0)  # the smallest products
    monkeypatch.setattr(calibration, "_COPY_BYTES", 2**20)
    before = torch.get_num_threads()
    peaks = calibrate(CPU, seconds=0.0, threads=1)
    assert torch.get_num_threads() == before
    assert set(peaks.flops_per_second) == {"fp32", "bf16"} and min(peaks.flops_per_second.values()) > 0
    assert peaks.copy_bytes_per_second and peaks.dispatch_seconds
    assert peaks.transfer_bytes_per_second is None
    assert peaks.threads == 1 and peaks.torch == torch.__version__ and peaks.device_name
    assert peaks.measured_at


@pytest.mark.parametrize(
    ("cores", "counts"), [(1, [1]), (2, [2, 1]), (6, [6, 3, 1]), (16, [16, 8, 4, 2, 1]), (12, [12, 6, 3, 1])]
)
def test_thread_counts_halve_with_each_doubling_of_runs(cores: int, counts: list[int]) -> None:
    torch.set_num_threads(1)
    assert thread_counts(cores) == counts
