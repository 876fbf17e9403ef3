"""Random numbers in a loader's workers: begun anew in each pass over the data, however long a worker has lived."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset, Sampler, get_worker_info

from runmanager.tracking.device.rng import seed_everything
from runmanager.training.data.splits import derived_seed
from runmanager.training.loading.batch_fetching import SampleBatches
from runmanager.training.loading.sample_order import EpochBatches

__all__ = ["SeededBatches", "SeededSamples"]


@dataclass(frozen=True)
class _Request:
    """The samples of one batch, in which pass over the data it is, and the seed of that pass."""

    indices: npt.NDArray[np.int64]
    number: int
    seed: int


class SeededBatches(Sampler[_Request]):
    """The batches of an epoch, each with its pass over the data and that pass's seed."""

    def __init__(self, batches: EpochBatches) -> None:
        self._batches = batches
        self._passes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[_Request]:
        self._passes += 1
        number, seed = self._passes, self._batches.epoch_seed
        return (_Request(indices, number, seed) for indices in self._batches)


class SeededSamples(Dataset[Any]):
    """A dataset as workers see it: at the first batch of each pass they seed Python, NumPy and PyTorch anew.

    So what a dataset draws from these depends on the pass's seed, the number of workers and the worker alone, and a
    resumed run, whose workers are new, draws what one never stopped would have drawn. A generator that the dataset
    keeps for itself is its own business.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._samples = SampleBatches(dataset)
        self._number = 0

    def __getitems__(self, request: _Request) -> list[Any]:
        if request.number != self._number:
            self._number = request.number
            worker = get_worker_info()
            seed_everything(derived_seed("worker", request.seed, worker.id if worker else 0))
        return self._samples.__getitems__(request.indices)
