"""Cheaper forks of a big process: its heap in huge pages, so that a fork has a few entries to copy, not 70,000."""

import ctypes
import sys
from pathlib import Path

__all__ = ["collapse_heap"]

_MADV_COLLAPSE = 25  # linux/mman.h, since Linux 6.1; an older kernel says EINVAL, and everything stays as it was
_HUGE = 2 << 20  # bytes; where huge pages are larger, the kernel refuses too


def collapse_heap() -> None:
    """Ask the kernel to put the writable anonymous memory of this process into huge pages.

    It takes some tenths of a second for a process that has imported torch, and takes two thirds off what each fork,
    with the end of the forked process, costs the kernel. Nothing but the page tables changes.
    """
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        span, access, *_, inode_and_name = line.split(maxsplit=4)
        inode, _, name = inode_and_name.partition(" ")
        if "w" not in access or inode != "0" or name.strip() not in ("", "[heap]"):
            continue
        begin, end = (int(address, 16) for address in span.split("-"))
        begin, end = -(-begin // _HUGE) * _HUGE, end // _HUGE * _HUGE
        if begin < end:
            advise(begin, end - begin, _MADV_COLLAPSE)
