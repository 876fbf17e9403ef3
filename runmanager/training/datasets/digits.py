"""Scikit-learn's digits as a dataset of MNIST's size: split first, enlarged and jittered, and cached in files."""

import contextlib
import hashlib
import logging
import math
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from runmanager.records.files.atomic_files import replacement
from runmanager.records.files.paths import cache_folder
from runmanager.training.datasets.array_dataset import ArrayDataset, generator_for
from runmanager.training.options.dataset import DigitsOptions

_FORMAT = 1  # part of the cache's key: increase it when the images change
_TEST_SHARE = 0.2
_SIDE = 28
_CHUNK = 4096
_MAX_ANGLE = math.radians(12)
_SCALES = (0.85, 1.1)
_MAX_SHIFT = 0.12  # of half a side: under two pixels


Arrays = dict[str, np.ndarray]
_MAX_FILES = 8  # of each kind; a digits file takes 55 MB
_log = logging.getLogger(__name__)


def cache_file(kind: str, key: Mapping[str, object]) -> Path | None:
    """The cache file for arrays of this kind and key; None if the user has no home folder."""
    digest = hashlib.blake2b(repr(sorted(key.items())).encode(), digest_size=8).hexdigest()
    folder = cache_folder()
    return None if folder is None else folder / f"{kind}-{digest}.npz"


def load_or_build(path: Path | None, build: Callable[[], Arrays]) -> Arrays:
    """Read the arrays from the file; if it is missing or damaged, call `build` and write the file.

    If the file cannot be written, a warning is logged. Two processes may build at the same time: each writes its own
    file and renames it into place.
    """
    arrays = _read(path) if path else None
    if arrays is None:
        arrays = build()
        if path:
            _write(path, arrays)
    return arrays


def _read(path: Path) -> Arrays | None:
    try:
        # The zip format checks each array's CRC. Opened here, because NumPy does not close a damaged file.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        _log.warning("The cache file %s cannot be read and is rebuilt: %s", path, error)
        return None


def _write(path: Path, arrays: Arrays) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacement(path) as file:  # not built in memory, which would double the memory
            np.savez(file, allow_pickle=False, **arrays)
        _prune(path)
    except OSError as error:
        _log.warning("The cache file %s cannot be written, so it is rebuilt each time: %s", path, error)


def _prune(newest: Path) -> None:
    """Delete the oldest files of the same kind; an open file stays readable until it is closed."""
    kind = newest.name.rpartition("-")[0]
    with contextlib.suppress(FileNotFoundError):  # another process may prune at the same time
        files = sorted(newest.parent.glob(f"{kind}-*.npz"), key=lambda file: file.stat().st_mtime)
        for old in files[:-_MAX_FILES]:
            old.unlink()


def digits_sets(options: DigitsOptions, *, seed: int) -> tuple[ArrayDataset, ArrayDataset]:
    """Training and validation images (samples, 1, 28, 28), uint8, made from disjoint source digits.

    Without a `holdout` they depend only on the options; with one, `seed` decides which training digits are held out.
    They are cached in the user's cache folder.
    """
    arrays = load_or_build(_cache_file(options, seed), lambda: build_digits(options, seed=seed))
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    training = ArrayDataset(tensors["train_images"], tensors["train_labels"])
    return training, ArrayDataset(tensors["val_images"], tensors["val_labels"])


def digits_are_cached(options: DigitsOptions, *, seed: int) -> bool:
    """Whether the images are in the cache."""
    file = _cache_file(options, seed)
    return file is not None and file.is_file()


def _cache_file(options: DigitsOptions, seed: int) -> Path | None:
    key = {
        "format": _FORMAT,
        "size": options.size,
        "val_size": options.num_validation,
        "holdout": options.holdout,
        "data_seed": options.data_seed,
        "seed": None if options.holdout is None else seed,
    }
    return cache_file("digits", key)


