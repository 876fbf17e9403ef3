"""Configuration of glibc's malloc: keep freed memory in the process, so that the next step can reuse it."""

import contextlib
import ctypes
import os
import sys

__all__ = ["LARGEST_KEPT_BYTES", "keep_freed_memory"]

# The numbers of the parameters in malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

LARGEST_KEPT_BYTES = 32 * 2**20
"""The largest block that is kept; glibc accepts no higher threshold."""
_TRIM_THRESHOLD_BYTES = 2**30
_USER_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_freed_memory() -> None:
    """Let this process keep up to 1 GiB of freed memory, in blocks of up to 32 MiB each.

    A step on the CPU allocates and frees the same tens of megabytes each time. By default glibc returns them to the
    kernel in between, which then clears and maps each page again: thousands of page faults a step. Does nothing except
    on Linux with glibc, or if an environment variable configures memory allocation.

    Source: mallopt(3).
    """
    if sys.platform != "linux" or any(os.environ.get(name) for name in _USER_SETTINGS):
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
