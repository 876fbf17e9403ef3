"""Fixtures for the GPU tests: a mode in which synchronizing raises, and memory freed after each test."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from .gpu_device import IS_CUDA


@pytest.fixture
def waiting_is_an_error() -> Any:
    """Return a context in which waiting for the GPU raises; on other devices it has no effect."""

    class Mode:
        def __enter__(self) -> None:
            _set_sync_debug_mode("error")

        def __exit__(self, *error: object) -> None:
            _set_sync_debug_mode("default")

    return Mode()


def _set_sync_debug_mode(mode: str) -> None:
    if not IS_CUDA:
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode(mode)


@pytest.fixture(autouse=True)
def freed_memory() -> Iterator[None]:
    """Free the cached GPU memory after each test, for the next one in any process."""
    yield
    if IS_CUDA and torch.cuda.is_available():
        torch.cuda.empty_cache()
