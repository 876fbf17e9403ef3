"""Random numbers in a loader's workers: begun anew in each pass over the data, however long a worker has lived."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import BatchSampler, Dataset, Sampler, get_worker_info

from runmanager.tracking.randomness import seed_everything
from runmanager.training.orders import EpochSampler
from runmanager.training.splits import derived_seed

__all__ = ["SeededBatches", "SeededSamples"]


@dataclass(frozen=True)
class _Request:
    """The samples of one batch, in which pass over the data it is, and the seed of that pass."""

    indices: Sequence[int]
    number: int
    seed: int


class SeededBatches(Sampler[_Request]):
    """The batches of a sampler, each with its pass and that pass's seed."""

    def __init__(self, sampler: EpochSampler, batch_size: int) -> None:
        self._sampler = sampler
        self._batches = BatchSampler(sampler, batch_size, drop_last=False)
        self._passes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[_Request]:
        self._passes += 1
        number, seed = self._passes, self._sampler.epoch_seed
        return (_Request(indices, number, seed) for indices in self._batches)


class SeededSamples(Dataset[Any]):
    """A dataset as workers see it: at the first batch of each pass they seed Python, NumPy and PyTorch anew.

    So what a dataset draws from these depends on the pass's seed, the number of workers and the worker alone, and a
    resumed run, whose workers are new, draws what one never stopped would have drawn. A generator that the dataset
    keeps for itself is its own business.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset
        self._number = 0

    def __getitems__(self, request: _Request) -> list[Any]:
        if request.number != self._number:
            self._number = request.number
            worker = get_worker_info()
            seed_everything(derived_seed("worker", request.seed, worker.id if worker else 0))
        many = getattr(self._dataset, "__getitems__", None)
        return many(request.indices) if many else [self._dataset[index] for index in request.indices]
