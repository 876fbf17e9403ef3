"""The local engine: one process per job, a true report of every end, and no process left over."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runmanager.launching.local.engine import LocalEngine, call_in_process
from runmanager.launching.local.jobs import Job, ProcessExit
from runmanager.launching.local.worker import Raised, Returned
from runmanager.records.host.process import usable_cores

RunJobs = Callable[..., Any]


def test_each_job_has_its_own_process(jobs: Any, run_jobs: RunJobs) -> None:
    seen = run_jobs(*[(jobs.my_pid,)] * 4)
    pids = [ending.answer.value for ending in seen.endings.values()]
    assert pids == list(seen.pids.values())
    assert len({os.getpid(), *pids}) == 5
    assert all(ending.exit_code == 0 and not ending.was_stopped for ending in seen.endings.values())


def test_one_worker_runs_one_job_after_the_other_in_order(jobs: Any, run_jobs: RunJobs) -> None:
    seen = run_jobs(*[(jobs.my_pid,)] * 3)
    assert seen.events == [(event, key) for key in range(3) for event in ("started", "ended")]
    assert seen.num_ticks >= 3


def test_jobs_are_taken_only_when_there_is_room(jobs: Any, recorder: Any) -> None:
    taken = []

    def take_jobs() -> Iterator[Job]:
        for key in range(4):
            taken.append((key, len(recorder.endings)))
            yield Job(key, jobs.my_pid)

    LocalEngine(workers=2).run(take_jobs(), recorder)
    assert [key for key, _ in taken] == [0, 1, 2, 3]
    assert all(num_ended >= key - 1 for key, num_ended in taken)
    assert {number for number, _ in recorder.events[:2]} == {"started"}


def test_two_workers_run_two_jobs_together(jobs: Any, run_jobs: RunJobs, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    seen = run_jobs((jobs.meet, one, other), (jobs.meet, other, one), workers=2)
    assert {ending.answer for ending in seen.endings.values()} == {Returned("met")}


def test_every_end_is_reported_and_the_other_jobs_run(
    jobs: Any, run_jobs: RunJobs, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = {
        "returns": (jobs.my_pid,),
        "large": (jobs.large,),
        "raises": (jobs.raise_error,),
        "interrupts": (jobs.raise_interrupt,),
        "exits": (jobs.exit_with, 3),
        "exits well": (jobs.exit_with, 0),
        "killed": (jobs.die_by, signal.SIGKILL),
        "segfault": (jobs.die_by, signal.SIGSEGV),
        "terminated": (jobs.die_by, signal.SIGTERM),
        "no answer": (jobs.exit_without_answer,),
        "unprintable": (jobs.raise_unprintable,),
        "unpicklable": (jobs.unpicklable,),
        "unreadable": (jobs.unreadable,),
        "half": (jobs.half_a_result,),
        "last": (jobs.my_pid,),
    }
    seen = run_jobs(*calls.values())
    ends: dict[str, ProcessExit] = dict(zip(calls, seen.endings.values(), strict=True))
    for name in ("returns", "last"):
        assert isinstance(ends[name].answer, Returned)
    assert ends["large"].answer == Returned(b"x" * 5_000_000)

    messages = {name: ending.answer.message for name, ending in ends.items() if isinstance(ending.answer, Raised)}
    assert messages.pop("raises") == "ValueError: a bad value"
    assert messages.pop("interrupts").startswith("KeyboardInterrupt")
    assert (messages.pop("exits"), messages.pop("exits well")) == ("sys.exit(3)", "sys.exit(0)")
    assert messages.pop("unpicklable").startswith("the result cannot be sent: ")
    assert messages.pop("unreadable").startswith("the result cannot be read: ValueError: ")
    assert messages.pop("unprintable") == "UnprintableError: a message that cannot be shown"
    assert not messages
    raised = ends["raises"].answer
    assert isinstance(raised, Raised) and 'raise ValueError("a bad value")' in raised.traceback

    without_answer = {name: ending.exit_code for name, ending in ends.items() if ending.answer is None}
    assert without_answer == {
        "killed": -signal.SIGKILL,
        "segfault": -signal.SIGSEGV,
        "terminated": -signal.SIGTERM,
        "no answer": 0,
        "half": -signal.SIGKILL,
    }
    assert "Traceback" not in capfd.readouterr().err


def test_a_job_gets_the_environment_and_folder_at_its_start(
    jobs: Any, run_jobs: RunJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_jobs((jobs.my_pid,))  # starts the server
    monkeypatch.setenv("OF_THIS_TEST", "set late")
    monkeypatch.chdir(tmp_path)
    seen = run_jobs((jobs.surroundings, "OF_THIS_TEST"))
    assert seen.endings[0].answer == Returned((str(tmp_path), "set late", "1"))
    monkeypatch.delenv("OF_THIS_TEST")
    assert run_jobs((jobs.surroundings, "OF_THIS_TEST")).endings[0].answer.value[1] is None
    assert "RUNMANAGER_OWN_PROCESS" not in os.environ


def test_a_terminals_ctrl_c_does_not_reach_a_job(jobs: Any, run_jobs: RunJobs) -> None:
    assert run_jobs((jobs.interrupt_myself,)).endings[0].answer == Returned(("still here", True))


def test_processes_that_a_job_leaves_are_killed(
    jobs: Any, run_jobs: RunJobs, tmp_path: Path, wait_for: Callable[..., None], is_gone: Callable[[int], bool]
) -> None:
    file = tmp_path / "pid"
    seen = run_jobs((jobs.leave_a_grandchild,), (jobs.leave_a_grandchild_and_die, file))
    for pid in (seen.endings[0].answer.value, int(file.read_text())):
        wait_for(lambda pid=pid: is_gone(pid), "the end of the grandchild")


def test_a_process_that_has_answered_and_does_not_exit_is_killed(jobs: Any, recorder: Any) -> None:
    LocalEngine(exit_timeout=0.1).run([Job(0, jobs.answer_and_hang), Job(1, jobs.my_pid)], recorder)
    assert recorder.endings[0].answer == Returned("done")
    assert recorder.endings[0].exit_code == -signal.SIGKILL
    assert recorder.outcome(recorder.endings[0]).status.is_success
    assert isinstance(recorder.endings[1].answer, Returned)


def test_an_error_of_the_driver_leaves_no_job_running(
    jobs: Any, recorder: Any, tmp_path: Path, wait_for: Callable[..., None], is_gone: Callable[[int], bool]
) -> None:
    pids = tmp_path / "pids"

    def tick() -> None:
        if pids.exists():
            raise RuntimeError("the listener failed")

    recorder.tick = tick
    with pytest.raises(RuntimeError, match="the listener failed"):
        LocalEngine().run([Job(0, jobs.ignore_sigterm, (pids,)), Job(1, jobs.my_pid)], recorder)
    for pid in pids.read_text().split():
        wait_for(lambda pid=int(pid): is_gone(pid), "the end of the job")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_death_of_the_server_ends_its_jobs_alone(jobs: Any, run_jobs: RunJobs) -> None:
    seen = run_jobs((jobs.kill_the_forkserver,), (jobs.my_pid,), (jobs.my_pid,))
    assert seen.endings[0].answer is None and seen.endings[0].exit_code != 0
    assert [type(seen.endings[key].answer) for key in (1, 2)] == [Returned, Returned]


def test_one_call_in_a_new_process(jobs: Any) -> None:
    ending = call_in_process(LocalEngine(), jobs.my_pid)
    assert isinstance(ending.answer, Returned) and ending.answer.value != os.getpid()
    answer = call_in_process(LocalEngine(), jobs.exit_with, 3).answer
    assert isinstance(answer, Raised) and answer.message == "sys.exit(3)"


DRIVER = """
import sys
from pathlib import Path
import launching_jobs as jobs
from runmanager.launching.local.engine import Job, Listener, LocalEngine

