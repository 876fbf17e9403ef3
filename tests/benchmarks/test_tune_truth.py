"""The table of races against a grid, and what counts as near enough."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from benchmarks.tune_truth import Trial, fastest_settings, report
from runmanager.race.heat import Heat
from runmanager.results.stats.descriptive import Estimate

TRIAL = Trial("input", 58.0, {"num_workers": "2"}, Estimate(1.9, 1.8, 2.0), 12, {"num_workers": "2"}, None)


def test_a_race_may_miss_five_percent() -> None:
    assert TRIAL.is_near
    assert replace(TRIAL, missed=Estimate(1.05, 1.0, 1.1)).is_near
    assert not replace(TRIAL, missed=Estimate(1.06, 1.0, 1.1)).is_near


def test_the_table_has_a_row_a_job() -> None:
    missed = replace(TRIAL, job="memory", best={}, missed=Estimate(1.02, 0.99, 1.05))
    lines = report([TRIAL, missed], command="python -m benchmarks.tune_truth").splitlines()
    assert lines[2] == "| input | 58 | `num_workers=2` | 1.90 (1.80 to 2.00) | 12 | `num_workers=2` | the same |"
    assert lines[3].endswith("| the defaults | 1.02 (0.99 to 1.05) |")


def test_every_combination_is_measured_and_those_that_are_left_again() -> None:
    every = [{}, *({"threads": str(number)} for number in range(1, 97))]
    times: Counter[int] = Counter()

    def race(some: Sequence[Mapping[str, str]]) -> Heat:
        assert len(some) <= 7
        numbers = [int(each.get("threads", 0)) for each in some]
        times.update(numbers)
        measured = {key: number for key, number in enumerate(numbers, start=1) if number != 96}  # which fails
        estimates = {key: Estimate(1 + number / 96, 0.5, 2.5) for key, number in measured.items()}
        failures = {key: "exit: gone" for key, number in enumerate(numbers, start=1) if number == 96}
        return Heat(estimates, failures, frozenset({0, *(key for key, number in measured.items() if number < 70)}))

    fastest = fastest_settings(race, every)
    assert fastest == [{"threads": str(number)} for number in range(95, 88, -1)]
    assert times == {number: 1 + (69 < number < 96) for number in range(97)}
    with pytest.raises(SystemExit, match="97 combinations were not measured"):
        fastest_settings(lambda some: Heat(), every)
