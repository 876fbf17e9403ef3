"""What no type says of a stored run: that its times of day are some, and that files can hold the name of its folder."""

import datetime
from collections.abc import Iterator

from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.record import RunRecord
from runmanager.text import encodable

__all__ = ["refuse_name", "refuse_times"]


def refuse_name(run: RunPaths) -> None:
    """Raises `RecordError` where no file can name the run's folder, as its name is no UTF-8."""
    try:
        run.name.encode()
    except UnicodeEncodeError:
        said = encodable(str(run.root))
        raise RecordError(f"{said} must have a name in UTF-8, got another one; rename the folder.") from None


def refuse_times(path: str, record: RunRecord) -> None:
    """Raises `RecordError` for a record with a time of day that is none."""
    for time in _times_of(record):
        if time is not None and not _is_time(time):
            raise RecordError(f"{path} is damaged: a time of day must be in ISO 8601, got {time!r}")


def _times_of(record: RunRecord) -> Iterator[str | None]:
    yield from (record.started_at, record.resumed_at, record.ended_at)
    for attempt in record.earlier:
        yield from (attempt.started_at, attempt.ended_at)


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
