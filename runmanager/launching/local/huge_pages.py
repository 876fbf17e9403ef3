"""Huge pages for the heap of a large process, which make its forks cheaper: a few page table entries, not 70,000."""

import ctypes
import sys
from pathlib import Path

_MADV_COLLAPSE = 25  # linux/mman.h, since Linux 6.1; an older kernel returns EINVAL and changes nothing
_HUGE_PAGE_BYTES = 2 << 20  # where huge pages are larger, the kernel refuses too


def collapse_heap() -> None:
    """Ask Linux to move the writable anonymous memory of this process into huge pages. Does nothing on other systems.

    It takes some tenths of a second in a process that has imported torch. Then a fork, with the end of the forked
    process, costs the kernel a third of before (8 ms, not 27 ms), and a cell of `benchmarks/sweep_overhead` an eighth
    less.
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
        begin, end = -(-begin // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES, end // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
        if begin < end:
            advise(begin, end - begin, _MADV_COLLAPSE)
