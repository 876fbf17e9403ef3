"""The memory that a run frees stays its own, so that the next step finds it where it was."""

import contextlib
import ctypes
import os
import sys

__all__ = ["keep_freed_memory"]

# As malloc.h numbers them.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_LARGEST_KEPT = 32 * 2**20  # what glibc takes at most
_KEPT = 2**30
_OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_freed_memory() -> None:
    """Let this process keep up to a GiB that it has freed, in pieces of up to 32 MiB each.

    A step on the CPU takes and frees the same tens of megabytes each time. By default glibc hands them back to the
    kernel in between, which then clears and maps each page anew, thousands a step. Elsewhere than on Linux with glibc,
    and where the environment says how memory is to be allocated, nothing is changed.

    Source: mallopt(3).
    """
    if sys.platform != "linux" or any(os.environ.get(name) for name in _OWN_SETTINGS):
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT)
