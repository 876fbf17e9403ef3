"""Tests of the checks before the first run: devices, datasets, models."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runmanager.app.driver import preflight
from runmanager.launching.plan import Action, Cell, PlannedRun
from runmanager.records.files.paths import SweepPaths

CLOSED = "http://127.0.0.1:9"
OFFLINE = {"http_proxy": CLOSED, "https_proxy": CLOSED, "HTTP_PROXY": CLOSED, "HTTPS_PROXY": CLOSED}
REFUSED = {
    "no module": (["model=custom", "model._target_=nowhere.Net"], "module 'nowhere' is neither in the current folder"),
    "no such class": (["model=custom", "model._target_=own.Nett"], "own has no 'Nett'; did you mean 'Net'?"),
    "no class": (["model=custom", "model._target_=own.torch"], "must name a class or a function, got own.torch"),
    "no dotted name": (["model=custom", "model._target_=Net"], "`model._target_` must be a dotted name, got 'Net'"),
    "no architecture": (["model=torchvision", "model.architecture=resnet17"], "'resnet18'"),
    "no dataset": (["dataset=custom", "dataset._target_=own.Data"], "own has no 'Data'"),
    "no device": (["device=cuda"], "Device 'cuda' was asked for but PyTorch sees no CUDA device; use `device=cpu`"),
    "no device, only planned": (["device=cuda", "--dry-run"], "Device 'cuda' was asked for but PyTorch sees no CUDA"),
    "nothing to pin for": (
        ["device=auto", "loader.pin_memory=true"],
        "`loader.pin_memory` must be left out where `device=auto` finds no accelerator, got true.",
    ),
    "nothing to send ahead to": (
        ["device=auto", "loader.prefetch_to_device=true"],
        "`loader.prefetch_to_device` must be left out where `device=auto` finds no accelerator, got true.",
    ),
    "nothing to capture on": (
        ["device=auto", "graphs=true"],
        "`graphs` must be left out where `device=auto` finds no accelerator, got true.",
    ),
    "pieces of a batch that must be whole": (
        ["model=torchvision", "dataset.in_shape=[3,32,32]", "dataset.size=8", "micro_batch=16"],
        "`micro_batch` must be null or auto for a model with batch normalisation or running statistics, got 16;",
    ),
    "no such precision on what auto finds": (
        ["device=auto", "precision=fp16"],
        "`precision` must be fp32 or bf16 on the CPU, got fp16;",
    ),
    "no such device": (["device=gpu"], "gpu"),
    "more samples than there are": (["dataset=digits", "dataset.size=100", "dataset.holdout=2000"], "`dataset"),
    "too small for the model": (["dataset.in_shape=[1,8,8]", "model=cnn"], "must be given images"),
    "no arguments": (
        ["model=custom", "model._target_=own.Net", "+model.wide=3"],
        "`model.wide` must be an argument of",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_invalid_model_or_dataset_is_rejected_before_anything_runs(
    command: Callable[..., Any], own_module: Path, tiny: tuple[str, ...], name: str
) -> None:
    words, said = REFUSED[name]
    own_data = "dataset=custom" in words
    done = command(*(word for word in tiny if not (own_data and word.startswith("dataset"))), *words)
    assert done.status == 2, done.out
    (line,) = done.faults
    assert line.startswith("error: ")
    assert said in line
    assert not (own_module.parent / "outputs").exists()


def test_compile_is_rejected_without_a_compiler(
    command: Callable[..., Any], tiny: tuple[str, ...], tmp_path: Path
) -> None:
    done = command("-m", *tiny, "device=cpu", "compile=false,true", CXX="nowhere")
    assert done.status == 2
    (line,) = done.faults
    assert "`compile` must be false without a C++ compiler (nowhere), got true; install it, or name" in line
    assert not (tmp_path / "outputs").exists()


def test_faults_of_several_parts_are_reported_together(
    command: Callable[..., Any], own_module: Path, tiny: tuple[str, ...]
) -> None:
    done = command("-m", *tiny, "model=custom", "model._target_=own.One,own.Two,own.Net")
    assert done.status == 2
    assert [line.split("got ")[1].split(":")[0] for line in done.faults] == ["own.One", "own.Two"]
    assert not (own_module.parent / "outputs").exists()


def test_missing_data_without_a_network(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("dataset=fashion_mnist", f"data_root={tmp_path / 'empty'}", "device=cpu", **OFFLINE)
    assert done.status == 2
    (line,) = [each for each in done.faults if each.startswith("error: ")]
    assert f"Dataset 'fashion_mnist' must be in {tmp_path / 'empty' / 'FashionMNIST' / 'raw'}" in line
    assert "could not be downloaded" in line
    assert "Traceback" not in done.out + done.err
    assert not (tmp_path / "outputs").exists()


def test_pin_memory_is_accepted_if_one_cell_uses_it(
    command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    done = command("-m", *tiny, "epochs=1", "device=cpu,cuda", "loader.pin_memory=true", "name=pinned")
    assert done.status == 0, done.err
    assert [each.status for each in sweep("pinned").records] == ["finished", "skipped"]


REFUSED_BY_A_DRY_RUN = {
    **{name: REFUSED[name] for name in ("no architecture", "nothing to pin for", "too small for the model")},
    "no folder for the data": (["dataset=mnist", "data_root=a_file/data"], "Dataset 'mnist' must be downloaded, but "),
    "no folder for the sweep": (["output_root=a_file/outputs"], "`output_root` must be a folder that can be written"),
    "no cluster": (["hydra/launcher=slurm", "hydra.launcher.time=5"], "must run where Slurm's commands are"),
}


@pytest.mark.parametrize("name", REFUSED_BY_A_DRY_RUN)
def test_a_dry_run_refuses_what_a_run_refuses(
    command: Callable[..., Any], tiny: tuple[str, ...], tmp_path: Path, name: str
) -> None:
    words, said = REFUSED_BY_A_DRY_RUN[name]
    if name == "no cluster":
        pytest.importorskip("submitit")
    (tmp_path / "a_file").touch()
    kept = [word for word in tiny if not (words[0] == "dataset=mnist" and word.startswith("dataset"))]
    before = sorted(tmp_path.iterdir())
    planned = command("-m", *kept, *words, "--dry-run", PATH="/nowhere")
    assert sorted(tmp_path.iterdir()) == before
    tried = command("-m", *kept, *words, PATH="/nowhere")
    assert planned.status == tried.status == 2, planned.out
    (plan_fault,), (fault,) = planned.faults, tried.faults
    assert plan_fault.partition(" (")[0] == fault.partition(" (")[0] and said in fault


def test_a_dry_run_downloads_nothing(
    start: Callable[..., Any], finish: Callable[..., Any], tiny: tuple[str, ...], tmp_path: Path
) -> None:
    kept = [word for word in tiny if not word.startswith("dataset")]
    done = finish(start("-m", *kept, "dataset=mnist", "data_root=new", "--dry-run", **OFFLINE))
    assert done.status == 0, done.err
    assert "1 cell: 1 start" in done.out and not list(tmp_path.iterdir())
    assert f"mnist is not in {tmp_path}/new/MNIST/raw: a run downloads it first (about 12 MB)" in done.err


def test_the_host_is_asked_once_for_each_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    def is_missing(device: str | None) -> bool:
        asked.append(device)
        return device == "cuda"

    monkeypatch.setattr(preflight, "is_device_missing", is_missing)
    launcher: Any = SimpleNamespace(require_gpus=list, traits=frozenset())
    cells = [
        Cell(f"{device}{n}", f"{device}{n}", {}, (), device=device) for n in range(50) for device in ("cpu", "cuda")
    ]
    plan = [PlannedRun(cell, Action.START, "new", SweepPaths(tmp_path).run(cell.name)) for cell in cells]
    found = preflight.predict_skipped(launcher, plan, can=(), needs_all=False)
    assert asked == ["cpu", "cuda"]
    assert [run.action for run in found] == [Action.START, Action.SKIP] * 50 and found[1].why == "no cuda here"
