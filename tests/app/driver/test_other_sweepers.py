"""Tests of the application under other sweepers: exit status, returned metric, and rejected commands."""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from runmanager.launching.hydra_internals import store_config
from runmanager.launching.hydra_launcher import register_plugin
from runmanager.records.files.paths import SweepPaths
from runmanager.records.sweep.sweep_record import read_sweep_record

from ..conftest import Done, Sweep

OWN = ("model=custom", "model._target_=own.Net")
BASIC = "hydra/sweeper=basic"
HYDRA_MESSAGE = "Error executing job with overrides"  # printed by Hydra for each failed job


class OneByOne(Sweeper):
    """A sweeper that launches one job after the other, as an optimiser does, and tolerates failures."""

    _launcher: Launcher

    def __init__(self, rates: Sequence[float], told: str) -> None:
        self._rates = rates
        self._told = told

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        told: list[Any] = []
        for number, rate in enumerate(self._rates):
            (job,) = self._launcher.launch([[*arguments, f"lr={rate}"]], initial_job_idx=number)
            try:
                told.append(job.return_value)
            except Exception as error:
                told.append(str(error))
        Path(self._told).write_text(json.dumps(told))


@dataclass
class OneByOneOptions:
    _target_: str
    rates: tuple[float, ...] = (0.1, 0.2)
    told: str = "told.json"


