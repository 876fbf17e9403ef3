"""Write the examples of docs/commands.md, with made-up, deterministic figures: a sweep, and a multirun of Hydra.

The sweep is in outputs/digits, the multirun, of a program that does not use this package, in multirun/first.
"""

import datetime
import math
import random
from pathlib import Path
from typing import Any

from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import RunPaths, SweepPaths, folder_name
from runmanager.records.run.run_record import Environment, EpochRecord, RunRecord
from runmanager.records.run.status import Reason, Status
from runmanager.records.settings.grid import expand_grid
from runmanager.records.settings.signature import readable_name, short_signature, signature
from runmanager.records.settings.values import flatten
from runmanager.records.storage.ownership import claim_run
from runmanager.records.sweep.sweep_record import SweepCommand, plan_cell, write_cells

FOLDER = Path("outputs/digits")
MULTIRUN = Path("multirun/first")
COMMAND = (
    *("python", "-m", "runmanager", "-m", "batch_size=100,1000", "lr=0.001,0.01", "seed=0,1,2"),
    *("device=cpu", "epochs=7", "dataset.size=5000", "checkpoint.keep_best=val_accuracy", "name=digits"),
)
AXES: dict[str, list[Any]] = {"batch_size": [100, 1000], "lr": [0.001, 0.01], "seed": [0, 1, 2]}
EPOCHS = 7
SAMPLES = 5000
START = datetime.datetime(2026, 11, 2, 9, 0, tzinfo=datetime.UTC)
DIVERGED = {"batch_size": 100, "lr": 0.01, "seed": 2}

