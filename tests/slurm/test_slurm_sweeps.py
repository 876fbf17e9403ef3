"""Sweeps on a real Slurm: when cells die, the others finish, and the table reports it."""

import signal
from typing import Any

import psutil
import pytest
from deaths import LAUNCHERS, try_together
from preempted import six_cells


@pytest.mark.release
def test_cells_die_in_every_way_and_the_others_finish(bench: Any) -> None:
    folder = bench.folder / "deadly"
    seen = try_together(folder, LAUNCHERS["slurm"], variables=bench.slurm.variables)
    assert all(each.is_as_promised for each in seen), (seen, (folder / "log").read_text())


@pytest.mark.release
def test_six_cells_of_which_one_is_killed_and_one_preempted(bench: Any) -> None:
    """Slurm signals every process of a job, including a loader's workers."""
    six = six_cells(bench.folder, bench.slurm, is_detached=False)
    assert six.is_as_promised, six
    assert six.status == 1
    jobs = bench.sweep("six").jobs()
    arrays = {way: jobs[f"model.way={way}"].partition("_")[0] for way in ("killed", "one", "two", "three", "four")}
    assert len({arrays[way] for way in ("killed", "one", "two")}) == 1
    assert arrays["three"] == arrays["four"] != arrays["one"]  # this Slurm accepts four cells per array at most


@pytest.mark.release
def test_a_run_whose_time_is_nearly_up_ends_after_its_epoch_and_resumes(bench: Any) -> None:
    """Slurm is configured to send USR2 then; `resume=never` applies to the first of the cell's jobs only."""
    bench.close_gate()
    process = bench.start("+model.way=gate", "resume=never", "name=signalled")
    bench.wait_at_gate()
    sweep = bench.sweep("signalled")
    bench.signal(sweep.jobs()["run"], "USR2")
    bench.open_gate()
    done = bench.end_of(process)
    assert done.status == 0, done.out + done.err
    (record,) = sweep.records
    assert (record.status, record.attempt, sweep.epochs(record)) == ("finished", 2, [1, 2, 3])


def test_a_job_that_slurm_requeues_resumes(bench: Any) -> None:
    bench.close_gate()
    process = bench.start("+model.way=gate", "name=again")
    bench.wait_at_gate()
    sweep = bench.sweep("again")
    job = sweep.jobs()["run"]
    bench.slurm("scontrol", "requeue", job)
    bench.wait_until(lambda: bench.slurm.jobs().get(job) == "PENDING", "the job back in the queue")
    bench.open_gate()
    done = bench.end_of(process)
    assert done.status == 0, done.out + done.err
    (record,) = sweep.records
    assert (record.status, record.attempt, sweep.epochs(record)) == ("finished", 2, [1, 2, 3])
    assert sweep.jobs() == {"run": job}


@pytest.mark.parametrize("killer", ["kernel", pytest.param("user", marks=pytest.mark.release)])
def test_a_job_killed_with_all_its_processes_is_reported(killer: str, bench: Any) -> None:
    bench.close_gate()
    process = bench.start("+model.way=gate", "name=whole")
    bench.wait_at_gate()
    sweep = bench.sweep("whole")
    (record,) = sweep.records
    if killer == "kernel":
        server = psutil.Process(record.owner.pid).parent()
        server.parent().kill()  # the job's own process; the others go with it
    else:
        bench.slurm("scancel", "--signal=KILL", sweep.jobs()["run"])
    done = bench.end_of(process)
    assert done.status == 1, done.err
    assert sweep.states() == {"run": ("killed", "signal" if killer == "kernel" else "interrupted")}
    assert record.owner.is_alive() is False


def test_a_killed_job_is_tried_again_where_the_command_asks_for_it(bench: Any) -> None:
    bench.close_gate()
    process = bench.start("+model.way=gate", "name=again", "hydra.launcher.retries=1")
    bench.wait_at_gate()
    sweep = bench.sweep("again")
    (record,) = sweep.records
    bench.open_gate()
    psutil.Process(record.owner.pid).parent().parent().kill()
    done = bench.end_of(process)
    assert done.status == 0, done.err
    (record,) = sweep.records
    assert (record.status, record.attempt, sweep.epochs(record)) == ("finished", 2, [1, 2, 3])


@pytest.mark.release
def test_an_interrupted_driver_lets_the_epoch_end_and_cancels_the_queue(bench: Any) -> None:
    bench.close_gate()
    words = ("-m", "+model.way=gate,one", "hydra.launcher.array_parallelism=1", "--order", "grid", "name=stop")
    process = bench.start(*words)
    bench.wait_at_gate()
    process.send_signal(signal.SIGINT)
    sweep = bench.sweep("stop")
    bench.wait_until(lambda: len(bench.slurm.jobs()) == 1, "the waiting cell out of the queue")
    bench.wait_until_signalled()
    bench.open_gate()
    done = bench.end_of(process)
    assert done.status == 130, done.err
    assert "To resume:" in done.out
    record = sweep.record("model.way=gate")
    assert ((record.status, record.reason), sweep.epochs(record)) == (("killed", "interrupted"), [1, 2])
    assert bench.slurm.jobs() == {}
    assert set(sweep.states()) == {"model.way=gate"}  # the other has not started
    assert bench.run(*words).status == 0
    assert sweep.epochs(sweep.record("model.way=gate")) == [1, 2, 3]


