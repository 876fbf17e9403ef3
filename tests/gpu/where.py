"""Where the tests of a GPU run: on CUDA. A rehearsal without one names another device in RUNMANAGER_TEST_DEVICE."""

import os

import pytest
import torch

from runmanager.tracking.device.devices import is_available

__all__ = ["DEVICE", "IS_CUDA", "needs_cuda", "needs_device"]

DEVICE = torch.device(os.environ.get("RUNMANAGER_TEST_DEVICE", "cuda"))
IS_CUDA = DEVICE.type == "cuda"

needs_device = pytest.mark.skipif(not is_available(DEVICE), reason=f"wants a {DEVICE.type.upper()} device")
"""For tests whose code a rehearsal runs as well."""

needs_cuda = pytest.mark.skipif(not (IS_CUDA and is_available(DEVICE)), reason="wants a CUDA device")
"""For what only CUDA has or can do."""
