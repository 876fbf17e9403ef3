"""Seeded splits: random subsets and held-out samples of a dataset."""

import hashlib
from typing import Any

import torch
from torch.utils.data import Dataset

from runmanager.errors import DatasetError
from runmanager.training.datasets.array_dataset import subset

__all__ = ["derived_seed", "generator_for", "hold_out", "num_held_out", "random_subset"]


def derived_seed(*parts: object) -> int:
    """Derive a 32-bit seed from its purpose: different parts give unrelated random streams.

    32 bits, because PyTorch's CPU generator uses only these.
    """
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


def generator_for(*parts: object) -> torch.Generator:
    """A separate generator with a derived seed, which leaves other random streams unchanged."""
    return torch.Generator().manual_seed(derived_seed(*parts))


def num_held_out(holdout: int | float, num_samples: int) -> int:
    """The number of `num_samples` that a fraction or count holds out; at least 1 is left in each part.

    Raises `DatasetError` if that is impossible.
    """
    held = holdout if isinstance(holdout, int) else max(1, round(holdout * num_samples))
    if not 1 <= held < num_samples:
        raise DatasetError(
            f"`dataset.holdout` must leave samples to train on, got {holdout} of {num_samples}; "
            f"hold out at most {num_samples - 1}."
        )
    return held


def hold_out(dataset: Dataset[Any], holdout: int | float, *, seed: int) -> tuple[Dataset[Any], Dataset[Any]]:
    """Split at random into (training samples, held-out samples), each in the dataset's order."""
    total = _length(dataset)
    held = num_held_out(holdout, total)
    order = torch.randperm(total, generator=generator_for("holdout", seed))
    kept, held_out = order[held:].sort().values.tolist(), order[:held].sort().values.tolist()
    return subset(dataset, kept), subset(dataset, held_out)


def random_subset(
    dataset: Dataset[Any], size: int | None, *, seed: int, name: str, setting: str = "dataset.size"
) -> Dataset[Any]:
    """Draw `size` random samples, in the dataset's order; None keeps all of them. `setting` is what asks for it.

    Raises `DatasetError` if the dataset has fewer.
    """
    total = _length(dataset)
    if size is None or size == total:
        return dataset
    if size > total:
        part = "training" if setting == "dataset.size" else "validation"
        raise DatasetError(
            f"`{setting}` must be at most {total}, the {part} samples that {name} has, got {size}; "
            "lower it, or use null for all of them."
        )
    order = torch.randperm(total, generator=generator_for(setting.rpartition(".")[2], seed))
    return subset(dataset, order[:size].sort().values.tolist())


def _length(dataset: Dataset[Any]) -> int:
    return len(dataset)  # type: ignore[arg-type]  # PyTorch's Dataset has no `__len__`, but every one here does