SETTINGS: dict[str, Any] = {
    "num_workers": 0,
    "device": "cpu",
    "epochs": EPOCHS,
    "eval_batch_size": None,
    "evaluate_first": False,
    "data_root": "data",
    "log_every": 0,
    "dataset": {"name": "digits", "size": SAMPLES, "val_size": None, "holdout": None, "data_seed": 0},
    "model": {"name": "cnn"},
    "optimizer": {"name": "adam", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
    "scheduler": {"name": "constant"},
    "loader": {
        "name": "dataloader",
        "shuffle": True,
        "pin_memory": None,
        "persistent_workers": True,
        "prefetch_factor": 2,
    },
    "measure": {"name": "single", "warmup_epochs": 1},
    "checkpoint": {"every": 1, "keep_best": "val_accuracy"},
    "early_stop": {"metric": None, "patience": 3, "min_delta": 0.0},
    "tensorboard": {"enabled": True, "images": True, "graph": True, "histograms": False},
    "name": "digits",
    "output_root": "outputs",
    "resume": "auto",
    "rerun_changed": False,
}
ENVIRONMENT = Environment(
    host="workstation",
    cpu_model="Example CPU",
    num_cores=8,
    torch_threads=8,
    device_name="Example CPU",
    python="3.12.4",
    libraries={"torch": "2.15.0", "torchvision": "0.30.0", "numpy": "2.3.0", "hydra-core": "1.3.8"},
    commit="5d1cf0e9a27b4c6f8e3d2a1b0c9f8e7d6c5b4a39",
    commit_clean=True,
    code={},
    command=COMMAND,
    load_at_start=0.2,
    load_at_end=1.1,
    steal_share=0.0,
    outside_cpu_share=0.01,
)


def write_example(folder: Path = FOLDER) -> SweepPaths:
    """Write twelve sequential runs, one of which diverged."""
    sweep = SweepPaths(folder)
    cells = []
    for number, chosen in enumerate(expand_grid(**AXES)):
        config = {"lr": chosen.lr, "batch_size": chosen.batch_size, **SETTINGS, "seed": chosen.seed}
        name = f"{readable_name(chosen)}-{short_signature(signature(config))}"
        paths = sweep.run(folder_name(name))
        _write_run(paths, name, config, START + datetime.timedelta(minutes=2 * number), dict(chosen) == DIVERGED)
        cells.append(plan_cell(signature(config), paths.name, config, name=name))
    write_cells(sweep, cells, SweepCommand(COMMAND, axes=AXES))
    return sweep


def _write_run(paths: RunPaths, name: str, config: dict[str, Any], start: datetime.datetime, diverges: bool) -> None:
    epochs = _epochs(config)[: 2 if diverges else EPOCHS]
    seconds = (epochs[-1].run_seconds or 0.0) + 0.5
    record = RunRecord(
        name=name,
        signature=signature(config),
        status=Status.FAILED if diverges else Status.FINISHED,
        reason=Reason.DIVERGED if diverges else None,
        message="the loss was nan in epoch 3" if diverges else "",
        config=config,
        epochs_planned=EPOCHS,
        started_at=start.isoformat(),
        ended_at=(start + datetime.timedelta(seconds=round(seconds, 3))).isoformat(),
        run_seconds=seconds,
        num_parameters=32_998,
        peak_memory_bytes=420 * 2**20,
        environment=ENVIRONMENT,
    )
    folder = claim_run(paths, record)
    for epoch in epochs:
        folder.append(epoch)
    folder.close()
    replace_file(paths.config, "".join(f"{name}: {value}\n" for name, value in flatten(config).items()))
    replace_file(paths.log, "".join(f"{_log_line(epoch)}\n" for epoch in epochs))
    for weights in (paths.checkpoint, *(() if diverges else (paths.best,))):
        replace_file(weights, b"an example has no weights\n")
    if diverges:
        replace_file(paths.error, "DivergedError: the loss was nan in epoch 3\n")


def _epochs(config: dict[str, Any]) -> list[EpochRecord]:
    """Return the epochs of a run: large batches are faster and learn more slowly; seeds differ slightly."""
    generator = random.Random(signature(config))
    typical_seconds = 0.9 if config["batch_size"] == 1000 else 1.6
    speed = {(100, 0.001): 0.75, (100, 0.01): 0.85, (1000, 0.001): 0.3, (1000, 0.01): 0.7}
    rate = speed[config["batch_size"], config["lr"]]
    level = 0.02 + generator.uniform(-0.004, 0.004)
    epochs, spent = [], 0.0
    for number in range(1, EPOCHS + 1):
        seconds = typical_seconds * (1.5 if number == 1 else 1.0) * generator.uniform(0.98, 1.02)
        error = level + 0.88 * math.exp(-rate * number)
        spent += seconds + 0.25
        epochs.append(_epoch(number, error, seconds, spent))
    return epochs


def _epoch(number: int, error: float, seconds: float, spent: float) -> EpochRecord:
    return EpochRecord(
        epoch=number,
        loss=round(2.5 * error, 4),
        accuracy=round(1 - error, 4),
        val_loss=round(2.7 * error, 4),
        val_accuracy=round(1 - 1.1 * error, 4),
        epoch_seconds=round(seconds, 4),
        wall_seconds=round(seconds + 0.25, 4),
        run_seconds=round(spent, 4),
        samples=SAMPLES,
        warmup=number == 1,
        data_seconds=round(0.3 * seconds, 4),
        transfer_seconds=0.001,
        compute_seconds=round(0.7 * seconds - 0.001, 4),
        eval_seconds=0.22,
        tracking_seconds=0.03,
    )


def _log_line(epoch: EpochRecord) -> str:
    note = "  (warm-up)" if epoch.warmup else ""
    return f"epoch {epoch.epoch}  loss {epoch.loss:.4f}  val_accuracy {epoch.val_accuracy:.4f}{note}"


def write_multirun(folder: Path = MULTIRUN) -> None:
    """Write what Hydra and Lightning's CSVLogger leave of four jobs, the last of which failed early."""
    for number, settings in enumerate(expand_grid(lr=[0.1, 0.01], width=[32, 64])):
        config = folder / str(number) / ".hydra" / "config.yaml"
        config.parent.mkdir(parents=True)
        config.write_text(f"lr: {settings.lr}\nmodel:\n  width: {settings.width}\nepochs: 3\n")
        if number < 3:
            rows = [
                f"{epoch},{20 * epoch + 19},{(number + 2) / (epoch + 2)},{0.9 + 0.01 * number}" for epoch in range(3)
            ]
            (folder / str(number) / "metrics.csv").write_text("\n".join(["epoch,step,val_loss,val_acc", *rows, ""]))


if __name__ == "__main__":
    write_multirun()
    print(f"Wrote the example sweep to {write_example().root}, and a multirun to {MULTIRUN}.")
