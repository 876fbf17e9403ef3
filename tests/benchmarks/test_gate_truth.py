"""The resampled trials of the gate: their counts on runs whose noise is known."""

import random
import re

import pytest

from benchmarks.gate_truth import KINDS, Duel, duel_lines, resampled_lines
from benchmarks.simulated_runs import timed_run


@pytest.mark.parametrize("spread", [0.002, 0.01])
def test_a_quiet_machine_finds_what_is_there_and_nothing_else(spread: float) -> None:
    draws = random.Random(0)
    rates = [1000 * (1 + draws.gauss(0, spread)) for _ in range(40)]
    pool = [timed_run({"seed": seed}, [rate] * 6) for seed, rate in enumerate(rates)]
    counts = [
        tuple(map(int, re.findall(r"(\d+) (?:fail|pass|not known)", line)))
        for line in resampled_lines(pool, 40, seed=1)
    ]
    by_kind = dict(zip(KINDS, counts, strict=True))
    for kind, (failed, passed, unknown) in by_kind.items():
        assert failed + passed + unknown == 40
        if not kind.slowdown:
            assert failed <= 2
        elif kind.slowdown >= 0.1:
            assert failed == 40
        elif kind.in_turns:
            assert passed == 40  # 3% is within 20%
        else:
            assert unknown == 40  # sweeps that ran one after the other cannot know 3%


def test_the_intervals_that_cover_the_truth_are_counted() -> None:
    duels = {0.0: [Duel(0, 0.01, 9.0, "", True), Duel(3, None, 9.0, "")], 0.1: [Duel(1, 0.01, 9.0, "", False)]}
    *_, last = duel_lines(duels)
    assert last.startswith("| all these duels: the interval covers the true ratio | 2 | 1 do |")
