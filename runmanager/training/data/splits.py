"""Which samples are trained on, and which are held out: seeded, and counted exactly."""

import hashlib
from typing import Any

import torch
from torch.utils.data import Dataset

from runmanager.errors import DatasetError
from runmanager.training.data.array_dataset import subset

__all__ = ["derived_seed", "generator_for", "hold_out", "num_held_out", "random_subset"]


def derived_seed(*parts: object) -> int:
    """A seed of 32 bits from what it is for: unlike parts give unrelated streams.

    32 bits, because PyTorch's CPU generator looks at no more.
    """
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


def generator_for(*parts: object) -> torch.Generator:
    """A generator of its own, so that nobody's random numbers shift."""
    return torch.Generator().manual_seed(derived_seed(*parts))


def num_held_out(holdout: int | float, num_samples: int) -> int:
    """How many of `num_samples` a fraction or count holds out; at least 1 stays on either side.

    Raises `DatasetError` when that is impossible.
    """
    held = holdout if isinstance(holdout, int) else max(1, round(holdout * num_samples))
    if not 1 <= held < num_samples:
        raise DatasetError(
            f"`dataset.holdout` must leave samples to train on, got {holdout} of {num_samples}; "
            f"hold out at most {num_samples - 1}."
        )
    return held


def hold_out(dataset: Dataset[Any], holdout: int | float, *, seed: int) -> tuple[Dataset[Any], Dataset[Any]]:
    """A random split into (what is left for training, what is held out), each in the dataset's own order."""
    total = _length(dataset)
    held = num_held_out(holdout, total)
    order = torch.randperm(total, generator=generator_for("holdout", seed))
    kept, held_out = order[held:].sort().values.tolist(), order[:held].sort().values.tolist()
    return subset(dataset, kept), subset(dataset, held_out)


def random_subset(dataset: Dataset[Any], size: int | None, *, seed: int, name: str) -> Dataset[Any]:
    """`size` random samples in the dataset's own order; all of them where `size` is None.

    Raises `DatasetError` when there are fewer.
    """
    total = _length(dataset)
    if size is None or size == total:
        return dataset
    if size > total:
        raise DatasetError(
            f"`dataset.size` must be at most {total}, the training samples that {name} has, got {size}; "
            "lower it, or leave it at null for all of them."
        )
    order = torch.randperm(total, generator=generator_for("size", seed))
    return subset(dataset, order[:size].sort().values.tolist())


def _length(dataset: Dataset[Any]) -> int:
    return len(dataset)  # type: ignore[arg-type]  # PyTorch's Dataset promises no length, but every one here has it
