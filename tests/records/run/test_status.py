"""States and reasons of runs, as other programs read them."""

from runmanager.records.run.status import Outcome, Reason, Status, is_complete
from runmanager.text import MAX_LINE


def test_states_and_reasons_are_those_of_the_contract() -> None:
    assert [*Status] == ["pending", "running", "finished", "failed", "killed", "crashed", "skipped"]
    assert set(Reason) == {
        *("early_stopped", "exception", "exit", "out_of_memory", "diverged", "signal", "timeout", "stalled"),
        *("interrupted", "vanished", "device_unavailable", "pruned"),
    }


def test_ended_and_successful_states() -> None:
    assert {status for status in Status if not status.is_ended} == {Status.PENDING, Status.RUNNING}
    assert {status for status in Status if status.is_success} == {Status.FINISHED, Status.SKIPPED}


def test_what_a_search_has_pruned_is_finished_and_not_complete() -> None:
    assert is_complete("finished", None) and is_complete(Status.FINISHED, Reason.EARLY_STOPPED)
    assert not is_complete(Status.FINISHED, Reason.PRUNED) and not is_complete(Status.KILLED, None)


def test_outcome_defaults() -> None:
    assert Outcome(Status.FINISHED) == Outcome(Status.FINISHED, reason=None, message="")


def test_long_message_is_cut_once() -> None:
    outcome = Outcome(Status.FAILED, Reason.EXCEPTION, "ValueError: " + 10_000_000 * "x")
    assert len(outcome.message) == MAX_LINE
    assert outcome.message.startswith("ValueError: xxx")
    assert outcome.message.endswith("xxx… (cut: 10,000,012 characters)")
    assert Outcome(outcome.status, outcome.reason, outcome.message) == outcome
