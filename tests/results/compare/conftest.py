"""Sides of comparisons in memory."""

import msgspec
import pytest

from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions, Side
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
        cells = gather_cells(sweep.runs, (), None)
        return Side("here", cells.cells, find_metric(metric), seeds=cells.seeds)

    return make


def only_row(sweep, **options):
    """The row of a comparison that has one."""
    (row,) = compare(sweep, None, CompareOptions(**options)).rows
    return row


def outcome(sweep, **options):
    """The verdict of that row, and its reason."""
    row = only_row(sweep, **options)
    return row["verdict"], row["reason"]
