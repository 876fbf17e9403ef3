"""The owner of an epoch: the process and thread that began it, until it ends."""

import os
import threading

from runmanager.errors import UsageError

__all__ = ["EpochOwner"]


class EpochOwner:
    """The process and thread that begin an epoch, which alone may use it; none once it has ended."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._thread: int | None = threading.get_ident()

    @property
    def has_ended(self) -> bool:
        """Whether the epoch has ended."""
        return self._thread is None

    def end(self) -> None:
        """Let nothing use the epoch from now on."""
        self._thread = None

    def check(self, call: str, number: int) -> None:
        """Raise `UsageError` for a call that is not the owner's, in epoch `number`."""
        if self._thread is None:
            raise UsageError(f"{call}() must come before its epoch's end, got epoch {number}, which has ended.")
        if os.getpid() != self._process:
            raise UsageError(
                f"{call}() must be called by process {self._process}, which began epoch {number}, got its fork "
                f"{os.getpid()}; begin a separate run there."
            )
        if threading.get_ident() != self._thread:
            raise UsageError(
                f"{call}() must be called by the thread that began epoch {number}, got another one; "
                "give each thread its own run."
            )
