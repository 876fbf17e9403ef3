"""Write a sweep of many finished runs to disk without running anything."""

import datetime
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import Environment, EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.signature import short_signature, signature
from runmanager.records.storage.versioned_file import encode_record
from runmanager.records.sweep.sweep_record import SweepCommand, plan_cell, write_cells

__all__ = ["write_stored_sweep"]

_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_SAMPLES = 60_000
_RATES = (0.1, 0.03, 0.01, 0.003, 0.001)
_SHARED = {
    "dataset": {"name": "mnist", "holdout": 0.2, "size": None, "normalize": True},
    "model": {"name": "cnn", "channels": [6, 12], "hidden": [120, 60]},
    "optimizer": {"name": "adam", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
    "scheduler": {"name": "constant"},
    "loader": {"name": "dataloader", "pin_memory": False, "prefetch_factor": None, "persistent_workers": False},
    "measure": {"name": "single", "warmup_epochs": 1},
    "tensorboard": {"enabled": True, "images": True, "graph": True, "histograms": False},
    "early_stop": {"metric": None, "patience": 3, "min_delta": 0.0},
    "epochs": 10,
    "eval_batch_size": None,
    "evaluate_first": False,
}
_ENVIRONMENT = Environment(
    host="a-host",
    cpu_model="a processor",
    num_cores=2,
    torch_threads=2,
    device_name="a processor",
    python="3.11.0",
    libraries={"torch": "2.15.0", "torchvision": "0.30.0", "numpy": "2.3.0", "hydra-core": "1.3.8"},
    commit="0" * 40,
    commit_clean=True,
    command=("python", "-m", "runmanager", "-m"),
    load_at_start=0.1,
    load_at_end=1.0,
    steal_share=0.0,
    outside_cpu_share=0.01,
)


def write_stored_sweep(
    folder: Path,
    *,
    num_runs: int,
    num_epochs: int,
    seed: int = 0,
    lr: Sequence[float] = _RATES,
    num_metrics: int = 0,
) -> SweepPaths:
    """Write finished runs over `lr`, batch size, workers, device and seed, with made-up times.

    The number of seeds follows from the number of runs. Each epoch of each run logs `num_metrics` metrics.
    """
    sweep = SweepPaths(folder)
    generator = random.Random(seed)
    cells = []
    axes: dict[str, list[Any]] = {
        "lr": list(lr),
        "batch_size": [100, 1000, 10_000, 20_000],
        "num_workers": [0, 1],
        "device": ["cpu", "cuda"],
        "seed": list(range(-(-num_runs // (16 * len(lr))))),
    }
    for number, values in enumerate(itertools.islice(itertools.product(*axes.values()), num_runs)):
        config = {**_SHARED, **dict(zip(axes, values, strict=True))}
        record = _record(config, number)
        run = sweep.run(record.name)
        run.root.mkdir(parents=True)
        run.record.write_bytes(encode_record(record))
        run.epochs.write_bytes(
            b"".join(msgspec.json.encode(each) + b"\n" for each in _epochs(num_epochs, generator, num_metrics))
        )
        cells.append(plan_cell(record.signature, record.name, config))
    write_cells(sweep, cells, SweepCommand(_ENVIRONMENT.command, axes=axes))
    return sweep


def _record(config: dict[str, Any], number: int) -> RunRecord:
    identity = signature(config)
    start = _START + datetime.timedelta(seconds=100 * number)
    return RunRecord(
        name=f"lr={config['lr']},batch_size={config['batch_size']},seed={config['seed']}-{short_signature(identity)}",
        signature=identity,
        status=Status.FINISHED,
        config=config,
        epochs_planned=config["epochs"],
        started_at=start.isoformat(),
        ended_at=(start + datetime.timedelta(seconds=90)).isoformat(),
        run_seconds=90.0,
        num_parameters=32_998,
        peak_memory_bytes=300_000_000,
        environment=_ENVIRONMENT,
    )


def _epochs(num_epochs: int, generator: random.Random, num_metrics: int) -> list[EpochRecord]:
    def metrics(epoch: int) -> dict[str, float | None]:
        return {f"val/metric_{number}": (number + 1) / (epoch + 6) for number in range(num_metrics)}

    return [
        EpochRecord(
            epoch=epoch,
            loss=1 / epoch,
            accuracy=1 - 0.5 / epoch,
            val_loss=1.1 / epoch,
            val_accuracy=1 - 0.6 / epoch,
            epoch_seconds=(seconds := generator.lognormvariate(1.0, 0.1)),
            wall_seconds=1.2 * seconds,
            run_seconds=9.0 * epoch,
            samples=_SAMPLES,
            warmup=epoch == 1,
            data_seconds=0.3 * seconds,
            transfer_seconds=0.01 * seconds,
            compute_seconds=0.69 * seconds,
            eval_seconds=0.19 * seconds,
            tracking_seconds=0.01 * seconds,
            metrics=metrics(epoch) or msgspec.UNSET,
        )
        for epoch in range(1, num_epochs + 1)
    ]
