"""The exceptions that users meet: each message says what must hold, what was got, and the way out."""

from collections.abc import Iterable

__all__ = [
    "ConfigurationError",
    "DatasetError",
    "DeviceUnavailableError",
    "NoRoomError",
    "RecordError",
    "RunBusyError",
    "RunFailedError",
    "RunManagerError",
    "SweepError",
    "TensorMismatchError",
    "UsageError",
]


class RunManagerError(Exception):
    """Base of every error that is the user's to mend; shown as one line, without a traceback."""


class ConfigurationError(RunManagerError):
    """Settings that cannot be: every fault found, said at once."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(dict.fromkeys(faults))
        super().__init__("\n".join(self.faults))


class UsageError(RunManagerError):
    """A call or a command that cannot be carried out as it was given."""

    def _render_traceback_(self) -> list[str]:
        """Called by IPython in place of a traceback: the call is in the cell above, the rest is ours."""
        return [f"{type(self).__name__}: {self}"]


class SweepError(RunManagerError):
    """What went wrong beside the runs of a sweep once they had begun; their records tell how each ended."""


class DeviceUnavailableError(RunManagerError):
    """The host lacks the device that was asked for."""


class DatasetError(RunManagerError):
    """A dataset that cannot be read, built or downloaded."""


class RecordError(RunManagerError):
    """A file of a run or sweep that is damaged, or written by a newer version of this package."""


class NoRoomError(RunManagerError, OSError):
    """A file that finds no room on its disk, or is larger than it may be; `cause` is the system's error."""

    def __init__(self, message: str, cause: OSError | None = None) -> None:
        super().__init__(message)
        if cause is not None:
            self.errno, self.strerror = cause.errno, cause.strerror

    def __str__(self) -> str:
        return str(self.args[0])


class RunFailedError(RunManagerError):
    """A run that ended badly, as another sweeper than ours is told of it; its record tells how it ended."""


class RunBusyError(RunManagerError):
    """Another living process owns the run's folder."""


class TensorMismatchError(RunManagerError):
    """A batch that does not fit the model: wrong device, shape or class labels."""
