"""The slots on GPUs that runs take."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runmanager.records.files.paths import folder_name


@dataclass(frozen=True)
class GpuRequest:
    """The GPUs that a run needs: any `count` of them, or the one at `index` among all, or `only_sees` every one.

    A run that names an index must see every GPU, as CUDA would number fewer of them differently.
    """

    count: int = 0
    index: int | None = None
    only_sees: bool = False


EVERY_GPU = GpuRequest(only_sees=True)
"""See every GPU without a slot on any."""


@dataclass(frozen=True)
class Lease:
    """The GPUs on which a run has a slot, and its CUDA_VISIBLE_DEVICES; None leaves the variable as it is."""

    gpus: tuple[str, ...] = ()
    visible: str | None = None


class GpuMarks:
    """Marks on the GPUs on which this driver has runs: locks on files in `folder`, for the user's other drivers.

    Only unique names are marked: an index may be another GPU's elsewhere.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def hold(self, gpu: str) -> bool:
        """Mark a GPU; return False if another driver has."""
        import fcntl  # imported late: Windows lacks it, and gets a clear error elsewhere

        if gpu in self._held or self._folder is None or not gpu.startswith(("GPU-", "MIG-")):
            return True
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._folder / folder_name(gpu), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return True  # without a place for marks, drivers do not know of each other
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except OSError:  # some network file systems have no locks
            os.close(handle)
            return True
        self._held[gpu] = handle
        return True

    def drop(self, gpu: str) -> None:
        """Remove this driver's mark, if there is one."""
        import fcntl

        if (handle := self._held.pop(gpu, None)) is not None:
            fcntl.flock(handle, fcntl.LOCK_UN)  # a fork may have the handle too
            os.close(handle)


class GpuSlots:
    """`runs_per_gpu` slots on each GPU. Where no GPU is known, a run that requests one sees what the driver sees.

    GPUs on which another driver has runs, by its `marks`, are taken last.

    `are_given`: the user listed the GPUs, so a run sees no other, even where the list is empty.
    `are_packed`: fill one GPU before taking the next.
    """

    def __init__(
        self,
        gpus: Sequence[str] = (),
        *,
        runs_per_gpu: int = 1,
        are_given: bool = False,
        are_packed: bool = False,
        marks: GpuMarks | None = None,
    ) -> None:
        self.gpus = tuple(gpus)
        self._runs_per_gpu = runs_per_gpu
        self._hides_others = are_given or bool(gpus)
        self._are_packed = are_packed
        self._taken: Counter[str] = Counter()
        self._marks = marks or GpuMarks()

    def take(self, request: GpuRequest) -> Lease | None:
        """Take the slots that a run requests; None if too few are free now.

        A request for more GPUs than exist gets all of them, and the run reports what it lacks.
        """
        if request.only_sees or request.index is not None:
            return self._take_index(request.index)
        free = [gpu for gpu in self.gpus if self._taken[gpu] < self._runs_per_gpu]
        num_wanted = min(request.count, len(self.gpus))
        if len(free) < num_wanted:
            return None
        if not self._are_packed:
            free.sort(key=lambda gpu: self._taken[gpu])  # stable: in the order given
        if num_wanted:
            free.sort(key=lambda gpu: not self._marks.hold(gpu))
        chosen = free[:num_wanted]
        self._taken.update(chosen)
        self._drop_marks(free)
        is_restricted = self._hides_others or request.count == 0
        return Lease(tuple(chosen), ",".join(chosen) if is_restricted else None)

    def _take_index(self, index: int | None) -> Lease | None:
        chosen = self.gpus[index : index + 1] if index is not None else ()
        if any(self._taken[gpu] >= self._runs_per_gpu for gpu in chosen):
            return None
        self._taken.update(chosen)
        for gpu in chosen:
            self._marks.hold(gpu)
        return Lease(chosen, ",".join(self.gpus) if self._hides_others else None)

    def release(self, lease: Lease) -> None:
        """Free the slots of a run that has ended."""
        self._taken.subtract(lease.gpus)
        self._drop_marks(lease.gpus)

    def _drop_marks(self, gpus: Iterable[str]) -> None:
        for gpu in gpus:
            if not self._taken[gpu]:
                self._marks.drop(gpu)
