"""Policies of the engine: GPU slots, time limits, retries, stopping after an error."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runmanager.launching.local.engine import LocalEngine
from runmanager.launching.local.gpus import GpuRequest, GpuSlots
from runmanager.launching.local.jobs import Job, Limits, LimitWatch, Listener, ProcessExit, Retries, outcome_of_exit
from runmanager.launching.local.worker import Returned
from runmanager.records.run.heartbeat import read_beat
from runmanager.records.run.status import Outcome, Reason, Status

from ..processes import time_since


@pytest.mark.parametrize(("shared", "partners"), [(1, 4), (2, 8)])
def test_no_gpu_exceeds_runs_per_gpu(jobs: Any, recorder: Any, tmp_path: Path, shared: int, partners: int) -> None:
    events = tmp_path / "events"
    engine = LocalEngine(workers=10, slots=GpuSlots("0123", runs_per_gpu=shared, are_given=True))
    engine.run([Job(key, jobs.on_a_gpu, (events, partners), gpus=GpuRequest(1)) for key in range(12)], recorder)
    assert {type(each.answer) for each in recorder.endings.values()} == {Returned}
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for line in events.read_text().splitlines():
        word, gpu = line.split()
        running[gpu] += 1 if word == "begin" else -1
        most[gpu] = max(most[gpu], running[gpu])
    assert most == dict.fromkeys("0123", shared)  # never more, and all slots used together


def test_jobs_that_request_no_gpu_do_not_wait_for_one(jobs: Any, recorder: Any, tmp_path: Path) -> None:
    """One GPU, three jobs that request it, and behind them one that does not: it runs with the first."""
    events = tmp_path / "events"
    with_gpu = [Job(key, jobs.on_a_gpu, (events, 2), gpus=GpuRequest(1)) for key in range(3)]
    LocalEngine(workers=2, slots=GpuSlots("7")).run(
        [*with_gpu, Job(3, jobs.on_a_gpu, (events, 2), gpus=GpuRequest())], recorder
    )
    assert [recorder.endings[key].answer for key in range(4)] == [Returned("7")] * 3 + [Returned("")]
    assert [key for what, key in recorder.events if what == "started"][:2] == [0, 3]


def test_a_job_sees_what_the_driver_sees_where_there_are_no_slots(
    jobs: Any, recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    LocalEngine().run([Job(0, jobs.on_a_gpu, (tmp_path / "events", 1), gpus=GpuRequest(1))], recorder)
    assert recorder.endings[0].answer == Returned("5")


def assert_gone(pids: Path, wait_for: Callable[..., None], is_gone: Callable[[int], bool]) -> None:
    for pid in map(int, pids.read_text().split()):
        wait_for(lambda pid=pid: is_gone(pid), f"the end of {pid}")


@pytest.fixture
def limited_from(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Count the time of a job from when a file exists, as a busy machine may start the job late."""

    def begin(file: Path) -> None:
        monkeypatch.setattr("runmanager.launching.local.engine.LimitWatch", partial(LimitWatch, clock=time_since(file)))

    return begin


def test_a_job_that_hangs_is_killed_with_all_that_it_started(
    jobs: Any,
    recorder: Any,
    tmp_path: Path,
    wait_for: Callable[..., None],
    is_gone: Callable[[int], bool],
    limited_from: Callable[[Path], None],
) -> None:
    pids = tmp_path / "pids"
    limited_from(pids)
    hanging = Job(0, jobs.hang, (pids,), limits=Limits(timeout=1))
    LocalEngine(workers=2).run([hanging, Job(1, jobs.my_pid), Job(2, jobs.my_pid)], recorder)
    outcome = outcome_of_exit(recorder.endings[0])
    assert outcome == Outcome(Status.KILLED, Reason.TIMEOUT, "longer than timeout=1 s")
    assert [type(recorder.endings[key].answer) for key in (1, 2)] == [Returned, Returned]
    assert_gone(pids, wait_for, is_gone)


def test_a_job_without_steps_is_killed_though_its_heartbeat_continues(
    jobs: Any,
    recorder: Any,
    tmp_path: Path,
    wait_for: Callable[..., None],
    is_gone: Callable[[int], bool],
    limited_from: Callable[[Path], None],
) -> None:
    beat, pids = tmp_path / "heartbeat", tmp_path / "pids"
    limited_from(pids)
    limits = Limits(stall_timeout=1, heartbeat=beat)
    LocalEngine().run([Job(0, jobs.stall, (beat, pids), limits=limits)], recorder)
    assert outcome_of_exit(recorder.endings[0]).reason is Reason.STALLED
    last = read_beat(beat)
    assert last is not None and last.progress == 7 and last.counter >= 5
    assert_gone(pids, wait_for, is_gone)


