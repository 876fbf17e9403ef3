"""Sweeps on a real Ray: each kind of program, stops, and the death of a node and of the driver."""

import os
import signal
from typing import Any

import pytest

from runmanager.app.request.command_reader import read_words
from runmanager.app.request.sweep_request import Kind
from runmanager.launching.ray.options import RayOptions

from ..app.programs.application.conftest import APPLICATION, CONFIG, MODELS, PARTS
from ..app.programs.script.death_script import DEATHS, ENDS, SCALARS, WAYS
from .conftest import MAIN

TINY = (
    *("dataset=fake", "dataset.size=64", "dataset.val_size=32", "batch_size=32", "epochs=3", "device=cpu"),
    *("tensorboard.enabled=false", "model=custom", "model._target_=own.Net"),
)
SCRIPT = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\nprint('loss', p.parse_args().lr)\n"


def test_what_this_launcher_lacks_is_refused() -> None:
    words = ("--launcher", "ray", "--gpus", "0", "--slurm", "time=3", "--workers", "2", "train.py")
    assert read_words(words).refusals(Kind.SCRIPT) == [
        "`--slurm` must be given with `--launcher slurm`, got time=3.",
        "`--gpus` must be left out with `--launcher ray`, got it.",
    ]
    assert RayOptions(timeout=2, stall_timeout=3, cores=0).faults() == [
        "`hydra.launcher.cores` must be at least 1, got 0.",
        "`hydra.launcher.stall_timeout` must be below `hydra.launcher.timeout`=2, got 3.",
    ]


def test_a_script_runs_on_the_nodes_of_a_cluster(bench: Any) -> None:
    (bench.folder / "train.py").write_text(SCRIPT)
    words = ("--scalar", r"loss=loss (\S+)", "train.py", "lr=0.1,0.2,0.3")
    done = bench.end_of(bench.start_sweep("short", *words))
    assert (done.status, done.err) == (0, ""), done.out
    assert sorted(each.summary["loss"] for each in bench.records("short")) == [0.1, 0.2, 0.3]


def test_a_ray_that_the_command_starts_outlives_a_signal_to_its_processes(bench: Any) -> None:
    """As `timeout` sends it: a command whose Ray is gone would wait for its cells for ever."""
    (bench.folder / "train.py").write_text("import signal\nopen('began', 'w').close()\nsignal.pause()\n")
    process = bench.start("-c", MAIN, "sweep", "--name", "own", "--launcher", "ray", "train.py")
    bench.wait_until((bench.folder / "began").exists, "the cell")
    os.killpg(process.pid, signal.SIGTERM)
    done = bench.end_of(process)
    assert done.status == 130, done.err
    assert [(str(each.status), each.reason) for each in bench.records("own")] == [("killed", "interrupted")]


@pytest.mark.release
def test_every_death_of_a_script_is_told_truly(bench: Any) -> None:
    (bench.folder / "train.py").write_text(DEATHS)
    done = bench.end_of(bench.start_sweep("script", *SCALARS, "train.py", f"way={','.join(WAYS)}", "--", "fit"))
    assert done.status == 1, done.err
    records = {each.config["way"]: each for each in bench.records("script")}
    assert {way: (str(each.status), each.reason, each.message) for way, each in records.items()} == ENDS


@pytest.mark.release
def test_a_hydra_application_tells_every_end_and_a_rerun_does_what_is_missing(bench: Any) -> None:
    (bench.folder / "train.py").write_text(APPLICATION)
    (bench.folder / "parts.py").write_text(PARTS)
    (bench.folder / "conf" / "model").mkdir(parents=True)
    (bench.folder / "conf" / "config.yaml").write_text(CONFIG)
    (bench.folder / "conf" / "model" / "small.yaml").write_text(MODELS["small"])
    ray = ("hydra/sweeper=runmanager", "hydra/launcher=runmanager_ray", f"hydra.launcher.address={bench.ray.address}")
    words = ("train.py", "-m", *ray, "hydra.sweeper.name=hydra", "way=fine,raises,is killed")
    done = bench.end_of(bench.start(*words))
    assert done.status == 1, done.err
    ends = {each.settings["way"]: (str(each.status), str(each.reason or "")) for each in bench.records("hydra")}
    assert ends == {"fine": ("finished", ""), "raises": ("failed", "exception"), "is killed": ("killed", "signal")}
    (bench.folder / "calm").touch()
    assert bench.end_of(bench.start(*words)).status == 0
    assert sorted(each.attempt for each in bench.records("hydra")) == [1, 2, 2]


