"""The device of the GPU tests: CUDA, or for a rehearsal without a GPU the one in RUNMANAGER_TEST_DEVICE."""

import os

import pytest
import torch

from runmanager.tracking.device.devices import is_available

__all__ = ["DEVICE", "IS_CUDA", "needs_cuda", "needs_device"]

DEVICE = torch.device(os.environ.get("RUNMANAGER_TEST_DEVICE", "cuda"))
IS_CUDA = DEVICE.type == "cuda"

needs_device = pytest.mark.skipif(not is_available(DEVICE), reason=f"needs a {DEVICE.type.upper()} device")
"""Marks tests that a rehearsal can run too."""

needs_cuda = pytest.mark.skipif(not (IS_CUDA and is_available(DEVICE)), reason="needs a CUDA device")
"""Marks tests of features that only CUDA has."""
