"""The resolution of accuracies that a side measured."""

import pytest

from runmanager.results.compare.comparison_table import resolution_of


def resolution(side):
    return resolution_of(side.metric, [side])


@pytest.mark.parametrize("samples", [97, 500, 10_000, 59_999])
def test_resolution_is_one_evaluated_sample(side, samples):
    assert resolution(side([7 / samples, 13 / samples], [12 / samples])) == 1 / samples


def test_resolution_of_single_precision_is_known_for_small_sets(side):
    import struct

    value = struct.unpack("f", struct.pack("f", 449 / 500))[0]
    assert resolution(side([value])) == 1 / 500


def test_resolution_of_other_values_is_unknown(side):
    assert resolution(side([0.414213562373], [0.5])) == 0
    assert resolution(side([0.5], [0.0], [1.0])) == 0
    assert resolution(side([float("nan")])) == 0
    assert resolution(side([0.125], [0.625], metric="val_loss")) == 0


def test_fewer_than_ten_samples_do_not_show_how_many_were_evaluated(side):
    assert resolution(side([0.1], [0.3])) == 1 / 10
    assert resolution(side([1 / 9], [2 / 9])) == 0