def build_digits(options: DigitsOptions, *, seed: int) -> Arrays:
    """The images and labels of both parts, and for each image the index of its source digit (`…_sources`)."""
    from sklearn.datasets import load_digits  # takes half a second, needed only if the cache is empty

    digits = load_digits()
    images = torch.from_numpy(digits.images).to(torch.float32) / 16
    labels = torch.from_numpy(digits.target).to(torch.int64)
    all_digits = torch.arange(len(labels))
    training, validation = _stratified_split(
        all_digits, labels, _TEST_SHARE, generator_for("digits", "split", options.data_seed)
    )
    if options.holdout is not None:
        generator = generator_for("holdout", seed)
        training, validation = _stratified_split(training, labels, _holdout_share(options), generator)
    arrays: Arrays = {}
    parts = (("train", training, options.size), ("val", validation, options.num_validation))
    for name, sources, count in parts:
        generator = generator_for("digits", name, options.data_seed)
        chosen = _repeat_sources(sources, count, generator)
        arrays[f"{name}_images"] = _jitter(images, chosen, generator)
        arrays[f"{name}_labels"] = labels[chosen].numpy()
        arrays[f"{name}_sources"] = chosen.numpy()
    return arrays


def _stratified_split(
    indices: Tensor, labels: Tensor, share: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Split `indices` into (kept, held out); of each class about `share` is held out, at least one sample."""
    kept, held_out = [], []
    for label in labels[indices].unique():
        members = indices[labels[indices] == label]
        members = members[torch.randperm(len(members), generator=generator)]
        num_held = min(max(1, round(share * len(members))), len(members) - 1)
        held_out.append(members[:num_held])
        kept.append(members[num_held:])
    return torch.cat(kept).sort().values, torch.cat(held_out).sort().values


def _holdout_share(options: DigitsOptions) -> float:
    """The share of the source digits to hold out; a count is taken relative to all generated images."""
    assert options.holdout is not None
    if isinstance(options.holdout, int):
        return options.holdout / (options.holdout + options.size)
    return options.holdout


def _repeat_sources(sources: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` sources in random order, each equally often up to one."""
    rounds = math.ceil(count / len(sources))
    orders = [sources[torch.randperm(len(sources), generator=generator)] for _ in range(rounds)]
    return torch.cat(orders)[:count]


def _jitter(images: Tensor, chosen: Tensor, generator: torch.Generator) -> np.ndarray:
    """Rotate, scale and shift each chosen 8x8 image slightly: (count, 1, 28, 28), uint8."""
    matrices = _random_matrices(len(chosen), generator)
    jittered = torch.empty((len(chosen), 1, _SIDE, _SIDE), dtype=torch.uint8)
    for start in range(0, len(chosen), _CHUNK):
        part = slice(start, start + _CHUNK)
        grid = F.affine_grid(matrices[part], [len(matrices[part]), 1, _SIDE, _SIDE], align_corners=False)
        enlarged = F.grid_sample(images[chosen[part], None], grid, align_corners=False)
        jittered[part] = enlarged.mul_(255).round_().to(torch.uint8)
    array: np.ndarray = jittered.numpy()
    return array


def _random_matrices(count: int, generator: torch.Generator) -> Tensor:
    """Affine maps (count, 2, 3) from positions in the result to positions in the source, both in [-1, 1]."""
    angle, scale, shift_x, shift_y = torch.rand(4, count, generator=generator)
    angle = (2 * angle - 1) * _MAX_ANGLE
    zoom = 1 / (_SCALES[0] + scale * (_SCALES[1] - _SCALES[0]))
    cosine, sine = angle.cos() * zoom, angle.sin() * zoom
    shift_x, shift_y = (2 * shift_x - 1) * _MAX_SHIFT, (2 * shift_y - 1) * _MAX_SHIFT
    rows = [cosine, -sine, shift_x, sine, cosine, shift_y]
    return torch.stack(rows, dim=1).view(count, 2, 3)
