"""How finely accuracies were measured, and which seeds collapsed."""

import msgspec
import pytest

from runmanager.results.compare.metrics import find_metric
from runmanager.results.compare.resolution import collapsed, step_of
from runmanager.results.compare.side import Side
from runmanager.results.load.cells import gather_cells


@pytest.fixture
def side(contents, timed):
    """A side whose seeds had these accuracies, an epoch each."""

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


def step(side):
    return step_of(side.metric, [side])


@pytest.mark.parametrize("samples", [97, 500, 10_000, 59_999])
def test_the_step_is_one_sample_of_those_that_were_evaluated(side, samples):
    assert step(side([7 / samples, 13 / samples], [12 / samples])) == 1 / samples


def test_the_step_of_single_precision_is_known_of_small_sets(side):
    import struct

    value = struct.unpack("f", struct.pack("f", 449 / 500))[0]
    assert step(side([value])) == 1 / 500


def test_of_what_is_no_fraction_or_too_plain_nothing_is_known(side):
    assert step(side([0.414213562373], [0.5])) == 0
    assert step(side([0.5], [0.0], [1.0])) == 0
    assert step(side([float("nan")])) == 0
    assert step(side([0.125], [0.625], metric="val_loss")) == 0


def test_a_seed_that_fell_far_behind_is_named_and_one_that_is_ahead_or_near_is_not(side):
    (line,) = collapsed([side([0.97], [0.98], [0.1], [0.975])])
    assert line == "here: seed=2 with 0.1000 fell far behind the median of 0.9725"
    assert collapsed([side([0.1], [0.11], [0.9], [0.105])]) == []
    assert collapsed([side([0.97], [0.98], [0.95], [0.975])]) == []
    assert collapsed([side([0.9], [0.1])]) == []
    assert len(collapsed([side([0.1], [0.11], [9.0], [0.105], metric="val_loss")])) == 1
