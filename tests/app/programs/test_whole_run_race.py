"""The speeds of a heat of whole runs: one measure for all of them, and only of runs that it made."""

import msgspec

from runmanager.app.programs.whole_run_race import runs_since, speeds_of_rounds

from ...results.conftest import in_memory, timed_epochs

MEASURED = in_memory({"lr": 1}, timed_epochs([9.0, 2.0, 2.0]), run_seconds=20.0)
ALIKE = in_memory({"lr": 2}, timed_epochs([9.0, 1.0, 1.0]), run_seconds=10.0)
WARMING = in_memory({"lr": 2}, timed_epochs([9.0, 4.0], num_warmup=2), run_seconds=40.0)


def test_runs_of_a_heat_are_compared_by_one_measure() -> None:
    """A run whose epochs are all warm-up has no samples a second: runs a second would be another quantity."""
    assert speeds_of_rounds([{0: MEASURED, 1: ALIKE}, {0: MEASURED}]) == [{0: 500.0, 1: 1000.0}, {0: 500.0}]
    assert speeds_of_rounds([{0: MEASURED, 1: WARMING}]) == [{0: 1 / 20, 1: 1 / 40}]
    assert speeds_of_rounds([{0: MEASURED, 1: ALIKE}, {0: MEASURED, 1: WARMING}]) == [
        {0: 1 / 20, 1: 1 / 10},
        {0: 1 / 20, 1: 1 / 40},
    ]


def test_the_record_of_an_earlier_run_does_not_count() -> None:
    again = type(ALIKE)(ALIKE.paths, msgspec.structs.replace(ALIKE.record, started_at="2026-11-22"), ALIKE.epochs)
    assert runs_since([MEASURED, ALIKE], [MEASURED, again]) == [again]
    assert runs_since([MEASURED], [MEASURED, ALIKE]) == [ALIKE]
    assert runs_since([MEASURED, ALIKE], [MEASURED, ALIKE]) == []