@pytest.mark.release
def test_a_time_limit_kills_a_cell_of_the_built_in_job(bench: Any) -> None:
    bench.close_gate()
    done = bench.end_of(bench.start_sweep("limits", "--timeout", "20", *TINY, "+model.way=one,gate"))
    assert done.status == 1, done.err
    ends = {each.config["model"]["way"]: (str(each.status), each.reason) for each in bench.records("limits")}
    assert ends == {"one": ("finished", None), "gate": ("killed", "timeout")}


@pytest.mark.release
def test_a_cell_of_a_lost_node_has_vanished_and_resumes_on_another(bench: Any) -> None:
    bench.close_gate()
    process = bench.start_sweep("lost", "--retries", "1", *TINY, "+model.way=gate", "seed=1,2")
    wait_for_epochs(bench, "lost", 1, cells=2)  # one on each node
    owners = [each.owner for each in bench.records("lost")]
    bench.ray.tell("lose")
    try:
        bench.wait_until(lambda: not all(owner.is_alive() for owner in owners), "the end of the cell there")
        bench.open_gate()
        done = bench.end_of(process)
    finally:
        bench.ray.tell("add")
    assert done.status == 0, done.out + done.err
    records = bench.records("lost")
    assert sorted((str(each.status), each.attempt) for each in records) == [("finished", 1), ("finished", 2)]
    assert [bench.epochs("lost", each) for each in records] == [[1, 2, 3]] * 2


@pytest.mark.release
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_driver_stops_its_cells(times: int, bench: Any) -> None:
    """After their epochs, or at once; a cell that waits for a place has not started."""
    bench.close_gate()
    words = (*TINY, "+model.way=gate", "seed=1,2,3")
    process = bench.start_sweep("stop", *words)
    wait_for_epochs(bench, "stop", 1, cells=2)
    process.send_signal(signal.SIGINT)
    told = bench.folder / "told"
    bench.wait_until(lambda: told.exists() and told.read_text() == "told\n" * 2, "the signal in both runs")
    if times == 2:
        process.send_signal(signal.SIGINT)
    else:
        bench.open_gate()
    done = bench.end_of(process)
    assert done.status == 130, done.err
    records = bench.records("stop")
    assert [(str(each.status), each.reason) for each in records] == [("killed", "interrupted")] * 2
    assert [len(bench.epochs("stop", each)) for each in records] == [3 - times] * 2
    if times == 1:
        assert bench.end_of(bench.start_sweep("stop", *words)).status == 0
        assert [bench.epochs("stop", each) for each in bench.records("stop")] == [[1, 2, 3]] * 3


@pytest.mark.release
def test_the_cells_of_a_dead_driver_end_and_the_same_command_runs_what_is_missing(bench: Any) -> None:
    bench.close_gate()
    words = (*TINY, "+model.way=gate", "seed=1,2,3")
    process = bench.start_sweep("dead", *words)
    wait_for_epochs(bench, "dead", 1, cells=2)
    owners = [each.owner for each in bench.records("dead")]
    process.kill()
    bench.wait_until(lambda: not any(owner.is_alive() for owner in owners), "the end of the cells")
    bench.open_gate()
    done = bench.end_of(bench.start_sweep("dead", *words))
    assert done.status == 0, done.out + done.err
    assert sorted(each.attempt for each in bench.records("dead")) == [1, 2, 2]


def wait_for_epochs(bench: Any, name: str, number: int, *, cells: int) -> None:
    """Wait until this many cells have stored so many epochs."""

    def are_stored() -> bool:
        if not (bench.folder / "outputs" / name / "runs").exists():
            return False
        return [len(bench.epochs(name, each)) for each in bench.records(name)] == [number] * cells

    bench.wait_until(are_stored, "the first epochs")
