"""Places on GPUs, handed out to runs and taken back, so that two runs share a GPU only where that is wanted."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["EVERY_GPU", "GpuSlots", "GpuWish", "Lease"]


@dataclass(frozen=True)
class GpuWish:
    """What a run wants: `count` GPUs, whichever, or the one of `index`, counted among all; or a look at every one.

    Who names an index must see every GPU, or another one would have that index.
    """

    count: int = 0
    index: int | None = None
    only_looks: bool = False


EVERY_GPU = GpuWish(only_looks=True)
"""To see every GPU without a place on any."""


@dataclass(frozen=True)
class Lease:
    """What a run got: its places, one on each of `gpus`, and the value of CUDA_VISIBLE_DEVICES; None: as it is."""

    gpus: tuple[str, ...] = ()
    visible: str | None = None


class GpuSlots:
    """`runs_per_gpu` places on each GPU. Where no GPU is known, a run that wants one sees what the driver sees.

    `are_given` says that the user listed the GPUs: then a run sees no other, even where the list is empty.
    `are_packed` fills one GPU before it takes the next.
    """

    def __init__(
        self, gpus: Sequence[str] = (), *, runs_per_gpu: int = 1, are_given: bool = False, are_packed: bool = False
    ) -> None:
        self.gpus = tuple(gpus)
        self._runs_per_gpu = runs_per_gpu
        self._hides_others = are_given or bool(gpus)
        self._are_packed = are_packed
        self._taken: Counter[str] = Counter()

    def take(self, wish: GpuWish) -> Lease | None:
        """The places that a run wants, spread or packed; None if there are not enough now.

        A wish that can never be met gets what there is, and the run says what it lacks.
        """
        if wish.only_looks or wish.index is not None:
            return self._take_index(wish.index)
        free = [gpu for gpu in self.gpus if self._taken[gpu] < self._runs_per_gpu]
        wanted = min(wish.count, len(self.gpus))
        if len(free) < wanted:
            return None
        if not self._are_packed:
            free.sort(key=lambda gpu: self._taken[gpu])  # stable: in the order given
        chosen = free[:wanted]
        self._taken.update(chosen)
        hidden = self._hides_others or wish.count == 0
        return Lease(tuple(chosen), ",".join(chosen) if hidden else None)

    def _take_index(self, index: int | None) -> Lease | None:
        chosen = self.gpus[index : index + 1] if index is not None else ()
        if any(self._taken[gpu] >= self._runs_per_gpu for gpu in chosen):
            return None
        self._taken.update(chosen)
        return Lease(chosen, ",".join(self.gpus) if self._hides_others else None)

    def give_back(self, lease: Lease) -> None:
        """The run is gone: its places are free."""
        self._taken.subtract(lease.gpus)
