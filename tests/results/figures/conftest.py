"""Figures shared by several test modules."""

import pytest

from .drawn_figures import figures_in, finished


@pytest.fixture(scope="session")
def grid(contents, timed):
    """The figures of two devices with three seeds each; cuda is ten times as fast at the large batch only."""
    cells = [
        ({"batch_size": size, "device": device, "seed": seed}, seconds * (1 + 0.01 * seed))
        for (size, device), seconds in {
            (100, "cpu"): 2.0,
            (100, "cuda"): 4.0,
            (1000, "cpu"): 2.0,
            (1000, "cuda"): 0.2,
        }.items()
        for seed in (0, 1, 2)
    ]
    return figures_in(finished(contents, timed, cells, data_seconds=0.1, compute_seconds=0.3))
