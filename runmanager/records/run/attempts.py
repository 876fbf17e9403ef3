"""Attempts of a run: when its processes lived, and the sessions in which they took turns."""

import datetime
import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from runmanager.records.run.heartbeat import Beat
from runmanager.records.run.run_record import Attempt, EpochRecord, RunRecord
from runmanager.records.run.status import Status


def last_sign_of_life(record: RunRecord, epochs: Sequence[EpochRecord], beat: Beat | None) -> str | None:
    """Return the last time (ISO 8601) at which the process of a run without a recorded end was certainly alive.

    None for a run that never started.
    """
    began = record.resumed_at or record.started_at
    if began is None:
        return None
    before = record.earlier[-1].last_epoch if record.earlier else -1  # epoch 0 is an evaluation before training
    seconds_before = max((epoch.run_seconds or 0.0 for epoch in epochs if epoch.epoch <= before), default=0.0)
    seconds = max((epoch.run_seconds or 0.0 for epoch in epochs), default=0.0)
    lived_until = _later(_moment(began), max(seconds - seconds_before, 0.0))
    return max(lived_until, beat.at).isoformat() if beat else lived_until.isoformat()


def measured_since(record: RunRecord, epochs: Sequence[EpochRecord]) -> str | None:
    """Return the start of the attempt that made most of a run's measured epochs, the last one of several."""
    if not record.earlier:
        return record.started_at
    starts: list[tuple[float, str]] = [(each.last_epoch, each.started_at) for each in record.earlier]
    starts.append((math.inf, record.resumed_at or record.started_at or ""))
    made = Counter(
        next(start for last_epoch, start in starts if epoch.epoch <= last_epoch)
        for epoch in epochs
        if not epoch.warmup and epoch.epoch_seconds is not None
    )
    return max(made, key=lambda start: (made[start], start), default=record.started_at)


def own_attempts(record: RunRecord) -> list[Attempt]:
    """Return the earlier attempts of this run, without those of a run that it continues."""
    return [each for each in record.earlier if each.run is msgspec.UNSET]


def epochs_of_other_runs(record: RunRecord) -> range:
    """Return the epochs that another run has made, which this one continues: their times are evidence there."""
    last = max((each.last_epoch for each in record.earlier if each.run is not msgspec.UNSET), default=0)
    return range(1, last + 1)


def process_spans(
    record: RunRecord, epochs: Sequence[EpochRecord] = (), beat: Beat | None = None
) -> list[tuple[str, float, float]]:
    """Return when the run's processes lived, as (host, start, end) in seconds since 1970; infinity if still alive.

    Empty for a run that was skipped or never started.
    """
    if record.started_at is None or record.status is Status.SKIPPED:
        return []
    last_end = float("inf") if record.ended_at is None and not record.status.is_ended else None
    if last_end is None:
        last_end = _seconds(record.ended_at or last_sign_of_life(record, epochs, beat) or record.started_at)
    earlier = [
        (each.environment.host, _seconds(each.started_at), _seconds(each.ended_at)) for each in own_attempts(record)
    ]
    return [*earlier, (record.environment.host, _seconds(record.resumed_at or record.started_at), last_end)]


def attempts_up_to(earlier: Sequence[Attempt], last_epoch: int) -> tuple[Attempt, ...]:
    """Adjust the `last_epoch` of a run's earlier attempts when only its epochs up to `last_epoch` are kept."""
    if not earlier:
        return ()
    kept = [min(each.last_epoch, last_epoch) for each in earlier[:-1]] + [last_epoch]
    return tuple(msgspec.structs.replace(each, last_epoch=epoch) for each, epoch in zip(earlier, kept, strict=True))


def sessions_of(record: RunRecord) -> set[str]:
    """Return the sessions in which any attempt of the run took turns."""
    known = [each.session for each in record.earlier] + [record.session]
    return {session for session in known if session is not None}


def session_of_epoch(record: RunRecord, epoch: int) -> str | None:
    """Return the session in which this epoch was trained; None if its attempt did not take turns."""
    of_attempt = (each.session for each in record.earlier if epoch <= each.last_epoch)
    return next(of_attempt, record.session)


def session_seconds(record: RunRecord) -> list[float]:
    """Return the lifetime of each ended process of the run that took turns, in order."""
    lived = [(each.session, each.started_at, each.ended_at) for each in record.earlier]
    lived.append((record.session, record.resumed_at or record.started_at or "", record.ended_at or ""))
    return [_seconds(end) - _seconds(began) for session, began, end in lived if session and began and end]


def _later(time: datetime.datetime, seconds: float) -> datetime.datetime:
    """Return the time so much later, or the same where the calendar ends before: no clock measured these seconds."""
    try:
        return time + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return time


def _seconds(time_of_day: str) -> float:
    return _moment(time_of_day).timestamp()


def _moment(time_of_day: str) -> datetime.datetime:
    time = datetime.datetime.fromisoformat(time_of_day)
    return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
