"""Limits of the system on what a user's processes may have together."""

import os

import psutil

__all__ = ["process_limit"]

_ROOM = 8  # processes and threads: what a command and its first run start at about the same time


def process_limit() -> str:
    """Describe the limit on this user's processes and threads if it is nearly reached; empty if not, or without one."""
    import resource  # imported late: Windows lacks it, and gets a clear error elsewhere

    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if most == resource.RLIM_INFINITY or os.getuid() == 0:  # the kernel exempts root
        return ""
    own = sum(
        each.info["num_threads"] or 1
        for each in psutil.process_iter(["uids", "num_threads"])
        if each.info["uids"] is not None and each.info["uids"].real == os.getuid()
    )
    return f"processes and threads are limited to {most} (ulimit -u)" if own + _ROOM > most else ""
