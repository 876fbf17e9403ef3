"""Paired speedups: known values, coverage of the intervals, and the grouping of rounds."""

import dataclasses
import math

import msgspec
import numpy as np
import pytest
from scipy import stats

from benchmarks.paired_simulation import NOISES, Machine, coverage, power
from runmanager.records.run.run_record import Attempt, Turn
from runmanager.results.stats.paired_speedup import (
    PairedSpeedup,
    batch_length,
    is_narrow,
    log_ratios,
    log_ratios_by_session,
    paired_speedup,
    rounds_by_session,
    sessions_needed,
)

TIME = "2026-01-01T00:00:00+00:00"


def test_one_session_has_the_interval_of_what_is_assumed():
    """Of sessions whose deviations are those of the assumption, 95% of the intervals cover the truth."""
    estimate = paired_speedup([[math.log(2.0)] * 6])
    assert estimate.value == pytest.approx(2.0)
    assert estimate.high / 2.0 == pytest.approx(2.0 / estimate.low)
    assert (estimate.sessions, estimate.rounds, estimate.spread) == (1, 6, None)
    generator = np.random.default_rng(1)
    errors = 0.025 * np.exp(generator.normal(0, 1, 100_000)) * generator.standard_normal(100_000)
    assert np.mean(np.abs(errors) < math.log(estimate.high / 2.0)) == pytest.approx(0.95, abs=0.005)


def test_sessions_are_the_observations():
    """A session counts once, for any number of rounds."""
    estimate = paired_speedup([[0.01] * 10, [0.03] * 30])
    assert math.log(estimate.value) == pytest.approx(0.02)
    assert (estimate.sessions, estimate.rounds) == (2, 40)
    assert estimate.spread == pytest.approx(0.0141421, rel=1e-4)
    of_three = paired_speedup([[0.01] * 10, [0.02] * 10, [0.03] * 10])
    assert of_three.spread == pytest.approx(0.01)
    assert of_three.high / of_three.value < estimate.high / estimate.value


def test_the_interval_of_many_sessions_is_students():
    generator = np.random.default_rng(2)
    offsets = generator.normal(0.02, 0.01, 60).tolist()
    estimate = paired_speedup([[each] * 10 for each in offsets])
    wanted = stats.t.interval(0.95, 59, np.mean(offsets), stats.sem(offsets))
    assert (math.log(estimate.low), math.log(estimate.high)) == pytest.approx(wanted, abs=1e-4)


def test_simultaneous_intervals_are_wider():
    sessions = [[0.01] * 10, [0.03] * 30]
    one, many = paired_speedup(sessions), paired_speedup(sessions, rows=20)
    assert many.low < one.low < one.high < many.high


def test_no_sessions_have_no_interval():
    assert paired_speedup([]) is None
    assert not is_narrow([], 1.0)


@pytest.mark.parametrize("noise", NOISES)
def test_interval_covers_the_truth_for_all_noise_models(noise):
    machine = Machine(noise, 0.02)
    assert coverage(machine, trials=400, seed=1) >= 0.92 - 3 * math.sqrt(0.92 * 0.08 / 400)


def test_a_difference_is_found_within_a_minute_where_processes_are_alike():
    assert power(Machine("independent", 0.003, truth=1.03), trials=100, seed=2, max_spread=0.005) >= 0.9


def test_autocorrelated_rounds_are_averaged_in_batches():
    generator = np.random.default_rng(3)
    independent = [generator.normal(size=20).tolist() for _ in range(5)]
    drifting = [np.cumsum(session).tolist() for session in independent]
    assert batch_length(independent) == 1
    assert batch_length(drifting) >= 4
    assert batch_length([session[:6] for session in drifting]) <= 3  # two batches of a session are left
    one = drifting[:1]
    known = [paired_speedup(rounds) for rounds in (one, [sorted(one[0], key=lambda _: generator.random())])]
    assert known[0].high / known[0].low > known[1].high / known[1].low


def test_single_outlier_moves_the_estimate_little():
    steady = [0.1 + 0.001 * (7 * number % 20) for number in range(20)]
    estimate, disturbed = paired_speedup([steady]), paired_speedup([[*steady[:-1], 5.0]])
    assert disturbed.value == pytest.approx(estimate.value, rel=0.002)


def test_is_narrow_compares_half_of_the_interval():
    sessions = [[0.001 * number for number in range(10)]] * 3
    estimate = paired_speedup(sessions)
    half = estimate.high / estimate.value - 1
    assert is_narrow(sessions, half + 1e-9)
    assert not is_narrow(sessions, half - 1e-9)


def test_seeds_of_one_side_count_with_their_geometric_mean():
    rounds = [{0: 100.0, 1: 400.0, 2: 300.0}, {0: 100.0, 2: 150.0}, {0: 100.0, 1: 400.0}]
    assert log_ratios(rounds, [0, 1], [2]) == pytest.approx([math.log(1.5), math.log(1.5)])


