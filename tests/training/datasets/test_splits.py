"""Holdouts and random subsets: exact counts, no sample twice, reproducible by seed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runmanager.errors import DatasetError
from runmanager.training.datasets.array_dataset import ArrayDataset, derived_seed, hold_out, num_held_out, random_subset
from runmanager.training.options.dataset import num_extra_samples


def numbered(count):
    return ArrayDataset(torch.arange(count).float().view(-1, 1), torch.arange(count))


def labels(dataset):
    return dataset.tensors()[1].tolist()


@given(
    count=st.integers(2, 300),
    holdout=st.one_of(st.integers(1, 299), st.floats(0.001, 0.999)),
    seed=st.integers(0, 2**31),
)
def test_a_split_has_every_sample_once(count, holdout, seed):
    try:
        expected = num_held_out(holdout, count)
    except DatasetError:
        return
    kept, held = hold_out(numbered(count), holdout, seed=seed)
    assert len(held) == expected and len(kept) == count - expected
    assert sorted(labels(kept) + labels(held)) == list(range(count))
    assert labels(kept) == sorted(labels(kept))


def test_fractions_and_counts():
    assert num_held_out(0.2, 60_000) == 12_000
    assert num_held_out(10_000, 60_000) == 10_000
    assert num_held_out(0.001, 10) == 1
    for too_much in (10, 0.99):
        with pytest.raises(DatasetError, match="must leave samples to train on"):
            num_held_out(too_much, 10)


def test_the_seed_decides_the_split():
    first, again, other = (labels(hold_out(numbered(100), 0.2, seed=seed)[1]) for seed in (1, 1, 2))
    assert first == again != other


def test_a_random_subset_has_exactly_its_size():
    dataset = numbered(50)
    assert random_subset(dataset, None, seed=0, name="x") is dataset
    kept = labels(random_subset(dataset, 20, seed=0, name="x"))
    assert len(set(kept)) == 20 and kept == sorted(kept)
    assert (
        kept
        == labels(random_subset(dataset, 20, seed=0, name="x"))
        != labels(random_subset(dataset, 20, seed=1, name="x"))
    )
    with pytest.raises(DatasetError, match=r"`dataset.size` must be at most 50, .* that x has, got 51"):
        random_subset(dataset, 51, seed=0, name="x")


def test_extra_samples_are_the_requested_share():
    assert num_extra_samples(0.2, 8000) == 2000
    assert num_extra_samples(500, 8000) == 500
    assert num_extra_samples(0.001, 10) == 1


def test_seeds_for_different_purposes_differ():
    seeds = {derived_seed(what, seed) for what in ("size", "holdout") for seed in range(100)}
    assert len(seeds) == 200 and all(0 <= seed < 2**32 for seed in seeds)
