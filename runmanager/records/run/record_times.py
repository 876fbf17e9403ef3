"""The times of day in a run's record: they are texts, which a damaged record may have wrong."""

import datetime
from collections.abc import Iterator

from runmanager.errors import RecordError
from runmanager.records.run.run_record import RunRecord

__all__ = ["require_valid_times"]


def require_valid_times(path: str, record: RunRecord) -> None:
    """Raise `RecordError` for a record with an invalid time of day."""
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
