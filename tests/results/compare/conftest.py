"""Sides of comparisons in memory."""

import msgspec
import pytest

from runmanager.results.compare.comparison_side import Side
from runmanager.results.load.cells import gather_cells
from runmanager.results.metrics.metric_lookup import find_metric


@pytest.fixture
def side(contents, timed):
    """Factory of sides, from the accuracies of each seed, epoch by epoch."""

    def make(*seeds, metric="val_accuracy"):
        sweep = contents(
            *(
                (
                    {"seed": seed},
                    [
                        msgspec.structs.replace(epoch, val_accuracy=value, val_loss=value)
                        for epoch, value in zip(timed([1.0] * len(values)), values, strict=True)
                    ],
                    {},
                )
                for seed, values in enumerate(seeds)
            )
        )
        return Side("here", gather_cells(sweep.runs, (), None).cells, find_metric(metric))

    return make
