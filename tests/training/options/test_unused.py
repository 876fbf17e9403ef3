"""Settings without effect: which they are, and when a grid is rejected because of them."""

import dataclasses

import pytest

from runmanager.tracking.options import EarlyStopOptions, TensorBoardOptions
from runmanager.training.options.dataset import DigitsOptions, DiscOptions, FakeOptions, MnistOptions
from runmanager.training.options.groups import (
    CnnOptions,
    CosineOptions,
    DataLoaderOptions,
    LogisticOptions,
    MultistepOptions,
    ResidentOptions,
)
from runmanager.training.options.job import InferOptions, unused_setting_faults, unused_settings

from ...job_options import job_options

CELL = job_options(
    device="auto",
    dataset=MnistOptions(),
    model=LogisticOptions(),
    num_workers=1,
    early_stop=EarlyStopOptions(metric="loss"),
    infer=InferOptions(batch_sizes=[1]),
)


def cell(**changes):
    return dataclasses.replace(CELL, **changes)


LATE = MultistepOptions(milestones=[2, 5, 9])
DISC = {"tensorboard.images", "tensorboard.predictions"}
HIDDEN = TensorBoardOptions(enabled=False, images=False, histograms=True, predictions=False)
UNUSED = {"tensorboard.graph", "tensorboard.histograms", "tensorboard.confusion_matrix"}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, set()),
        ({"num_workers": 0}, {"loader.prefetch_factor", "loader.persistent_workers"}),
        ({"num_workers": 0, "loader": ResidentOptions()}, set()),
        ({"device": "cpu", "loader": DataLoaderOptions(pin_memory=True)}, {"loader.pin_memory"}),
        ({"device": "cpu", "loader": DataLoaderOptions(pin_memory=False)}, set()),
        ({"device": "auto", "loader": DataLoaderOptions(pin_memory=True)}, set()),
        ({"device": "cpu", "loader": DataLoaderOptions(prefetch_to_device=True)}, {"loader.prefetch_to_device"}),
        ({"device": "mps", "loader": DataLoaderOptions(prefetch_to_device=True)}, {"loader.prefetch_to_device"}),
        ({"device": "cuda:1", "loader": DataLoaderOptions(prefetch_to_device=True)}, set()),
        ({"device": "auto", "loader": DataLoaderOptions(prefetch_to_device=True)}, set()),
        ({"early_stop": EarlyStopOptions()}, {"early_stop.patience", "early_stop.min_delta"}),
        ({"infer": InferOptions()}, {"infer.seconds"}),
        ({"epochs": 3}, {"early_stop.metric", "early_stop.patience", "early_stop.min_delta"}),
        ({"epochs": 4}, set()),
        ({"scheduler": LATE}, {"scheduler.milestones"}),
        ({"scheduler": LATE, "epochs": 10}, set()),
        (
            {"scheduler": MultistepOptions(milestones=[8])},
            {"scheduler.milestones", "scheduler", "scheduler.gamma"},
        ),
        (
            {"scheduler": CosineOptions(), "epochs": 1, "early_stop": EarlyStopOptions(metric="loss", patience=0)},
            {"scheduler", "scheduler.min_lr"},
        ),
        ({"tensorboard": HIDDEN}, UNUSED),
        ({"tensorboard": HIDDEN, "log_every": 5}, UNUSED | {"log_every"}),
        ({"dataset": DigitsOptions()}, set()),
        ({"dataset": DiscOptions()}, DISC),
        ({"dataset": {"_target_": "mine.Data"}}, set()),
        ({"device": "cpu", "graphs": True}, {"graphs"}),
        ({"device": "mps", "graphs": True}, {"graphs"}),
        ({"device": "cpu", "graphs": "auto"}, set()),
        ({"device": "cpu", "cudnn_benchmark": True}, {"cudnn_benchmark"}),
        ({"device": "cuda:1", "cudnn_benchmark": True}, set()),
        ({"device": "cuda:1", "graphs": True}, set()),
        ({"device": "auto", "graphs": True}, set()),
        ({"channels_last": True}, {"channels_last"}),
        ({"channels_last": "auto"}, set()),
        ({"channels_last": True, "model": CnnOptions()}, set()),
        ({"channels_last": True, "model": CnnOptions(), "dataset": DiscOptions()}, DISC | {"channels_last"}),
        (
            {"channels_last": True, "model": {"_target_": "my.Net"}, "dataset": FakeOptions(in_shape=[9])},
            {"channels_last"},
        ),
        ({"batch_size": 100, "micro_batch": 100}, {"micro_batch"}),
        ({"batch_size": 100, "micro_batch": 99}, set()),
        ({"batch_size": 100, "micro_batch": 100, "eval_batch_size": 1000}, set()),
        ({"batch_size": 100, "micro_batch": "auto", "on_oom": "halve"}, set()),
    ],
)
def test_settings_without_effect_in_a_cell(changes, names):
    unused = unused_settings(cell(**changes))
    assert set(unused) == names
    assert all(line.startswith("`") and " must " in line and line.endswith(".") for line in unused.values())


def test_settings_that_are_not_given_may_be_without_effect():
    assert unused_setting_faults([cell(num_workers=0)], ["lr", "num_workers"]) == []


def test_a_setting_needs_an_effect_in_one_cell_only():
    loaders = [DataLoaderOptions(prefetch_factor=factor) for factor in (2, 4)]
    cells = [cell(num_workers=workers, loader=loader) for workers in (0, 1) for loader in loaders]
    assert unused_setting_faults(cells, ["num_workers", "loader.prefetch_factor"]) == []


def test_each_value_needs_an_effect_in_a_cell():
    schedulers = [MultistepOptions(milestones=[milestone]) for milestone in (3, 50)]
    cells = [cell(scheduler=scheduler, epochs=epochs) for scheduler in schedulers for epochs in (5, 10)]
    faults = unused_setting_faults(cells, ["scheduler.milestones", "epochs"])
    assert [line.split(", got")[0] for line in faults] == [
        "`scheduler.milestones` must be below `epochs`=5",
        "`scheduler.milestones` must be below `epochs`=10",
    ]


def test_a_fault_that_two_settings_share_is_reported_once():
    assert len(unused_setting_faults([cell(epochs=2)], ["early_stop.metric", "early_stop.patience"])) == 1
