"""Phase times on a simulated clock: every delay is measured in its phase, exactly."""

import time
from pathlib import Path

import pytest

from benchmarks.phase_truth import DELAYS, Deviation, InjectedDelays, deviations, section, train, train_with


class SimulatedClock:
    """A clock that advances only by delays."""

    def __init__(self) -> None:
        self.nanoseconds = 10**9

    def wait(self, seconds: float) -> None:
        self.nanoseconds += round(seconds * 1e9)

    def seconds(self) -> float:
        return self.nanoseconds * 1e-9


@pytest.fixture
def controlled(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    controlled = SimulatedClock()
    monkeypatch.setattr(time, "perf_counter_ns", lambda: controlled.nanoseconds)
    monkeypatch.setattr(time, "perf_counter", controlled.seconds)
    return controlled


def test_each_delay_is_measured_in_its_phase_and_phases_sum_to_the_wall_time(
    tmp_path: Path, controlled: SimulatedClock
) -> None:
    accounts = train(tmp_path / "sweep", InjectedDelays(controlled.wait, controlled.seconds), num_epochs=3)
    assert [record.epoch for _, record in accounts] == [2, 3], "the first one is warm-up"
    for waited, record in accounts:
        assert set(waited) == set(DELAYS)
        for phase, seconds in waited.items():
            assert getattr(record, f"{phase}_seconds") == pytest.approx(seconds, abs=1e-6)
        assert record.wall_seconds == pytest.approx(sum(waited.values()), abs=1e-6)
        training = waited["data"] + waited["transfer"] + waited["compute"]
        assert record.epoch_seconds == pytest.approx(training, abs=1e-6)
    found = deviations(accounts)
    assert [each.phase for each in found] == [*DELAYS, "wall"]
    assert all(each.is_met and abs(each.share) < 1e-6 for each in found)


@pytest.mark.filterwarnings("ignore:::lightning")
@pytest.mark.parametrize(
    ("framework", "phases"),
    [("lightning", {"data", "transfer", "compute", "eval", "tracking"}), ("transformers", {"data", "compute", "eval"})],
)
def test_each_delay_in_a_framework_is_measured_in_its_phase(
    tmp_path: Path, controlled: SimulatedClock, framework: str, phases: set[str]
) -> None:
    delays = InjectedDelays(controlled.wait, controlled.seconds)
    accounts = train_with(framework, tmp_path / "sweep", delays, num_epochs=3)
    assert [record.epoch for _, record in accounts] == [2, 3]
    for waited, record in accounts:
        assert set(waited) == phases
        for phase, seconds in waited.items():
            assert getattr(record, f"{phase}_seconds") == pytest.approx(seconds, abs=1e-6)
        assert record.wall_seconds == pytest.approx(sum(waited.values()), abs=1e-6)


def test_phase_with_a_large_deviation_misses_its_budget() -> None:
    assert Deviation("data", 1.0, 1.02, 0.02, 0.02).is_met and Deviation("data", 1.0, 0.98, -0.02, 0.02).is_met
    assert not Deviation("data", 1.0, 1.03, 0.03, 0.02).is_met
    assert not Deviation("wall", 1.0, 0.98, -0.02, 0.01).is_met


def test_table_has_a_row_per_phase() -> None:
    found = [Deviation("data", 0.5, 0.505, 0.01, 0.02), Deviation("wall", 1.0, 1.02, 0.02, 0.01)]
    text = section(found, num_epochs=3, machine="a machine", command="python -m benchmarks.phase_truth")
    assert "| `data_seconds` | 0.5000 s | 0.5050 s | +1.00% |" in text
    assert "| all phases, against `wall_seconds` | 1.0000 s | 1.0200 s | **+2.00%** |" in text
    assert text.endswith(" on a machine.\n")
