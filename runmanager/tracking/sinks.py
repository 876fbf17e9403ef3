"""Sinks for metrics: their protocol, and the sinks for the console, the run's log and memory."""

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO, runtime_checkable

import numpy as np
import torch

from runmanager.records.files.file_errors import explain_disk_full
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.standard_streams import show_line
from runmanager.records.run.environment_changes import describe_attempts
from runmanager.records.run.measurement import METRICS
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.tracking.epoch_metrics.evaluation import Evaluation
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses
from runmanager.tracking.introspect.call_recorder import NetworkCall

_FIXED_POINT_LIMIT = 1e12  # larger values are shown in exponential notation
_MAX_LOGGED = 6  # logged metrics in an epoch's line


@dataclass(frozen=True)
class RunStart:
    """What a sink gets when a run begins or is resumed.

    `network` is None in a run that was given none. `first_batch` is one batch on the host, or None if none is
    available.
    """

    record: RunRecord
    paths: RunPaths
    network: torch.nn.Module | None
    device: torch.device
    first_batch: Any | None = None


@dataclass(frozen=True)
class EpochDetails:
    """What a sink gets in addition to an epoch's record: network, learning rate and logged step losses.

    `evaluation` is set if a sink uses scores and the epoch had an evaluation. `points` are values of steps that the
    program logged, by name. `first_step` is set for an interval of steps. `first_call` is the first call
    of the network that was seen in training, with tensors on `meta`.
    """

    network: torch.nn.Module | None
    learning_rate: float | None = None
    step_losses: LoggedLosses = field(default_factory=LoggedLosses)
    evaluation: Evaluation | None = None
    points: Mapping[str, LoggedLosses] = field(default_factory=dict)
    first_step: int | None = None
    first_call: NetworkCall | None = None


class Sink(Protocol):
    """A destination for metrics. `begin` and `epoch` return readable notes on what they could not do."""

    def begin(self, start: RunStart) -> Sequence[str]:
        """Handle a run that begins."""
        ...

    def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
        """Handle a finished epoch; its `tracking_seconds` and `wall_seconds` are not known yet."""
        ...

    def end(self, record: RunRecord) -> None:
        """Handle the end of the run."""
        ...


@runtime_checkable
class ScoreSink(Sink, Protocol):
    """A sink that, if `needs_scores`, gets the scores of evaluated samples in `EpochDetails.evaluation`."""

    needs_scores: bool

    def finish(self, record: EpochRecord, evaluation: Evaluation) -> Sequence[str]:
        """Handle the last evaluated epoch of a run that is about to be recorded as finished; return notes."""
        ...


@runtime_checkable
class MediaSink(Sink, Protocol):
    """A sink that takes what a program logs besides the records of epochs."""

    def points(self, points: Mapping[str, LoggedLosses]) -> None:
        """Handle values of steps that belong to no record, by name."""
        ...

    def image(self, name: str, pixels: np.ndarray[Any, Any], step: int) -> None:
        """Handle a picture, bytes (channels, height, width)."""
        ...

    def text(self, name: str, text: str, step: int) -> None:
        """Handle a text, in Markdown."""
        ...


def score_sinks(sinks: Iterable[Sink]) -> list[ScoreSink]:
    """Return the sinks that need scores; without any, scores are not kept."""
    return [each for each in sinks if isinstance(each, ScoreSink) and each.needs_scores]


@dataclass
class MemorySink:
    """Keeps everything in memory, for tests and notebooks."""

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


def format_epoch(record: EpochRecord, planned: int | None, *, first_step: int | None = None) -> str:
    """Format an epoch, or an interval of steps from `first_step`, as one readable line."""
    of = f"/{planned}" if planned else ""
    parts = [f"epoch {record.epoch}{of}" if first_step is None else f"steps {first_step} to {record.epoch}"]
    for name in METRICS:
        if (value := getattr(record, name)) is not None:
            parts.append(f"{name} {value:.4f}" if abs(value) < _FIXED_POINT_LIMIT else f"{name} {value:.4g}")
    parts += _format_metrics(record.metrics or {})
    if record.epoch_seconds is not None:
        parts.append(f"{record.epoch_seconds:.3g} s")
    if record.samples_per_second is not None:
        parts.append(f"{record.samples_per_second:,.0f} samples/s")
    parts += [f"{rate:,.0f} {unit}/s" for unit, rate in units_per_second(record).items()]
    if record.warmup:
        parts.append("(warm-up)")
    return "  ".join(parts)


def _format_metrics(metrics: Mapping[str, float | None]) -> list[str]:
    shown = list(metrics.items())[:_MAX_LOGGED]
    more = len(metrics) - len(shown)
    lines = [f"{name} not finite" if value is None else f"{name} {value:.4g}" for name, value in shown]
    return [*lines, f"(+{more} metrics)"] if more else lines


def units_per_second(record: EpochRecord) -> dict[str, float]:
    """Return the throughput of each unit that an epoch counted, empty if its training time is not known."""
    seconds = record.epoch_seconds
    if seconds is None or seconds <= 0:
        return {}
    rates = {unit: count / seconds for unit, count in (record.units or {}).items()}
    return {unit: rate for unit, rate in rates.items() if math.isfinite(rate)}


class ConsoleSink:
    """Prints one line per epoch on standard output."""

    def __init__(self) -> None:
        self._planned: int | None = None

    def begin(self, start: RunStart) -> Sequence[str]:
        self._planned = start.record.epochs_planned
        show_line(f"{start.record.name}: on {start.device}")
        return ()

    def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
        show_line("  " + format_epoch(record, self._planned, first_step=details.first_step))
        return ()

    def end(self, record: RunRecord) -> None:
        show_line("  " + format_run_end(record))


class LogSink:
    """Writes the same lines to the run's run.log."""

    def __init__(self) -> None:
        self._file: TextIO | None = None
        self._planned: int | None = None

    def begin(self, start: RunStart) -> Sequence[str]:
        self._planned = start.record.epochs_planned
        # Appended line by line, as the launcher may write the process's output to the same file.
        self._file = start.paths.log.open("a", buffering=1, encoding="utf-8", errors="backslashreplace")
        attempt = f", attempt {start.record.attempt}" if start.record.attempt > 1 else ""
        now = datetime.datetime.now(datetime.UTC).isoformat()  # of this attempt; the record has that of the first one
        self._write(f"{now}  begins on {start.device}{attempt}")
        return ()

    def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
        self._write(format_epoch(record, self._planned, first_step=details.first_step))
        return ()

    def end(self, record: RunRecord) -> None:
        for note in (*record.notes, *describe_attempts(record)):
            self._write(f"note: {note}")
        self._write(f"{record.ended_at}  {format_run_end(record)}")
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: str) -> None:
        assert self._file is not None
        with explain_disk_full(Path(self._file.name)):
            self._file.write(line + "\n")


def format_run_end(record: RunRecord) -> str:
    """Format the end of a run as one readable line."""
    reason = f" ({record.reason})" if record.reason else ""
    return f"{record.status}{reason}" + (f": {record.message}" if record.message else "")
