"""Tests of rejected commands: one line for each fault, and nothing is run or written."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
import pytest

# Hydra 1.4 casts the values of a range, 1.3 its limits and its step.
CAST_STEP = "must have an effective step, got 0;" if hydra.__version__ < "1.4" else "`lr` must be above 0 and finite"

REFUSED = {
    "unknown key": (["lrr=0.1"], ["`lrr` must be a setting, got an unknown name; did you mean 'lr'?"]),
    "a name in other words": (["learning_rate=0.1"], ["`learning_rate` must be a setting, ", "did you mean 'lr'?"]),
    "a name without its group": (
        ["momentum=0.9"],
        [
            "`momentum` must be a setting, got an unknown name; did you",
            "mean 'optimizer.momentum' (with `optimizer=sgd`)?",
        ],
    ),
    "a name of the launcher": (["workers=2"], ["did you mean 'hydra.launcher.workers' or 'num_workers'?"]),
    "an unknown setting of the launcher": (
        ["hydra.launcher.worker=2"],
        [
            "`hydra.launcher.worker` must be a setting of Hydra, got an unknown name;",
            "did you mean 'hydra.launcher.workers'",
        ],
    ),
    "an unknown setting of Hydra": (["hydra.foo=2"], ["`hydra.foo` must be a setting of Hydra", "see --hydra-help."]),
    "unknown key in a group": (["model=mlp", "model.hiden=[3]"], ["`model.hiden` must be a setting", "'model.hidden'"]),
    "wrong type": (["lr=abc"], ["`lr` must be", "got 'abc'"]),
    "wrong type in a list": (["model=mlp", "model.hidden=[1,x]"], ["`model.hidden` must be", "got '[1,x]'"]),
    "bad value": (["batch_size=0"], ["`batch_size` must be at least 1, got 0."]),
    "contradiction": (["loader=resident", "num_workers=1"], ["`num_workers` must be 0 with `loader=resident`, got 1;"]),
    "unknown choice": (["model=cnnn"], ["`model` must be one of cnn, custom, ", "got cnnn; did you mean 'cnn'?"]),
    "unknown preset": (["experiment=digits"], ["`experiment` must be one of colab_mnist,", "'digits_quick'"]),
    "several presets, whose own grids would be lost": (
        ["-m", "experiment=digits_quick,gpu_crossover"],
        ["`experiment` must be one preset for all cells, got `experiment=digits_quick,gpu_crossover`; run each"],
    ),
    "a text to be quoted": (
        ["name=änd"],
        ["""a text with such characters is written 'name="änd"'."""],
    ),
    "unreadable": (["lr=[1,"], ["`lr=[1,` must be an override like lr=0.1, got what Hydra cannot parse:"]),
    "no override": (["lr"], ["`lr` must be NAME=VALUE, got no value; write lr=…"]),
    "program last": (
        ["lr=1", "train.py"],
        ["`train.py` must come before its settings, as in"],
    ),
    "a grid without -m": (["lr=1,2"], ["`lr=1,2` must be one value in a single run, got a grid; use"]),
    "an axis that tells no runs apart": (["-m", "name=a,b"], ["`name` must have one value in a sweep"]),
    "a measurement that is not there": (["measure.name=paired"], ["`measure.name` must stay 'single'"]),
    "a rate that would rise": (
        ["scheduler=cosine", "scheduler.min_lr=1"],
        ["`scheduler.min_lr` must be below `lr`=0.01"],
    ),
    "a setting of another choice": (
        ["measure.max_seconds=3"],
        ["`measure.max_seconds` must be given with `measure=paired`, got another choice."],
    ),
    "a setting without effect": (["+foo=3"], ["`+foo` must be a setting, got an unknown name"]),
    "an interval": (["-m", "lr=interval(0,1)"], ["`lr=interval(0,1)` must list its values"]),
    "a step of 0": (["-m", "lr=range(0,1,0)"], ["`lr=range(0,1,0)` must have an effective step, got 0;"]),
    "a step that is 0 when cast": (["-m", "lr=int(range(0,1,0.1))"], [CAST_STEP]),
    "a step too small for the digits": (["-m", "lr=range(1e30,2e30,1)"], ["must have an effective step, got 1;"]),
    "a step that leads away": (["-m", "lr=range(0,1,-1)"], ["`lr=range(0,1,-1)` must have at least one value"]),
    "a step that is not a number": (
        ["-m", "lr=range(0,1,nan)"],
        ["must be a range of finite numbers, got from 0 to 1"],
    ),
    "a range without an end": (["-m", "lr=range(0,inf)"], ["must be a range of finite numbers, got from 0 to inf"]),
    "choices that are not there": (["-m", "model=glob(zz*)"], ["`model=glob(zz*)` must have at least one value"]),
    "a number of too many digits": (["-m", f"seed=range({'9' * 5000})"], ["got what Hydra cannot parse: Exceeds the"]),
    "a large grid": (
        ["-m", "--yes", "seed=range(10000)", "batch_size=range(1,10001)"],
        ["must have at most 100,000 cells, got 100,000,000: 10,000 of seed times 10,000 of batch_size; split it"],
    ),
    "a large axis": (["-m", "--yes", "seed=shuffle(range(0,1e9))"], ["got 1,000,000,000: 1,000,000,000 of seed;"]),
    "an uncountable grid": (["-m", f"seed=range({'9' * 400})"], ["got about 10^400: about 10^400 of seed;"]),
    "many random images": (
        ["dataset=fake", "dataset.size=99999999999"],
        ["`dataset` must fit the free memory, ", "got at least 81,136.8 GiB with size=99999999999"],
    ),
    "images beyond counting": (
        ["dataset=fake", f"dataset.in_shape=[{10**310}]"],
        ["`dataset` must fit the free memory, ", "got at least about 10^305 GiB with size=10000"],
    ),
    "a number beyond 64 bits": (
        ["dataset=fake", f"dataset.data_seed={10**30}"],
        ["`dataset.data_seed` must be at most 9223372036854775807, got 1000"],
    ),
    "many digits": (["dataset.size=99999999999"], ["`dataset` must fit the free memory, "]),
    "many points held out": (
        ["dataset=disc", "model=mlp", "dataset.holdout=99999999999"],
        ["`dataset` must fit the free memory, ", "with size=1000, holdout=99999999999; lower `dataset.size`."],
    ),
    "wide images": (["dataset=fake", "dataset.in_shape=[9999999,9999999]"], ["`dataset` must fit the free memory, "]),
    "a wide model": (
        ["dataset=fake", "dataset.size=64", "model=mlp", "model.hidden=[1000000000000]"],
        ["`model` must have weights that fit the free memory, ", "; make it smaller."],
    ),
    "a model beyond counting": (
        ["dataset=fake", "dataset.size=64", "model=mlp", "model.hidden=[10000000000000,100000000000000]"],
        ["`model` must have weights that fit the free memory, got ", "; make it smaller."],
    ),
    "batches ahead": (
        ["num_workers=1", "loader.prefetch_factor=99999999"],
        ["`loader.prefetch_factor` must be at most"],
    ),
    "too many loader's workers": (
        ["num_workers=99999"],
        [
            "`num_workers` of the runs at once must sum to at most ",
            ", the larger of 32 and 4 for each of ",
            ", got 99,999 in 1 run at once; lower `num_workers`.",
        ],
    ),
    "too many loader's workers at once": (
        ["-m", "hydra.launcher.workers=8", "num_workers=0,999", "seed=range(3)", "device=cpu", "--dry-run"],
        ["got 2,997 in 6 runs at once; lower `num_workers` or `hydra.launcher.workers`."],
    ),
    "too many runs at once": (
        ["-m", "hydra.launcher.workers=9999", "dataset=fake", "dataset.size=9999999", "seed=range(100)", "device=cpu"],
        ["100 runs at once must fit the free memory, ", "GiB; lower `hydra.launcher.workers`."],
    ),
    "more workers than a job of Slurm's has cores for": (
        ["-m", "hydra/launcher=slurm", "hydra.launcher.cpus_per_task=2", "num_workers=33"],
        ["must sum to at most 32, the larger of 32 and 4 for each of 2 cores, got 33 in 1 run at once;"],
    ),
    "more workers than a job of Slurm's has memory for": (
        ["-m", "hydra/launcher=slurm", "hydra.launcher.memory_gb=1", "num_workers=32", "seed=range(3)"],
        ["A run must fit the free memory, 1.0 GiB, got at least 1.6 GiB; lower `num_workers` or the size of its"],
    ),
    "no worker": (["hydra.launcher.workers=0"], ["`hydra.launcher.workers` must be at least 1, got 0."]),
    "unknown Hydra key": (["hydra.launcher.wokers=2"], ["`hydra.launcher.wokers` must be a setting of Hydra"]),
    "another launcher's key": (
        ["hydra/launcher=basic", "hydra.launcher.workers=2"],
        ["`hydra.launcher.workers` must be a setting of Hydra"],
    ),
    "no target": (["model=custom"], ["`model._target_` must be given, got nothing;"]),
    "a name that leaves the folder": (["name=../up"], ["`name` must be the name of one folder"]),
    "a setting without use": (
        ["loader.prefetch_factor=4"],
        ["`loader.prefetch_factor` must be given with workers, got"],
    ),
    "a setting without use in a mapping": (
        ["early_stop={patience:5}"],
        ["`early_stop.patience` must be given with `early_stop.metric`, got no metric;"],
    ),
    "a setting without use in any cell": (
        ["-m", "device=cpu", "loader.pin_memory=true,null"],
        ["`loader.pin_memory` must be false or null with `device=cpu`, got true;"],
    ),
    "a limit behind a limit": (
        ["hydra.launcher.timeout=5", "hydra.launcher.stall_timeout=10"],
        ["`hydra.launcher.stall_timeout` must be below `hydra.launcher.timeout`=5, got 10.0."],
    ),
    "Hydra's own folder": (["hydra.sweep.dir=there"], ["`hydra.sweep.dir` must be left to this application"]),
    "rerun what, without a name": (["rerun_changed=true"], ["`name` must be given with `rerun_changed=true`"]),
    "rerun_changed with resume=never": (
        ["name=x", "resume=never", "rerun_changed=true"],
        ["`rerun_changed` must be false with `resume=never`"],
    ),
    "must resume, but what": (["resume=must"], ["`name` must be given with `resume=must`"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_each_fault_is_one_line(command: Callable[..., Any], tmp_path: Path, name: str) -> None:
    words, said = REFUSED[name]
    done = command(*words)
    assert done.status == 2, done.out
    (line,) = done.faults
    assert line.startswith("error: ")
    for part in said:
        assert part in line
    assert "Traceback" not in done.out + done.err
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_is_its_own_cause_is_one_line(command: Callable[..., Any]) -> None:
    """OmegaConf makes such an error under a debugger, or with this variable."""
    (line,) = command("model=mlp", "model.hidden=[1,x]", OC_CAUSE="1").faults
    assert "`model.hidden` must be" in line


def test_the_faults_of_all_cells_are_reported_together(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("-m", "lr=abc,0.1", "batch_size=0,10", "num_workers=-1", "epocs=3", "model=mlp", "model.hidden=[]")
    assert done.status == 2
    assert all(line.startswith("error: `") for line in done.faults)
    keys = [line.split("`")[1] for line in done.faults]
    assert sorted(keys) == ["batch_size", "epocs", "lr", "model.hidden", "num_workers"]
    assert list(tmp_path.iterdir()) == []


def test_an_invalid_choice_hides_no_other_fault(command: Callable[..., Any]) -> None:
    done = command("-m", "model=cnn,cnnn", "optimizer=adan", "lr=abc", "batch_sise=3", "num_workers=-1", "model.x=3")
    keys = [line.split("`")[1] for line in done.faults]
    assert sorted(set(keys) - {"model.x"}) == ["batch_sise", "lr", "model", "num_workers", "optimizer"]
    assert len([key for key in keys if key != "model.x"]) == 5


def test_settings_of_an_invalid_choice_are_not_reported(command: Callable[..., Any]) -> None:
    done = command("model=mlpp", "model.hidden=[3]", "dataset=disc")
    (line,) = done.faults
    assert line.startswith("error: `model` must be one of")


def test_debug_prints_the_traceback(command: Callable[..., Any]) -> None:
    done = command("lr=0", "--debug")
    assert done.status == 2
    assert done.err.startswith("Traceback")
    assert done.faults[-1] == "error: `lr` must be above 0 and finite, got 0.0."


def test_choices_are_listed_without_schemas(command: Callable[..., Any]) -> None:
    groups = ("dataset", "model", "optimizer", "scheduler", "loader", "measure")
    lines = command(*(f"{group}=nothing" for group in groups)).faults + command("experiment=nothing").faults
    for group, line in zip((*groups, "experiment"), lines, strict=True):
        assert line.startswith(f"error: `{group}` must be one of ")
        assert "schema" not in line


@pytest.mark.skipif(shutil.which("srun") is None, reason="Slurm's commands are not installed")
def test_slurm_jobs_are_checked_against_their_allocated_cores(command: Callable[..., Any], tmp_path: Path) -> None:
    arguments = ("hydra/launcher=slurm", "hydra.launcher.cpus_per_task=250", "num_workers=1000")
    assert command("-m", *arguments, "--dry-run").status == 0
    assert list(tmp_path.iterdir()) == []