class EventLog(Listener):
    """Records the events as texts."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def started(self, job: Job, pid: int) -> None:
        self.events.append(f"started {job.key}")

    def retrying(self, ending: ProcessExit, outcome: Outcome, *, tries: int, of: int) -> None:
        self.events.append(f"retrying {ending.job.key} ({outcome.message}, {tries} of {of})")

    def ended(self, ending: ProcessExit) -> None:
        self.events.append(f"ended {ending.job.key} {getattr(ending.answer, 'value', ending.exit_code)}")

    def halted(self) -> None:
        self.events.append("halted")


def test_a_job_is_tried_again_before_any_that_has_not_started(jobs: Any, tmp_path: Path) -> None:
    log = EventLog()
    work = [Job(0, jobs.die_in_first_tries, (tmp_path / "a", 2)), Job(1, jobs.die_in_first_tries, (tmp_path / "b", 0))]
    LocalEngine().run(work, log, retries=Retries(2))
    assert log.events == [
        "started 0",
        "retrying 0 (SIGKILL, 1 of 3)",
        "started 0",
        "retrying 0 (SIGKILL, 2 of 3)",
        "started 0",
        "ended 0 3",
        "started 1",
        "ended 1 1",
    ]


def test_a_job_is_tried_again_up_to_the_limit(jobs: Any, tmp_path: Path) -> None:
    log = EventLog()
    LocalEngine().run([Job(0, jobs.die_in_first_tries, (tmp_path / "a", 9))], log, retries=Retries(1))
    assert log.events[-1] == "ended 0 -9"
    assert (tmp_path / "a").read_text().splitlines() == ["tried"] * 2


def test_only_jobs_that_end_for_a_given_reason_are_tried_again(jobs: Any) -> None:
    for reasons, times in (((), 1), (("exception",), 2), (("signal",), 1)):
        log = EventLog()
        LocalEngine().run([Job(0, jobs.raise_error)], log, retries=Retries(1, reasons))
        assert log.events.count("started 0") == times, reasons


def test_arguments_are_made_just_before_each_try(jobs: Any, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []

    def prepare(number: int) -> tuple[Any, ...]:
        calls.append((number, len(log.events)))
        return tmp_path / "tries", 1

    log = EventLog()
    LocalEngine().run([Job(0, jobs.die_in_first_tries, prepare=prepare)], log, retries=Retries(1))
    assert calls == [(1, 0), (2, 2)]


def test_after_the_first_failure_no_job_starts_and_running_ones_finish(jobs: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    class Opening(EventLog):
        def halted(self) -> None:
            super().halted()
            gate.touch()

    log = Opening()
    work = [
        Job(0, jobs.meet, (tmp_path / "here", gate)),
        Job(1, jobs.raise_error),
        Job(2, jobs.my_pid),
        Job(3, jobs.my_pid),
    ]
    LocalEngine(workers=2).run(work, log, stop_on_error=True)
    assert log.events == ["started 0", "started 1", "ended 1 0", "halted", "ended 0 met"]


def test_a_failed_try_does_not_stop_the_others_if_its_retry_succeeds(jobs: Any, tmp_path: Path) -> None:
    log = EventLog()
    work = [Job(0, jobs.die_in_first_tries, (tmp_path / "a", 1)), Job(1, jobs.die_in_first_tries, (tmp_path / "b", 0))]
    LocalEngine().run(work, log, retries=Retries(1), stop_on_error=True)
    assert "halted" not in log.events and log.events[-1] == "ended 1 1"


def test_a_job_whose_server_was_killed_is_dead_and_lost(
    jobs: Any, recorder: Any, tmp_path: Path, wait_for: Callable[..., None], is_gone: Callable[[int], bool]
) -> None:
    """Its process is dead when the job counts as ended, so that it can be tried again."""
    alive: list[bool] = []
    ended = recorder.ended

    def check(ending: ProcessExit) -> None:
        alive.append(not is_gone(recorder.pids[ending.job.key]))
        ended(ending)

    recorder.ended = check
    pids = tmp_path / "pids"
    work = [Job(0, jobs.kill_the_forkserver, (pids,)), Job(1, jobs.hang, (pids,)), Job(2, jobs.my_pid)]
    LocalEngine(workers=2).run(work, recorder)
    assert alive == [False] * 3
    for key in (0, 1):
        outcome = outcome_of_exit(recorder.endings[key])
        assert (outcome.status, outcome.reason) == (Status.CRASHED, Reason.VANISHED)
    assert isinstance(recorder.endings[2].answer, Returned)
    assert_gone(pids, wait_for, is_gone)
