"""The job's settings: every fault as a readable line, all together."""

import subprocess
import sys

import pytest

from runmanager.tracking.options import EarlyStopOptions
from runmanager.training.options.dataset import DigitsOptions, DiscOptions
from runmanager.training.options.groups import (
    AdamOptions,
    CnnOptions,
    MlpTowerOptions,
    ResidentOptions,
    TorchvisionModelOptions,
)
from runmanager.training.options.job import CheckpointOptions, MeasureOptions

from ...job_options import job_options


def options(**changes):
    return job_options(
        **{"device": "auto", "batch_size": 1000, "dataset": DigitsOptions(), "model": CnnOptions(), **changes}
    )


def test_the_defaults_are_those_of_the_contract():
    found = options()
    assert (found.lr, found.batch_size, found.num_workers, found.device) == (0.01, 1000, 0, "auto")
    assert (found.epochs, found.seed, found.checkpoint.every, found.evaluate_first) == (8, 0, 1, False)
    assert found.faults() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lr": 0.0}, "`lr` must be above 0 and finite, got 0.0"),
        ({"lr": -1.0}, "`lr` must be above 0 and finite, got -1.0"),
        ({"lr": float("inf")}, "`lr` must be above 0 and finite, got inf"),
        ({"lr": float("nan")}, "`lr` must be above 0 and finite, got nan"),
        ({"batch_size": 0}, "`batch_size` must be at least 1, got 0."),
        ({"batch_size": 2**31}, "`batch_size` must be at most 2147483647, got 2147483648."),
        ({"eval_batch_size": 0}, "`eval_batch_size` must be at least 1, got 0."),
        ({"num_workers": -1}, "`num_workers` must be at least 0, got -1."),
        ({"epochs": 0}, "`epochs` must be at least 1, got 0."),
        ({"log_every": -1}, "`log_every` must be at least 0, got -1."),
        ({"seed": -1}, "`seed` must be at least 0"),
        ({"seed": 2**63}, "`seed` must be at least 0"),
        ({"checkpoint": CheckpointOptions(every=-1)}, "`checkpoint.every` must be at least 0, got -1."),
        ({"measure": MeasureOptions(warmup_epochs=0)}, "`measure.warmup_epochs` must be at least 1, got 0."),
        ({"early_stop": EarlyStopOptions(patience=0)}, "`early_stop.patience` must be at least 1, got 0."),
        ({"early_stop": EarlyStopOptions(min_delta=-0.1)}, "`early_stop.min_delta` must be at least 0 and finite"),
        (
            {"early_stop": EarlyStopOptions(metric="val_acuracy")},
            "`early_stop.metric` must be one of loss, accuracy, val_loss, val_accuracy, got val_acuracy; did you mean",
        ),
        ({"precision": "fp8"}, "`precision` must be one of fp32, tf32, bf16, fp16, got fp8; did you mean"),
        ({"precision": "fp16", "device": "cpu"}, "`precision` must be fp32 or bf16 on the CPU, got fp16;"),
        ({"precision": "tf32", "device": "cpu"}, "`precision` must be fp32 or bf16 on the CPU, got tf32;"),
        (
            {"precision": "fp16", "device": "cuda", "optimizer": AdamOptions(fused=False)},
            "`optimizer.fused` must be null or true with `precision=fp16`, got false;",
        ),
        ({"on_oom": "half"}, "`on_oom` must be one of fail, halve, got half; did you mean 'halve'?"),
        ({"channels_last": "fast"}, "`channels_last` must be true, false or auto, got 'fast';"),
        ({"micro_batch": 0}, "`micro_batch` must be at least 1, got 0."),
        ({"micro_batch": "fast"}, "`micro_batch` must be null, auto or a number of samples, got 'fast';"),
        ({"loader": ResidentOptions(), "num_workers": 1}, "`num_workers` must be 0 with `loader=resident`, got 1;"),
        ({"dataset": DiscOptions()}, "`model` must take points with `dataset=disc`, got cnn;"),
        ({"dataset": DiscOptions(), "model": TorchvisionModelOptions()}, "got torchvision;"),
        ({"dataset": DigitsOptions(size=0)}, "`dataset.size` must be at least 1, got 0."),
        ({"graphs": "always"}, "`graphs` must be true, false or auto, got 'always';"),
        ({"graphs": True, "on_oom": "halve"}, "`on_oom` must be fail with `graphs=true`, got halve;"),
        ({"compile": True, "on_oom": "halve"}, "`on_oom` must be fail with `compile=true`, got halve;"),
    ],
)
def test_each_fault_is_reported(changes, words):
    (fault,) = options(**changes).faults()
    assert words in fault and fault.endswith((".", "?"))


def test_all_faults_are_reported_together():
    faults = options(
        lr=-1, batch_size=0, epochs=0, dataset=DigitsOptions(size=0), loader=ResidentOptions(), num_workers=2
    )
    assert len(faults.faults()) == 5


def test_valid_combinations_have_no_faults():
    assert options(dataset=DiscOptions(), model=MlpTowerOptions(), loader=ResidentOptions()).faults() == []
    for device, precision in (("cpu", "bf16"), ("auto", "fp16"), ("cuda", "tf32")):
        assert options(device=device, precision=precision, micro_batch="auto", on_oom="halve").faults() == []
    assert options(device="cuda", graphs=True).faults() == []
    custom = {"name": "custom", "_target_": "somewhere.Net"}
    assert options(dataset=DiscOptions(), model=custom).faults() == []
    assert options(seed=2**63 - 1, eval_batch_size=None, checkpoint=CheckpointOptions(every=0)).faults() == []


def test_reading_the_options_loads_no_torch():
    code = "import sys, runmanager.training.options.job; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
