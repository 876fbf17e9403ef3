"""Loss and accuracy of an epoch: summed and buffered on the device, and transferred to the host once.

The record of a closed epoch, of its parts too, is made of these means, its times and what the program logged.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from runmanager.records.run.measurement import LOSSES, METRICS
from runmanager.records.run.run_record import TRAINING_PHASES, EpochRecord
from runmanager.text import error_line
from runmanager.tracking.epoch_metrics.epoch_totals import EpochTotals, MeterTotals
from runmanager.tracking.epoch_metrics.logged_metrics import EpochMetrics
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses, LossBuffer, zeros
from runmanager.tracking.epoch_metrics.prediction_task import (
    IGNORED,
    PredictionFormat,
    Task,
    comparable,
    resolve_format,
)
from runmanager.tracking.epoch_part import EpochPart, MeterState
from runmanager.tracking.timing.timer import TRAINING

_CAPACITY = (1 << 15) - 1
"""Of a buffer, in marks of one byte or in scores; these fit into a core's cache.

With one element more PyTorch divides the work among several CPU threads, which on a busy machine wait for each other
several times as long as the work takes.
"""
_MAX_BATCHES = 128  # whose scores are buffered: more would save nothing, and take long to allocate


class CorrectCounter:
    """Counts predictions that equal their labels.

    A step costs two operations on the device; only `total` waits for it. The scores of small batches are copied, and
    compared many steps at a time: a training step evicts from the caches what is used between two steps, so comparing
    then takes several times as long. The buffer for them is made once two successive batches have the same kind, as
    batches that vary in size would each need another one.
    """

    def __init__(self) -> None:
        self.num_samples = 0
        self.uncompared = ""  # why some predictions could not be compared, and none counts
        self.prediction_format = PredictionFormat(1, None)  # of the last batch
        self._num_labels = self._correct_before = 0
        self._kind: tuple[object, ...] = ()  # of the last batch, and of those in `_batches`
        self._batches: _BatchBuffer | None = None
        self._correct, self._ignored = _EqualCounter(), _EqualCounter()

    def add(
        self,
        preds: torch.Tensor,
        labels: torch.Tensor,
        task: Task | None = None,
        class_dim: int | None = None,
        ignore_index: int = IGNORED,
        samples: int | None = None,
    ) -> None:
        """Count predictions in the format that `resolve_format` finds, which raises if it is ambiguous.

        They count for `samples` samples, by default the number of rows of labels.
        """
        try:
            preds, labels = comparable(preds, labels)
        except Exception as error:  # tensors of many kinds cannot be compared; the run must not end by that
            self.uncompared = self.uncompared or error_line(error)
            self.num_samples += samples or 0
            return
        options = task, class_dim, ignore_index  # mostly left out
        kind = (preds.shape, labels.shape, preds.dtype, labels.dtype, preds.device, labels.device, options)
        if kind != self._kind:
            found = resolve_format(preds, labels, task=task, class_dim=class_dim, ignore_index=ignore_index)
            self._compare_buffered()
            self._kind, self._batches, self.prediction_format = kind, None, found
        elif self._batches is None and 0 < preds.numel() <= _CAPACITY // 2:
            self._batches = _BatchBuffer(preds, labels)
        if self._batches is None:
            self._compare(preds, labels)
        elif self._batches.add(preds, labels):
            self._compare_buffered()
        self._num_labels += labels.numel()
        self.num_samples += len(labels) if samples is None else samples

    def total(self) -> tuple[int, int]:
        """Return the numbers of correct predictions and of labels that count, 0 if some could not be compared.

        Waits for the device.
        """
        if self.uncompared:
            return 0, 0
        self._compare_buffered()
        return self._correct_before + self._correct.total(), self._num_labels - self._ignored.total()

    def restore(self, *, num_samples: int, correct: int, counted: int, uncompared: str) -> None:
        """Continue a new counter from these numbers, `correct` and `counted` as `total` returned them."""
        self.uncompared = uncompared
        self.num_samples, self._correct_before, self._num_labels = num_samples, correct, counted

    def _compare_buffered(self) -> None:
        if self._batches is not None:
            self._compare(*self._batches.take())

    def _compare(self, preds: torch.Tensor, labels: torch.Tensor) -> None:
        """Count which predictions are correct, and which labels are ignored."""
        class_dim, ignored = self.prediction_format.class_dim, self.prediction_format.ignored
        labels = labels.reshape(-1)
        if class_dim is None:
            chosen, labelled = (preds > 0).reshape(-1), labels > 0.5
        else:
            chosen, labelled = preds.argmax(dim=class_dim).reshape(-1), labels
        # Neither has a gradient, so nothing keeps the step's graph alive.
        if ignored is None or (ignored < 0 and class_dim is not None):  # not the number of a class
            self._correct.add(chosen, labelled)
        else:
            self._correct.add((chosen == labelled).logical_and_(labels != ignored), True)
        if ignored is not None:
            self._ignored.add(labels, ignored)


class _EqualCounter:
    """Counts equal values: marks them in a buffer on their device, and sums up one buffer at a time."""

    def __init__(self) -> None:
        self._marks: torch.Tensor | None = None
        self._capacity = self._used = 0
        self._sum: torch.Tensor | None = None

    def add(self, values: torch.Tensor, others: torch.Tensor | int) -> None:
        """Mark which elements are equal; both have the shape (values,)."""
        slot = self._slot(len(values), values.device)
        if slot.device == values.device:
            torch.eq(values, others, out=slot)
        else:
            slot.copy_(values == others)

    def total(self) -> int:
        """Return the number of equal elements; waits for the device."""
        self._empty()
        return 0 if self._sum is None else int(self._sum)

    def _slot(self, count: int, device: torch.device) -> torch.Tensor:
        """Return a free slot of the buffer for `count` marks, on the device of the first ones."""
        if self._used + count > self._capacity:
            self._empty()
        if self._marks is None or count > self._capacity:
            self._capacity = max(_CAPACITY, count)
            device = device if self._marks is None else self._marks.device
            self._marks = zeros(self._capacity, dtype=torch.bool, device=device)
        self._used += count
        return self._marks[self._used - count : self._used]

    def _empty(self) -> None:
        """Add the marks to the sum."""
        if self._used:
            assert self._marks is not None
            if self._sum is None:
                self._sum = zeros(dtype=torch.int64, device=self._marks.device)
            self._sum.add_(self._marks[: self._used].sum())
            self._used = 0


class _BatchBuffer:
    """Copies of the predictions (batch, …) and labels (batch, …) of several steps of one kind."""

    def __init__(self, preds: torch.Tensor, labels: torch.Tensor) -> None:
        capacity = min(_MAX_BATCHES, _CAPACITY // preds.numel())
        self._scores = zeros(capacity, *preds.shape, dtype=preds.dtype, device=preds.device)
        self._labels = zeros(capacity, *labels.shape, dtype=labels.dtype, device=labels.device)
        self._slots = list(zip(self._scores.unbind(), self._labels.unbind(), strict=True))
        self._used = 0

    def add(self, preds: torch.Tensor, labels: torch.Tensor) -> bool:
        """Copy a batch, as the caller may reuse its memory; return whether the buffer is full."""
        scores_slot, labels_slot = self._slots[self._used]
        scores_slot.copy_(preds.detach())
        labels_slot.copy_(labels)
        self._used += 1
        return self._used == len(self._slots)

    def take(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the buffered batches as one large batch, and empty the buffer."""
        used, self._used = self._used, 0
        return self._scores[:used].flatten(0, 1), self._labels[:used].flatten(0, 1)


