"""Exceptions for users: each message states what must hold, what was found, and the way out."""

from collections.abc import Iterable, Iterator

__all__ = [
    "ConfigurationError",
    "DatasetError",
    "DeviceUnavailableError",
    "NoRoomError",
    "RankError",
    "RecordError",
    "RunBusyError",
    "RunFailedError",
    "RunManagerError",
    "SweepError",
    "TensorMismatchError",
    "UsageError",
    "error_chain",
]


class RunManagerError(Exception):
    """Base of all errors that the user can fix; commands print them as one line, without a traceback."""


class ConfigurationError(RunManagerError):
    """Invalid settings; `faults` lists all that were found."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(dict.fromkeys(faults))
        super().__init__("\n".join(self.faults))


class UsageError(RunManagerError):
    """A call or a command that cannot be carried out as given."""

    def _render_traceback_(self) -> list[str]:
        """Called by IPython instead of printing a traceback: the user's call is in the cell above."""
        return [f"{type(self).__name__}: {self}"]


class SweepError(RunManagerError):
    """A failure of the sweep itself after its runs have begun; how each run ended is in its record."""


class DeviceUnavailableError(RunManagerError):
    """The host lacks the requested device."""


class DatasetError(RunManagerError):
    """A dataset that cannot be read, built or downloaded."""


class RecordError(RunManagerError):
    """A file of a run or sweep that is damaged, or written by a newer version of this package."""


class NoRoomError(RunManagerError, OSError):
    """A file for which the disk has no room, or that exceeds a size limit; `cause` is the system's error."""

    def __init__(self, message: str, cause: OSError | None = None) -> None:
        super().__init__(message)
        if cause is not None:
            self.errno, self.strerror = cause.errno, cause.strerror

    def __str__(self) -> str:
        return str(self.args[0])


class RankError(RunManagerError):
    """Another rank of the run, `rank`, is gone, has failed, or did not answer in time."""

    def __init__(self, message: str, *, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


class RunFailedError(RunManagerError):
    """A run that failed, reported to a third-party Hydra sweeper; how it ended is in its record."""


class RunBusyError(RunManagerError):
    """Another living process owns the run's folder."""


class TensorMismatchError(RunManagerError):
    """A batch that does not fit the model: wrong device, shape or class labels."""


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, what it was raised from or while handling, and so on; each once, also where they form a circle.

    OmegaConf makes such circles when it is debugged: an error that is its own cause.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
