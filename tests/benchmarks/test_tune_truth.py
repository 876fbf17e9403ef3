"""The table of races against a grid, and what counts as near enough."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.tune_truth import Trial, fastest_settings, report
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


def test_every_combination_is_measured_and_the_faster_ones_again() -> None:
    every = [{}, *({"threads": str(number)} for number in range(1, 97))]
    times: Counter[int] = Counter()

    def speeds_of(some: Sequence[Mapping[str, str]]) -> Mapping[int, float]:
        assert len(some) <= 7
        numbers = [int(each["threads"]) for each in some]
        times.update(numbers)
        return {key: number / 93 for key, number in enumerate(numbers) if number != 96}  # which fails

    fastest = fastest_settings(speeds_of, every)
    assert fastest == [{"threads": "95"}, {"threads": "94"}, {}, *({"threads": str(each)} for each in (93, 92, 91, 90))]
    assert [times[number] for number in (1, 47, 48, 71, 72, 95)] == [1, 1, 2, 2, 3, 3]