@dataclass(frozen=True)
class Averages:
    """Means over `samples` samples, the accuracy over the labels that count; None if never tracked."""

    samples: int
    loss: float | None
    accuracy: float | None


class EpochMeter:
    """Sums up an epoch without waiting for the device; only `averages` and `logged_losses` wait for it.

    Also keeps every `log_every`th loss (0: none), counting on from `steps_before`, the run's steps before this epoch.
    """

    def __init__(self, *, log_every: int = 0, steps_before: int = 0) -> None:
        self._losses = LossBuffer(log_every=log_every, steps_before=steps_before)
        self._correct = CorrectCounter()
        self.add_predictions = self._correct.add  # the method itself, which saves a call per step
        self._loss_samples = 0
        self._samples_without_loss = 0
        self.num_uncounted = 0

    @property
    def samples(self) -> int:
        """The number of samples so far; 0 if that of some step is not known."""
        return (
            0 if self.num_uncounted else max(self._loss_samples + self._samples_without_loss, self._correct.num_samples)
        )

    def add_loss(self, loss: torch.Tensor | float | None, samples: int | None) -> None:
        """Add a step's mean loss, a scalar, weighted by its number of samples; either is None if it is not known."""
        if samples is None:
            self.num_uncounted += 1
            samples = 1
        if loss is None:
            self._samples_without_loss += samples
            return
        self._losses.add(loss, samples)
        self._loss_samples += samples

    @property
    def uncompared(self) -> str:
        """Why the accuracy is not known, though there are predictions; empty if it is."""
        return self._correct.uncompared

    @property
    def prediction_format(self) -> PredictionFormat:
        """The format of the last predictions."""
        return self._correct.prediction_format

    def averages(self) -> Averages:
        """Return the means; waits for the device."""
        totals = self.totals()
        return Averages(totals.samples, totals.loss, totals.accuracy)

    def totals(self) -> MeterTotals:
        """Return the sums; waits for the device."""
        total, (correct, counted) = self._losses.total(), self._correct.total()
        return MeterTotals(self.samples, total, self._loss_samples, correct, counted, self.num_uncounted)

    def state(self) -> MeterState:
        """Return the state for a checkpoint; waits for the device, and changes no result."""
        correct, counted = self._correct.total()
        return MeterState(
            self._losses.state(),
            self._loss_samples,
            self._correct.num_samples,
            *(correct, counted, self.num_uncounted, self.uncompared),
        )

    def restore(self, state: MeterState) -> None:
        """Continue a new meter from `state`."""
        self._losses.restore(state.losses)
        self._loss_samples, self.num_uncounted = state.loss_samples, state.num_uncounted
        self._correct.restore(
            num_samples=state.prediction_samples,
            correct=state.num_correct,
            counted=state.num_counted,
            uncompared=state.uncompared,
        )

    def logged_losses(self) -> LoggedLosses:
        """Return the losses kept for logging; waits for the device."""
        return self._losses.logged()