COMMAND = "import sys; from runmanager.cli.main import run_command; sys.exit(run_command(sys.argv[1:]))"


def test_a_detached_sweep_continues_by_itself_and_is_submitted_once(bench: Any) -> None:
    bench.close_gate()
    words = ("-m", "+model.way=gate,one,killed", "hydra.launcher.array_parallelism=1", "--order", "grid", "name=off")
    detached = (*words, "hydra.launcher.wait=false")
    done = bench.run(*detached)
    assert done.status == 0, done.err
    assert "runmanager watch off" in done.out
    assert "runmanager table off" in done.out
    bench.wait_at_gate()
    sweep = bench.sweep("off")
    jobs = sweep.jobs()
    assert len(jobs) == 3
    table = bench.end_of(bench.start_python("-c", COMMAND, "table", "outputs/off")).out
    assert table.count("running") == 1
    assert table.count("pending") == 2
    again = bench.run(*detached)  # nothing is submitted twice
    assert (again.status, sweep.jobs(), set(bench.slurm.jobs())) == (0, jobs, set(jobs.values()))
    plan = bench.run(*words, "--dry-run")
    assert f"Slurm job {jobs['model.way=one']}" in plan.out
    assert "2 queued" in bench.end_of(bench.start_python("-c", COMMAND, "watch", "--once", "outputs/off")).out
    watch = bench.start_python("-c", COMMAND, "watch", "outputs/off")
    # A job whose time is nearly up requeues itself, as no driver would.
    bench.signal(jobs["model.way=gate"], "USR2")
    bench.open_gate()
    watched = bench.end_of(watch)
    assert (watched.status, watched.err) == (1, "")
    assert "3 runs: 2 finished, 1 killed." in watched.out
    assert sweep.paths.report.exists()
    bench.wait_until(lambda: not bench.slurm.jobs(), "an empty queue")
    finished = ("finished", None)
    expected = {"model.way=gate": finished, "model.way=one": finished, "model.way=killed": ("killed", "signal")}
    assert sweep.states() == expected
    assert sweep.record("model.way=gate").attempt == 2
    assert sorted(row["status"] for row in sweep.rows()) == ["finished", "finished", "killed"]


@pytest.mark.release
def test_a_later_driver_waits_for_queued_jobs(bench: Any) -> None:
    bench.close_gate()
    words = ("-m", "+model.way=gate,one", "hydra.launcher.array_parallelism=1", "--order", "grid", "name=later")
    assert bench.run(*words, "hydra.launcher.wait=false").status == 0
    bench.wait_at_gate()
    sweep = bench.sweep("later")
    jobs = sweep.jobs()
    process = bench.start(*words)
    bench.open_gate()
    done = bench.end_of(process)
    assert done.status == 0, done.out + done.err
    assert sweep.jobs() == jobs
    assert set(sweep.states().values()) == {("finished", None)}


OTHER = """
import sys
from pathlib import Path
import hydra
from runmanager.launching.slurm import register_slurm

register_slurm()

@hydra.main(config_path=None, config_name=None, version_base="1.3")
def main(cfg):
    Path(hydra.core.hydra_config.HydraConfig.get().runtime.output_dir, "done").write_text(str(cfg.x))
    if cfg.x == 2:
        sys.exit(3)

if __name__ == "__main__":
    main()
"""


@pytest.mark.release
def test_another_hydra_application_runs_on_slurm(bench: Any) -> None:
    (bench.folder / "app.py").write_text(OTHER)
    launcher = ("hydra/launcher=slurm", "hydra.launcher.poll_seconds=0.3", "hydra.sweep.dir=here")
    done = bench.end_of(bench.start_python("app.py", "-m", "+x=1,2,3", *launcher))
    assert done.status != 0
    assert "sys.exit(3)" in done.err
    assert [(bench.folder / "here" / str(index) / "done").read_text() for index in range(3)] == ["1", "2", "3"]


def test_a_submission_that_slurm_rejects_is_one_line(bench: Any) -> None:
    done = bench.run("name=refused", "hydra.launcher.partition=nowhere")
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert line.startswith("error: Slurm must accept the jobs, got: sbatch: error:")
    assert not list((bench.sweep("refused").paths.root / "slurm").iterdir())
    done = bench.run("name=refused", "hydra.launcher.cpus_per_task=0", "+hydra.launcher.additional_parameters.mem=1G")
    assert done.status == 2
    assert done.err.splitlines() == [
        "error: `hydra.launcher.cpus_per_task` must be above 0, got 0.",
        "error: `hydra.launcher.additional_parameters` must hold options without a setting, got mem; use "
        "hydra.launcher.memory_gb.",
    ]
