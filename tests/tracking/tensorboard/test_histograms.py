"""Histograms of weights and gradients: equal to NumPy's if all values count, and even samples of large tensors."""

import numpy as np
import pytest
import torch

from runmanager.tracking.tensorboard.sink import (
    MAX_PARAMETERS,
    MAX_VALUES,
    NUM_BINS,
    Histogram,
    compute_histograms,
    describe_omissions,
)


class Holding(torch.nn.Module):
    """A network that consists of parameters with given values."""

    def __init__(self, *values: torch.Tensor) -> None:
        super().__init__()
        self.held = torch.nn.ParameterList(values)


def single_histogram(values: torch.Tensor) -> Histogram:
    (found,) = compute_histograms(Holding(values)).values()
    assert found is not None
    return found


def test_counts_limits_and_sums_are_numpys() -> None:
    # Multiples of 1/8 are limits of bins: they count in the upper bin, the last limit in the last bin.
    values = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)).clamp(-3, 3)
    values[0] = torch.arange(-20, 20) / 8
    values[1, :2] = torch.tensor([-4.0, 4.0])
    found = single_histogram(values)
    counts, edges = np.histogram(values.numpy(), bins=NUM_BINS)
    assert list(found.counts) == counts.tolist() and found.limits == pytest.approx(edges[1:])
    assert (found.low, found.high) == (-4.0, 4.0)
    assert found.total == pytest.approx(float(values.double().sum()))
    assert found.squares == pytest.approx(float(values.double().square().sum()), rel=1e-6)


def test_equal_values_lie_in_one_bin() -> None:
    found = single_histogram(torch.full((7,), 3.0))
    (count,) = (count for count in found.counts if count)
    assert count == 7 and found.low == found.high == 3.0 and found.limits[0] < 3.0 < found.limits[-1]


@pytest.mark.parametrize("high", [1e-40, 1e-38, 1.0, 3e38])
def test_values_of_any_size_lie_in_their_bins(high: float) -> None:
    found = single_histogram(torch.linspace(-1.0, 1.0, 64) * high)
    assert set(found.counts) == {1} and len(found.counts) == NUM_BINS


@pytest.mark.parametrize("shape", [(1 << 20,), (1024, 1024), (3, 5, 65_536), (MAX_VALUES + 1,)])
def test_a_large_tensor_is_sampled_evenly(shape: tuple[int, ...]) -> None:
    # Each column of a matrix has its own value: a sample from some columns only would miss most values.
    columns = torch.arange(shape[-1]) * (64 / shape[-1])
    found = single_histogram(columns.expand(shape).contiguous())
    num = sum(found.counts)
    assert 0.9 * MAX_VALUES / 2 < num <= MAX_VALUES
    assert min(found.counts) > 0.8 * num / NUM_BINS and max(found.counts) < 1.2 * num / NUM_BINS
    assert "of 1 parameter are of a sample" in describe_omissions(Holding(torch.zeros(shape)))[0]


def test_parameters_after_the_first_hundred_are_left_out_with_a_note() -> None:
    network = Holding(*[torch.ones(2)] * (MAX_PARAMETERS + 5))
    assert len(compute_histograms(network)) == MAX_PARAMETERS
    assert describe_omissions(network) == [
        f"histograms of the first {MAX_PARAMETERS} of {MAX_PARAMETERS + 5} parameters only"
    ]
    assert not describe_omissions(Holding(torch.ones(2)))


def test_tensors_with_nan_or_infinity_have_no_histogram() -> None:
    found = compute_histograms(Holding(torch.tensor([1.0, torch.nan]), torch.tensor([torch.inf]), torch.ones(3)))
    assert [each is None for each in found.values()] == [True, True, False]
    assert set(compute_histograms(Holding(torch.tensor([torch.nan]))).values()) == {None}


def test_existing_gradients_follow_their_weights() -> None:
    network = torch.nn.Sequential(torch.nn.Embedding(9, 2, sparse=True), torch.nn.Linear(2, 3).bfloat16())
    network[0](torch.tensor([1, 4, 4])).sum().backward()
    network[1].weight.grad = torch.full((3, 2), 0.5, dtype=torch.bfloat16)
    network.append(torch.nn.LazyLinear(3))
    network.append(Holding(torch.zeros(0, 3)))
    found = compute_histograms(network)
    assert list(found) == [
        "weights/0.weight",
        "gradients/0.weight",
        "weights/1.weight",
        "gradients/1.weight",
        "weights/1.bias",
    ]
    sparse, half = found["gradients/0.weight"], found["gradients/1.weight"]
    assert sparse is not None and (sum(sparse.counts), sparse.total) == (4, 6.0)  # the two rows that were looked up
    assert half is not None and half.low == half.high == 0.5
    assert compute_histograms(torch.nn.ReLU()) == {}
