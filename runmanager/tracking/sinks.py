"""Where metrics go: the seam every sink keeps, and the sinks that write lines or keep values in memory."""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO, runtime_checkable

import torch

from runmanager.records.files.file_errors import explain_disk_full
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.standard_streams import show_line
from runmanager.records.run.environment_changes import describe_attempts
from runmanager.records.run.record import EpochRecord, RunRecord
from runmanager.tracking.metrics.evaluation import Evaluation
from runmanager.tracking.metrics.loss_buffer import LoggedLosses

__all__ = [
    "ConsoleSink",
    "EpochDetails",
    "LogSink",
    "MemorySink",
    "RunStart",
    "ScoreSink",
    "Sink",
    "end_line",
    "epoch_line",
    "score_sinks",
]

_UNREADABLE = 1e12  # from here on nobody counts the digits


@dataclass(frozen=True)
class RunStart:
    """What a sink learns when a run begins, or goes on after a break.

    `first_batch` is one batch, on the host, or None where it cannot be had without using up the loader; then
    `Sink.first_batch` follows.
    """

    record: RunRecord
    paths: RunPaths
    network: torch.nn.Module
    device: torch.device
    first_batch: Any | None = None


@dataclass(frozen=True)
class EpochDetails:
    """What an epoch has beside its record: the learning rate, and the losses of the steps that were to be logged.

    `evaluation` is there where a sink looks at scores, and the epoch had an evaluation.
    """

    network: torch.nn.Module
    learning_rate: float | None = None
    step_losses: LoggedLosses = field(default_factory=LoggedLosses)
    evaluation: Evaluation | None = None


class Sink(Protocol):
    """Somewhere that metrics go. `begin` and `epoch` return readable notes on what they could not do."""

    def begin(self, start: RunStart) -> Sequence[str]:
        """A run begins."""
        ...

    def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
        """An epoch has ended; `tracking_seconds` and `wall_seconds` are not known yet."""
        ...

    def end(self, record: RunRecord) -> None:
        """The run has ended, as `record` says."""
        ...


@runtime_checkable
class ScoreSink(Sink, Protocol):
    """A sink that is told in `EpochDetails.evaluation` what evaluations said of each sample, where it looks at that."""

    looks_at_scores: bool

    def finish(self, record: EpochRecord, evaluation: Evaluation) -> Sequence[str]:
        """The run is about to be recorded as finished, and this was its last evaluated epoch; returns notes as well."""
        ...


def score_sinks(sinks: Iterable[Sink]) -> list[ScoreSink]:
    """The sinks for which what evaluations say of each sample is to be kept; for nobody else it is."""
    return [each for each in sinks if isinstance(each, ScoreSink) and each.looks_at_scores]


@dataclass
class MemorySink:
    """Keeps what it is told: the twin of every other sink, for tests and notebooks."""

    starts: list[RunStart] = field(default_factory=list)
    epochs: list[tuple[EpochRecord, EpochDetails]] = field(default_factory=list)
    ends: list[RunRecord] = field(default_factory=list)

    def begin(self, start: RunStart) -> Sequence[str]:
        self.starts.append(start)
        return ()

    def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
        self.epochs.append((record, details))
        return ()

    def end(self, record: RunRecord) -> None:
        self.ends.append(record)


def epoch_line(record: EpochRecord, planned: int | None) -> str:
    """One epoch as people read it."""
    of = f"/{planned}" if planned else ""
    parts = [f"epoch {record.epoch}{of}"]
    for name, value in (
        ("loss", record.loss),
        ("accuracy", record.accuracy),
        ("val_loss", record.val_loss),
        ("val_accuracy", record.val_accuracy),
    ):
        if value is not None:
            parts.append(f"{name} {value:.4f}" if abs(value) < _UNREADABLE else f"{name} {value:.4g}")
    if record.epoch_seconds is not None:
        parts.append(f"{record.epoch_seconds:.3g} s")
    if record.samples_per_second is not None:
        parts.append(f"{record.samples_per_second:,.0f} samples/s")
    if record.warmup:
        parts.append("(warm-up)")
    return "  ".join(parts)


class ConsoleSink:
    """One line an epoch on standard output."""

    def __init__(self) -> None:
        self._planned: int | None = None

    def begin(self, start: RunStart) -> Sequence[str]:
        self._planned = start.record.epochs_planned
        show_line(f"{start.record.name}: on {start.device}")
        return ()

    def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
        show_line("  " + epoch_line(record, self._planned))
        return ()

    def end(self, record: RunRecord) -> None:
        show_line("  " + end_line(record))


class LogSink:
    """The same lines in the run's own run.log."""

    def __init__(self) -> None:
        self._file: TextIO | None = None
        self._planned: int | None = None

    def begin(self, start: RunStart) -> Sequence[str]:
        self._planned = start.record.epochs_planned
        # Appended line by line: the launcher may write the process's own output to the same file.
        self._file = start.paths.log.open("a", buffering=1, encoding="utf-8", errors="backslashreplace")
        attempt = f", attempt {start.record.attempt}" if start.record.attempt > 1 else ""
        now = datetime.datetime.now(datetime.UTC).isoformat()  # of this attempt; the record has the first one's
        self._write(f"{now}  begins on {start.device}{attempt}")
        return ()

    def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
        self._write(epoch_line(record, self._planned))
        return ()

    def end(self, record: RunRecord) -> None:
        for note in (*record.notes, *describe_attempts(record)):
            self._write(f"note: {note}")
        self._write(f"{record.ended_at}  {end_line(record)}")
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: str) -> None:
        assert self._file is not None
        with explain_disk_full(Path(self._file.name)):
            self._file.write(line + "\n")


def end_line(record: RunRecord) -> str:
    """A run's end as people read it."""
    reason = f" ({record.reason})" if record.reason else ""
    return f"{record.status}{reason}" + (f": {record.message}" if record.message else "")