def notes_on(meter: EpochMeter, kind: str = "") -> list[str]:
    """Return lines on what a meter could not count or compare; equal ones for all epochs of a run."""
    notes = []
    if meter.num_uncounted:
        notes.append(
            f"the number of {kind}samples is not known, as some batches do not show theirs: there is no throughput, "
            "and the loss is the mean over steps; samples=… states it where the program tracks its steps itself"
        )
    if meter.uncompared:
        notes.append(f"the accuracy of {kind}predictions is not known: they must be comparable ({meter.uncompared})")
    return notes


class EpochParts:
    """Lets the meters of a new epoch continue after `earlier`, what it has given before a checkpoint within it."""

    def __init__(
        self, earlier: EpochPart | None, *, trained: EpochMeter, evaluated: EpochMeter, metrics: EpochMetrics
    ) -> None:
        self._earlier = earlier
        self._trained = trained
        self._evaluated = evaluated
        self._metrics = metrics
        if earlier is not None:
            trained.restore(earlier.trained)
            evaluated.restore(earlier.evaluated)
            metrics.restore(earlier.metrics, earlier.series, earlier.units)

    @property
    def are_several(self) -> bool:
        """Whether there is an earlier part."""
        return self._earlier is not None

    @property
    def earlier_steps(self) -> int:
        """The number of steps in the earlier part."""
        return self._earlier.num_steps if self._earlier else 0

    @property
    def earlier_seconds(self) -> float:
        """The wall time of the earlier part."""
        return self._earlier.wall_seconds if self._earlier else 0.0

    def total_seconds(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds by phase, with those of the earlier part."""
        before = self._earlier.seconds if self._earlier else {}
        return {name: seconds.get(name, 0.0) + before.get(name, 0.0) for name in {**before, **seconds}}

    def so_far(self, number: int, *, num_steps: int, seconds: Mapping[str, float], begun_at: float) -> EpochPart:
        """Return what the epoch has given so far, for a checkpoint; waits for the device.

        `num_steps` and `seconds` by phase are those since `begun_at` in this process.
        """
        return EpochPart(
            number,
            num_steps=self.earlier_steps + num_steps,
            seconds=self.total_seconds(seconds),
            wall_seconds=self.earlier_seconds + time.perf_counter() - begun_at,
            trained=self._trained.state(),
            evaluated=self._evaluated.state(),
            metrics=self._metrics.state(),
            units=dict(self._metrics.units),
            series=self._metrics.series_state(),
        )

    def drop_partial_metrics(self, is_complete: Callable[[Any], bool]) -> list[str]:
        """Drop and reset logged accumulators that have not seen the earlier part; return their names."""
        return self._metrics.drop_partial(is_complete) if self._earlier else []


def epoch_record(number: int, totals: EpochTotals) -> EpochRecord:
    """Return the record of an epoch that has measured `totals`."""
    train, evaluated, seconds = totals.train, totals.evaluated, totals.seconds
    least = 0.0 if totals.seen else None
    data, transfer, compute = (seconds.get(name, least) for name in TRAINING_PHASES)
    if train.samples and "transfer" not in seconds:
        transfer = None  # the loop does not tell it from `data`
    rest = seconds.get(TRAINING, 0.0)
    epoch_seconds = sum((data or 0.0, transfer or 0.0, compute or 0.0, rest))
    if data is not None:  # with `batches`, the rest of the training time is computing
        compute = (compute or 0.0) + rest
    record = EpochRecord(
        epoch=number,
        loss=train.loss,
        accuracy=train.accuracy,
        val_loss=evaluated.loss,
        val_accuracy=evaluated.accuracy,
        epoch_seconds=epoch_seconds if number else None,
        samples=train.samples,
        data_seconds=data,
        transfer_seconds=transfer,
        compute_seconds=compute,
        eval_seconds=seconds.get("eval"),
        tracking_seconds=seconds.get("tracking", 0.0),
    )
    return _with_metrics(record, totals.values, totals.units)


def _with_metrics(record: EpochRecord, values: Mapping[str, float], units: Mapping[str, int]) -> EpochRecord:
    """Return the record with logged values and units.

    Values with the name of a column fill it, unless the run computed its own. Those that are not finite become None,
    except that of a loss, as it means that the run diverged.
    """
    columns = {name: values[name] for name in METRICS if name in values and getattr(record, name) is None}
    filled = {name: value if name in LOSSES else _finite(value) for name, value in columns.items()}
    metrics = {name: _finite(value) for name, value in values.items() if name not in columns}
    return msgspec.structs.replace(
        record, **filled, metrics=metrics or msgspec.UNSET, units=dict(units) or msgspec.UNSET
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