def turn(number, rate, *, session="a", warmup=False):
    return Turn(session, number, 1, 10, 1000, 1000 / rate, warmup)


def taken(rates, *, session="a", warmup=0):
    return [turn(number, rate, session=session, warmup=number <= warmup) for number, rate in enumerate(rates, start=1)]


def test_rounds_are_grouped_by_session_without_warm_up(contents, timed):
    sweep = contents(*(({"lr": at}, timed([1.0]), {}) for at in range(2)))
    turns = [
        [*taken([10.0, *[100.0] * 7], warmup=1), *taken([5.0, 6.0], session="b"), *taken([100.0] * 6, session="c")],
        [*taken([20.0, *[200.0] * 6], warmup=1), *taken([7.0, 8.0], session="b"), *taken([300.0] * 6, session="c")],
    ]
    runs = [dataclasses.replace(run, turns=each) for run, each in zip(sweep.runs, turns, strict=True)]
    assert rounds_by_session(runs)[0] == [pytest.approx({0: 100.0, 1: 200.0})] * 6
    # Two rounds are too few for a session.
    assert log_ratios_by_session(runs[:1], runs[1:]) == [
        pytest.approx([math.log(2.0)] * 6),
        pytest.approx([math.log(3.0)] * 6),
    ]


def test_session_of_other_versions_does_not_count(contents, timed):
    sweep = contents(*(({"lr": at}, timed([1.0]), {}) for at in range(2)))
    then = msgspec.structs.replace(sweep.runs[0].record.environment, libraries={"torch": "2.9.0"})
    earlier = Attempt(started_at=TIME, ended_at=TIME, last_epoch=1, environment=then, session="a")
    runs = [
        dataclasses.replace(
            run,
            turns=[*taken([rate] * 6), *taken([rate] * 7, session="b")],
            record=msgspec.structs.replace(run.record, earlier=(earlier,), session="b"),
        )
        for run, rate in zip(sweep.runs, (100.0, 200.0), strict=True)
    ]
    assert [len(session) for session in log_ratios_by_session(runs[:1], runs[1:])] == [7]


def test_simultaneous_intervals_need_more_sessions():
    sessions = [[offset] * 10 for offset in (0.005, 0.03, 0.02, 0.0)]
    one, many = (sessions_needed(paired_speedup(sessions, rows=rows), 0.02) for rows in (1, 8))
    assert one == 5 and many > one
    assert sessions_needed(paired_speedup(sessions), 1e-12) is sessions_needed(paired_speedup(sessions), 0.0) is None


def test_the_noise_of_rounds_is_that_of_their_trimmed_mean():
    # By hand: two of ten are trimmed at either end; the winsorised squares about 0.035 add to 0.00425, over 6 x 5.
    rounds = [0.05, 0.01, 0.04, 0.02, 0.03, 0.06, 0.0, 0.07, -0.5, 0.9]
    estimate = paired_speedup([rounds])
    assert math.log(estimate.value) == pytest.approx(0.035)
    assert estimate.rounds_a_batch == 1
    # That is the least variance of a session: more of it than assumed decides alone.
    loud = paired_speedup([[20 * each for each in rounds]])
    assert loud.error == pytest.approx(20 * math.sqrt(0.00425 / 30), rel=0.05)
    assert math.log(loud.high / loud.value) == pytest.approx(1.96 * 20 * math.sqrt(0.00425 / 30), rel=0.05)


@pytest.mark.parametrize(
    ("rounds", "length"),
    # Bartels' ratio of 0 to n - 1 is 12 / n / (n + 1), and must be below 2 - 3.29 / √n for the next doubling.
    [(3, 1), (4, 1), (5, 2), (8, 2), (9, 2), (10, 4), (16, 4), (64, 16)],
)
def test_batches_are_doubled_while_their_means_drift(rounds, length):
    assert batch_length([list(range(rounds))]) == length
    assert paired_speedup([[each / 1000 for each in range(rounds)]]).rounds_a_batch == length


def test_rounds_that_are_all_equal_do_not_drift():
    assert batch_length([[1.0] * 40]) == 1


@pytest.mark.parametrize(
    ("error", "sessions", "needed"),
    # Student's t over √n for n sessions, with n + 1 degrees of freedom, times the noise must be at most log 1.02.
    [(0.02, 1, 6), (0.042133, 1, 20), (0.05, 1, 27), (0.5, 1, 2452), (0.01, 4, 6), (0.005, 4, 5)],
)
def test_sessions_are_counted_until_the_interval_is_narrow(error, sessions, needed):
    estimate = PairedSpeedup(
        value=1.0,
        low=0.9,
        high=1.1,
        error=error,
        dof=1.0 + sessions,
        sessions=sessions,
        rounds=6 * sessions,
        spread=None,
        rounds_a_batch=1,
    )
    assert sessions_needed(estimate, 0.02) == needed