class Printing(Listener):
    def stopping(self, *, at_once):
        Path("at_once" if at_once else "stopping").touch()
    def ended(self, ending):
        print(ending.job.key, ending.exit_code, ending.was_stopped, getattr(ending.answer, "value", None), flush=True)

if __name__ == "__main__":
    stay = getattr(jobs, sys.argv[1])
    work = [Job(0, stay, (Path("a"),)), Job(1, stay, (Path("b"),)), Job(2, jobs.touch, (Path("third"),))]
    was_interrupted = LocalEngine(workers=2).run(work, Printing())
    print("interrupted" if was_interrupted else "done", flush=True)
"""


def written_pids(folder: Path, wait_for: Callable[..., None]) -> list[int]:
    wait_for(lambda: (folder / "a").exists() and (folder / "b").exists(), "both jobs")
    return [int(pid) for name in "ab" for pid in (folder / name).read_text().split()]


@pytest.mark.parametrize("send", [os.kill, os.killpg])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_after_the_first_signal_running_jobs_finish_and_no_job_starts(
    start_driver: Any,
    tmp_path: Path,
    wait_for: Callable[..., None],
    is_gone: Callable[[int], bool],
    number: int,
    send: Callable[[int, int], None],
) -> None:
    driver = start_driver(DRIVER, "stop_at_sigterm")
    pids = written_pids(tmp_path, wait_for)
    send(driver.pid, number)  # to the group too, as `timeout` does: the parent of the jobs is in it
    out, err = driver.communicate(timeout=60)
    *ends, last = out.splitlines()
    assert (sorted(ends), last, err) == (["0 0 False stopped", "1 0 False stopped"], "interrupted", "")
    assert not (tmp_path / "third").exists()
    assert (tmp_path / "stopping").exists() and not (tmp_path / "at_once").exists()
    for pid in pids:
        wait_for(lambda pid=pid: is_gone(pid), f"the end of {pid}")


def test_the_second_signal_kills_running_jobs(
    start_driver: Any, tmp_path: Path, wait_for: Callable[..., None], is_gone: Callable[[int], bool]
) -> None:
    driver = start_driver(DRIVER, "ignore_sigterm")
    pids = written_pids(tmp_path, wait_for)
    driver.send_signal(signal.SIGINT)
    for name in "ab":  # both got SIGTERM and ignore it
        wait_for(lambda name=name: (tmp_path / f"{name}.signalled").exists(), "the forwarded signal")
    assert driver.poll() is None
    driver.send_signal(signal.SIGINT)
    out, err = driver.communicate(timeout=60)
    *ends, last = out.splitlines()
    assert (sorted(ends), last, err) == (["0 -9 True None", "1 -9 True None"], "interrupted", "")
    assert (tmp_path / "at_once").exists() and not (tmp_path / "third").exists()
    for pid in pids:
        wait_for(lambda pid=pid: is_gone(pid), f"the end of {pid}")


def test_ctrl_c_during_a_single_call_raises_keyboard_interrupt(
    start_driver: Any, tmp_path: Path, wait_for: Callable[..., None]
) -> None:
    script = """
