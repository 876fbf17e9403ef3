"""What PyTorch's DataLoader fetches for a batch: from tensors at once, from any other dataset sample by sample."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from runmanager.training.data.arrays import ArrayDataset

__all__ = ["ArrayBatches", "SampleBatches", "as_fetched"]


class ArrayBatches(Dataset[Any]):
    """Whole batches of an `ArrayDataset`, as they are stored: bytes take a quarter of the way that floats would."""

    def __init__(self, dataset: ArrayDataset) -> None:
        self._dataset = dataset

    def __getitems__(self, indices: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        return self._dataset.gather(torch.from_numpy(indices))


class SampleBatches(Dataset[Any]):
    """The samples of any dataset for a batch, one by one unless it takes many at a time itself."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset

    def __getitems__(self, indices: npt.NDArray[np.int64]) -> list[Any]:
        numbers = indices.tolist()  # somebody's dataset may want plain integers
        many = getattr(self._dataset, "__getitems__", None)
        return many(numbers) if many else [self._dataset[number] for number in numbers]


def as_fetched(batch: Any) -> Any:
    """Collate what is a batch already."""
    return batch