@pytest.fixture
def one_by_one(tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Register `hydra/sweeper=one_by_one`; return the results that the sweeper got."""
    target = register_plugin(OneByOne)
    store_config("one_by_one", OneByOneOptions(target), group="hydra/sweeper")
    yield lambda: json.loads((tmp_path / "told.json").read_text())
    Plugins.instance().plugin_type_to_subclass_list[Sweeper].remove(OneByOne)


def only_sweep(folder: Path) -> Sweep:
    (root,) = (folder / "outputs").iterdir()
    return Sweep(SweepPaths(root))


@pytest.mark.parametrize("launcher", ["local", "basic"])
def test_a_run_that_ends_badly_gives_status_1(
    launcher: str,
    start: Callable[..., Any],
    finish: Callable[..., Done],
    own_module: Path,
    tiny: tuple[str, ...],
) -> None:
    """Neither the run's exception nor its `sys.exit(3)` sets the command's status, and the report is written."""
    words = ("-m", *tiny, *OWN, "lr=0.1", "+model.way=raises,exits,fine", BASIC, f"hydra/launcher={launcher}")
    done = finish(start(*words))
    sweep = only_sweep(own_module.parent)
    assert {each.config["model"]["way"]: (each.status, each.reason) for each in sweep.records} == {
        "raises": ("failed", "exception"),
        "exits": ("failed", "exit"),
        "fine": ("finished", None),
    }
    assert done.status == 1
    (fault,) = (line for line in done.faults if not line.startswith(HYDRA_MESSAGE))
    assert fault.startswith(f"error: `{BASIC}` ended with: ")
    assert "run 0 failed (exception): ValueError: this model wants no data" in fault
    assert sorted(line.split("  ")[0] for line in done.out.splitlines() if "/3  " in line) == [
        "✓ 3/3",
        "✗ 1/3",
        "✗ 2/3",
    ]
    assert "3 runs: 1 finished, 2 failed." in done.out
    assert sorted(row["status"] for row in sweep.rows()) == ["failed", "failed", "finished"]
    assert sweep.paths.report.exists()


def test_the_final_metric_of_a_run_is_returned(
    one_by_one: Callable[[], Any], command: Callable[..., Done], tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    done = command("-m", *tiny, "hydra/sweeper=one_by_one")
    assert (done.status, done.err) == (0, "")
    sweep = only_sweep(tmp_path)  # one folder, although each run was launched separately
    reached = {row["lr"]: float(row["val_accuracy"]) for row in sweep.rows()}
    assert one_by_one() == [reached["0.1"], reached["0.2"]]
    record = read_sweep_record(sweep.paths)
    assert record is not None and record.axes == {"lr": [0.1, 0.2]}


@pytest.mark.parametrize("launcher", ["local", "basic"])
def test_a_tolerant_sweeper_gets_the_failures_and_the_status_is_1(
    launcher: str,
    one_by_one: Callable[[], Any],
    command: Callable[..., Done],
    tmp_path: Path,
    tiny: tuple[str, ...],
) -> None:
    words = ("model=mlp", "optimizer=sgd", "dataset.val_size=1", "hydra.sweeper.rates=[1e30,0.1]")
    done = command("-m", *tiny, *words, "hydra/sweeper=one_by_one", f"hydra/launcher={launcher}")
    first, second = one_by_one()
    assert "run 0 failed (diverged): " in first
    assert second == float(only_sweep(tmp_path).record(lr=0.1) and only_sweep(tmp_path).rows()[0]["val_accuracy"])
    assert done.status == 1
    assert [line for line in done.faults if not line.startswith(HYDRA_MESSAGE)] == []


def test_a_skipped_run_returns_none_and_does_not_fail(
    one_by_one: Callable[[], Any], command: Callable[..., Done], tiny: tuple[str, ...]
) -> None:
    done = command("-m", *tiny, "device=cuda", "hydra/sweeper=one_by_one", "hydra.sweeper.rates=[0.1]", "--quiet")
    assert (done.status, done.out, done.err) == (0, "", "")
    assert one_by_one() == [None]


def test_a_killed_run_gives_status_1(command: Callable[..., Done], own_module: Path, tiny: tuple[str, ...]) -> None:
    done = command("-m", *tiny, *OWN, "lr=0.1", "+model.way=segfaults", BASIC)
    assert done.status == 1
    assert [each.status for each in only_sweep(own_module.parent).records] == ["crashed"]
    assert "SIGSEGV" in done.out


@pytest.mark.parametrize(
    ("words", "faults"),
    [
        (
            ("-m", "name=first"),
            [
                f"error: `name` must be left out under `{BASIC}`, got first; without it the runs are in a dated folder "
                "under `output_root`. Only `hydra/sweeper=grid` resumes sweeps by name."
            ],
        ),
        (
            ("-m", "batch_size=0,32", "epochs=0"),
            ["error: `batch_size` must be at least 1, got 0.", "error: `epochs` must be at least 1, got 0."],
        ),
        (
            ("-m", "--dry-run"),
            [f"error: `--dry-run` must be left out under `{BASIC}`, got it; that sweeper has no plan to show."],
        ),
        (("num_workers=1000",), ["error: `num_workers` of the runs at once must sum to at most"]),
        (
            ("-m", "seed=range(0,10000)", "batch_size=range(1,10001)"),
            ["error: A grid must have at most 100,000 cells, got 100,000,000: "],
        ),
        (("lr=0.1,0.2",), [f"error: A single run must be one cell, got 2 from `{BASIC}`; add -m."]),
        (("device=cuda",), ["error: Device 'cuda' was asked for but PyTorch sees no CUDA device; use `device=cpu`"]),
    ],
    ids=["name", "settings", "dry run", "workers", "cells", "grid", "device"],
)
def test_invalid_commands_are_rejected_before_anything_runs(
    words: tuple[str, ...],
    faults: list[str],
    command: Callable[..., Done],
    tmp_path: Path,
    tiny: tuple[str, ...],
) -> None:
    done = command(*tiny, *words, BASIC)
    assert (done.status, done.out) == (2, "")
    assert [line[: len(fault)] for line, fault in zip(done.faults, faults, strict=True)] == faults
    assert not list(tmp_path.rglob("run.json"))


def test_the_folder_of_another_cell_is_not_used(
    command: Callable[..., Done], tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    """The folders are numbered: the first runs of the two commands differ."""
    there = (*tiny, BASIC, "hydra.sweep.dir=outputs/there")
    assert command("-m", *there, "lr=0.1").status == 0
    assert command("-m", *there, "lr=0.1").status == 0  # the same cell is kept
    done = command("-m", *there, "lr=0.2")
    assert done.status == 2
    assert "must be new or hold a run of the same settings, got another run" in done.err
    assert [row["lr"] for row in only_sweep(tmp_path).rows()] == ["0.1"]


def test_ctrl_c_gives_status_130(
    start: Callable[..., Any],
    finish: Callable[..., Done],
    wait: Callable[..., Any],
    own_module: Path,
    tiny: tuple[str, ...],
) -> None:
    # The local launcher forwards the signal; basic runs cells in the driver's process.
    gate, waiting = own_module.with_name("gate"), own_module.with_name("waiting")
    gate.touch()
    process = start("-m", *tiny, *OWN, "lr=0.1,0.2", "epochs=3", BASIC, "hydra/launcher=basic")
    wait(waiting.exists, "the run in its second epoch")
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert (done.status, done.err) == (130, "")
    assert done.out.splitlines()[-1] == "Interrupted."
    rows = only_sweep(own_module.parent).rows()
    assert [(row["status"], row["reason"]) for row in rows] == [("killed", "interrupted"), ("pending", "")]
