"""What a checkpoint declares, compared with what its file holds: no number in it may ask for more memory than that.

`torch.load(weights_only=True)` runs no code of a file, but believes its numbers: a storage may be declared larger than
its bytes, a tensor repeat one number a trillion times, and a compressed entry expand without end.
"""

import io
import math
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

_REPEATED_BYTES = 1 << 30  # a tensor may repeat its numbers, as expanded ones do, up to this size
_ALLOCATES = ("bytearray", "Tensor")  # what weights may call with a size alone
_ITEM_BYTES = {
    **dict.fromkeys(("DoubleStorage", "LongStorage", "ComplexFloatStorage"), 8),
    **dict.fromkeys(("FloatStorage", "IntStorage", "QInt32Storage"), 4),
    **dict.fromkeys(("HalfStorage", "BFloat16Storage", "ShortStorage"), 2),
    "ComplexDoubleStorage": 16,
}  # the others have items of one byte


def require_stored(path: Path) -> None:
    """Check a file before it is loaded: its entries are as long as they say, and the storages not longer than these.

    Raises `ValueError`, and what the modules zipfile and pickle raise for a damaged file.
    """
    limit = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
            raise ValueError("its entries must not be compressed")
        if sum(entry.file_size for entry in entries.values()) > limit:
            raise ValueError("its entries must not be longer than the file")
        scan = _Scan(archive.read(entries["data.pkl"]), limit)
    scan.load()
    for key, size in scan.storages.items():
        if f"data/{key}" not in entries or size > entries[f"data/{key}"].file_size:
            raise ValueError(f"its storage {key} must not be longer than its bytes")


class _Inert:
    """Stands for whatever a pickle names; it takes any call and any content, and does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __call__(self, *_: Any) -> "_Inert":
        return _Inert()

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...

    def append(self, item: Any) -> None: ...

    def extend(self, items: Any) -> None: ...

    def add(self, item: Any) -> None: ...


class _Scan(pickle._Unpickler):
    """Reads a pickle without importing or calling anything, for the `storages` that it names: bytes by key.

    The unpickler in Python keeps its memo in a dict; that in C would allocate a list as long as an index in the file.
    """

    def __init__(self, data: bytes, limit: int) -> None:
        super().__init__(io.BytesIO(data))
        self._limit = limit
        self.storages: dict[str, int] = {}

    def find_class(self, module: str, name: str) -> Any:
        limit = self._limit

        def refuse(_: Any, *sizes: Any, **__: Any) -> None:
            if math.prod(size for size in sizes if isinstance(size, int)) > limit:
                raise ValueError("it must not ask for more memory than it has bytes")

        return type(name, (_Inert,), {"__init__": refuse} if name in _ALLOCATES else {})

    def persistent_load(self, pid: Any) -> Any:
        _, kind, key, _, count = pid
        size = int(count) * _ITEM_BYTES.get(getattr(kind, "__name__", ""), 1)
        self.storages[str(key)] = max(size, self.storages.get(str(key), 0))
        return _Inert()


def require_bounded(state: Any, path: Path) -> None:
    """Raise `ValueError` for a loaded tensor that is far larger than its file, as one that repeats a number can be."""
    limit = path.stat().st_size + _REPEATED_BYTES
    for tensor in _tensors(state):
        if tensor.numel() * tensor.element_size() > limit:
            raise ValueError("a tensor must not be far larger than the file")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _tensors(item)
