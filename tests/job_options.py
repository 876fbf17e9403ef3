"""The options of a small job, with every group, for tests that change some of them."""

from typing import Any

from runmanager.training.options.dataset import FakeOptions
from runmanager.training.options.groups import AdamOptions, ConstantOptions, DataLoaderOptions, MlpOptions
from runmanager.training.options.job import TrainingOptions

__all__ = ["job_options"]


def job_options(**changes: Any) -> TrainingOptions:
    """Return the options of a job on a CPU with a small dataset and network, but for the `changes`."""
    fields = {
        "device": "cpu",
        "batch_size": 16,
        "dataset": FakeOptions(size=40, val_size=20, in_shape=[1, 6, 6], num_classes=3),
        "model": MlpOptions(hidden=[5]),
        "optimizer": AdamOptions(),
        "scheduler": ConstantOptions(),
        "loader": DataLoaderOptions(),
    }
    return TrainingOptions(**{**fields, **changes})
