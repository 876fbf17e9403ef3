"""The speeds of a round of whole runs: one measure for all of them."""

import msgspec

from runmanager.app.programs.whole_run_race import speeds_of_round
from runmanager.records.run.status import Reason, Status

from ...results.conftest import in_memory, timed_epochs


def test_runs_of_a_round_are_compared_by_one_measure() -> None:
    """A run whose epochs are all warm-up has no samples a second: runs a second would be another quantity."""
    measured = in_memory({"lr": 1}, timed_epochs([9.0, 2.0, 2.0]), run_seconds=20.0)
    alike = in_memory({"lr": 2}, timed_epochs([9.0, 1.0, 1.0]), run_seconds=10.0)
    warming = in_memory({"lr": 3}, timed_epochs([9.0, 4.0], num_warmup=2), run_seconds=40.0)
    failed = in_memory({"lr": 4}, [], status=Status.FAILED, reason=Reason.EXIT, message="status 3")
    assert speeds_of_round({0: measured, 1: alike}) == {0: 500.0, 1: 1000.0}
    assert speeds_of_round({0: measured, 1: alike, 2: warming}) == {0: 1 / 20, 1: 1 / 10, 2: 1 / 40}
    assert speeds_of_round({0: measured, 1: failed, 2: None}) == {0: 500.0, 1: "exit: status 3", 2: "it did not begin"}
    unknown = msgspec.structs.replace(warming.record, run_seconds=None)
    by_duration = speeds_of_round({0: measured, 1: type(warming)(warming.paths, unknown, warming.epochs)})
    assert by_duration == {0: 1 / 20, 1: "its duration is not known"}
