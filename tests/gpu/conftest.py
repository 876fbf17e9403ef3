"""What the tests of a GPU share: the mode in which waiting for it is an error, and memory given back after each."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from .where import IS_CUDA


@pytest.fixture
def waiting_is_an_error() -> Any:
    """Whatever waits for the GPU raises, while it is entered. Elsewhere than on CUDA it is entered for nothing."""

    class Mode:
        def __enter__(self) -> None:
            _debug_waiting("error")

        def __exit__(self, *error: object) -> None:
            _debug_waiting("default")

    return Mode()


def _debug_waiting(mode: str) -> None:
    if not IS_CUDA:
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode(mode)


@pytest.fixture(autouse=True)
def memory_given_back() -> Iterator[None]:
    """What one test has taken of the GPU is there for the next one, in whichever process."""
    yield
    if IS_CUDA and torch.cuda.is_available():
        torch.cuda.empty_cache()