from pathlib import Path
import launching_jobs as jobs
from runmanager.launching.local.engine import LocalEngine, call_in_process

if __name__ == "__main__":
    try:
        call_in_process(LocalEngine(), jobs.stop_at_sigterm, Path("a"))
    except KeyboardInterrupt:
        print("interrupted")
"""
    driver = start_driver(script)
    wait_for((tmp_path / "a").exists, "the job")
    driver.send_signal(signal.SIGINT)
    assert driver.communicate(timeout=60) == ("interrupted\n", "")


WITH_TORCH = """
import sys
import launching_jobs as jobs
from runmanager.launching.local.engine import Job, Listener, LocalEngine

class Printing(Listener):
    def ended(self, ending):
        print(ending.job.key, ending.answer, flush=True)

if __name__ == "__main__":
    workers, preload = int(sys.argv[1]), sys.argv[2:]
    LocalEngine(workers=workers, preload=preload).run([Job(0, jobs.num_threads), Job(1, jobs.loader_sum)], Printing())
"""


@pytest.mark.parametrize(
    ("workers", "given", "preload"),
    [(1, "", "torch"), (2, "", "torch"), (1000, "", "torch"), (2, "3", "torch"), (2, "", "")],
)
def test_threads_are_divided_among_workers_unless_given_and_loaders_work(
    start_driver: Any, monkeypatch: pytest.MonkeyPatch, workers: int, given: str, preload: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    variables = {"OMP_NUM_THREADS": given} if given else {}
    driver = start_driver(WITH_TORCH, str(workers), *filter(None, [preload]), **variables)
    out, err = driver.communicate(timeout=120)
    num_threads = int(given or max(1, usable_cores() // workers))
    assert sorted(out.splitlines()) == [f"0 Returned(value={num_threads})", "1 Returned(value=4950)"], err


def test_threads_that_are_given_to_the_engine_count_more_than_the_environment(start_driver: Any) -> None:
    driver = start_driver(WITH_TORCH.replace("workers=workers", "threads=5"), "1", "torch", OMP_NUM_THREADS="3")
    out, err = driver.communicate(timeout=120)
    assert "0 Returned(value=5)" in out.splitlines(), err
