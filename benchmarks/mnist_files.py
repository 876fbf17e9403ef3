"""The images of the benchmarks: MNIST's files where they are there, else as many generated ones in its format."""

import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runmanager.training.datasets.torchvision_files import SOURCES, missing_files

__all__ = ["MnistFiles", "find_or_generate"]

_SIDE, _NUM_CLASSES, _COARSE = 28, 10, 7
_NUM_TRAINING, _NUM_TEST = 60_000, 10_000
_GENERATED, _MARK = "generated images in MNIST's format", "GENERATED"


@dataclass(frozen=True)
class MnistFiles:
    """A data folder with `MNIST/raw/`, and what the images in it are to be called."""

    root: Path
    name: str


def find_or_generate(folder: Path) -> MnistFiles:
    """MNIST in the folder that RUNMANAGER_DATA names; where it is not there, images generated under `folder`."""
    named = os.environ.get("RUNMANAGER_DATA")
    if named and not missing_files(SOURCES["mnist"], Path(named)):
        return MnistFiles(Path(named).resolve(), _GENERATED if (Path(named) / _MARK).exists() else "MNIST")
    generate(folder, num_training=_NUM_TRAINING, num_test=_NUM_TEST)
    return MnistFiles(folder, _GENERATED)


def generate(folder: Path, *, num_training: int, num_test: int) -> None:
    """Write images of ten patterns under so much noise that a network learns them, but not at once."""
    source = SOURCES["mnist"]
    raw = folder / source.folder
    raw.mkdir(parents=True)
    (folder / _MARK).touch()
    drawn = np.random.default_rng(0)
    coarse = drawn.integers(0, 256, (_NUM_CLASSES, _COARSE, _COARSE))
    patterns = np.kron(coarse, np.ones((_SIDE // _COARSE, _SIDE // _COARSE))).astype(np.float32)
    for files, count in ((source.train_files, num_training), (source.test_files, num_test)):
        labels = drawn.integers(0, _NUM_CLASSES, count, dtype=np.uint8)
        noise = drawn.standard_normal((count, _SIDE, _SIDE), dtype=np.float32)
        images = np.clip(patterns[labels] + 120 * noise, 0, 255).astype(np.uint8)
        for name, values in zip(files, (images, labels), strict=True):
            head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
            (raw / name).write_bytes(head + values.tobytes())
