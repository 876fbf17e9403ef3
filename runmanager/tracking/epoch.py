"""One epoch while it is running: batches timed and moved, losses and predictions added up on the device."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import torch

from runmanager.errors import UsageError
from runmanager.records.run import EpochRecord
from runmanager.tracking.heartbeat import Heartbeat
from runmanager.tracking.losses import LoggedLosses
from runmanager.tracking.meter import Averages, Meter
from runmanager.tracking.prefetch import arrived
from runmanager.tracking.scores import Evaluation
from runmanager.tracking.timer import PhaseTimer

__all__ = ["Epoch", "with_walls", "without_walls"]

_END = object()


class Epoch:
    """One epoch of a run: hands out batches, timed and on the device, and adds up what is tracked.

    It belongs to the thread that begins it. Tracking, taking batches and ending it raise `UsageError` in any other
    thread, and once it has ended.
    """

    def __init__(
        self,
        number: int,
        *,
        timer: PhaseTimer,
        device: torch.device,
        log_every: int = 0,
        steps_before: int = 0,
        when_first_batch: Callable[[Any], None] | None = None,
        heartbeat: Heartbeat | None = None,
        keep_scores: bool = False,
    ) -> None:
        self.number = number
        self.num_steps = steps_before
        self.first_batch_seconds: float | None = None  # from asking the first loader to its first batch
        self._thread: int | None = threading.get_ident()
        self._timer = timer
        self._device = device
        self._when_first_batch = when_first_batch
        self._heartbeat = heartbeat or Heartbeat()
        self._train, self._eval = Meter(log_every=log_every, steps_before=steps_before), Meter()
        self._sees_training = self._sees_eval = self._is_evaluated = False
        self._open_loops = 0
        self._evaluation = Evaluation() if keep_scores else None

    @property
    def timer(self) -> PhaseTimer:
        """The clock of its phases."""
        return self._timer

    @property
    def evaluation(self) -> Evaluation | None:
        """What was said of the evaluated samples, where that was to be kept; None without an evaluation."""
        return self._evaluation if self._is_evaluated else None

    def _refuse_misuse(self, call: str) -> None:
        if self._thread is None:
            raise UsageError(f"{call}() must come before its epoch's end, got epoch {self.number}, which has ended.")
        if threading.get_ident() != self._thread:
            raise UsageError(
                f"{call}() must be called by the thread that began epoch {self.number}, got another one; "
                "give each thread a run of its own."
            )

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches on the run's device; waiting, moving and what the loop does with each are timed."""
        self._refuse_misuse("batches")
        self._sees_training = True
        self._open_loops += 1
        mark, heartbeat = self._timer.mark, self._heartbeat
        asked_at = time.perf_counter()
        iterator = iter(loader)
        while True:
            batch = next(iterator, _END)
            if self.first_batch_seconds is None:  # before the mark: it is a part of the phase
                self.first_batch_seconds = time.perf_counter() - asked_at
            mark("data")
            if batch is _END:
                self._open_loops -= 1
                return
            self.show_first_batch(batch)
            moved = arrived(batch, self._device)
            mark("transfer")
            heartbeat.progress += 1
            try:
                yield moved
            finally:
                mark("compute")

    @property
    def is_whole(self) -> bool:
        """Whether it has handed out training batches, and every loop over its batches has come to its end."""
        return self._sees_training and self._open_loops == 0

    def show_first_batch(self, batch: Any) -> None:
        """Let the sinks see the first batch of a loader that could not be looked into before."""
        if self._when_first_batch is not None:
            show, self._when_first_batch = self._when_first_batch, None
            if not self._sees_training:
                self._timer.mark("epoch")  # a batch that somebody took by hand: it was waited for before it was shown
            show(batch)
            self._timer.mark("tracking")

    def eval_batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches on the run's device; all the time they take counts as evaluation."""
        self._refuse_misuse("eval_batches")
        # Where somebody took the training batches by hand, all that came before is training.
        self._timer.mark("eval" if self._sees_training or self._sees_eval or self.number == 0 else "epoch")
        self._sees_eval = True
        self._open_loops += 1
        if self._evaluation is not None:
            self._evaluation.takes_from(loader)
        for batch in loader:
            self._heartbeat.progress += 1
            yield arrived(batch, self._device)
        self._open_loops -= 1
        self._timer.mark("eval")

    def track(
        self,
        loss: torch.Tensor | float,
        preds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        *,
        samples: int | None = None,
    ) -> None:
        """Count one training step; nothing waits for the device.

        `loss` is the step's mean, a scalar. `preds` (batch, classes) and `labels` (batch,) give the accuracy; without
        labels say how many `samples` the step had.
        """
        self.track_loss(loss, _count(preds, labels, samples))
        if preds is not None and labels is not None:
            self._train.add_predictions(preds, labels)

    def track_loss(self, loss: torch.Tensor | float, samples: int) -> None:
        """Count one training step's mean loss over `samples` samples."""
        self._refuse_misuse("track")
        self._train.add_loss(loss, samples)
        self.num_steps += 1
        self._heartbeat.progress += 1  # where somebody takes the batches by hand, this is all there is

    def track_predictions(self, preds: torch.Tensor, labels: torch.Tensor) -> None:
        """Count the correct ones among a training step's predictions."""
        self._refuse_misuse("track")
        self._train.add_predictions(preds, labels)

    def track_eval(
        self,
        loss: torch.Tensor | float,
        preds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        *,
        samples: int | None = None,
    ) -> None:
        """Count one evaluated batch, as `track` does for training."""
        self._refuse_misuse("track_eval")
        self._is_evaluated = True
        self._eval.add_loss(loss, _count(preds, labels, samples))
        if preds is not None and labels is not None:
            self._eval.add_predictions(preds, labels)
            if self._evaluation is not None:
                self._evaluation.add(preds, labels)

    def _last_phase(self) -> str:
        """Whose time it is since the last mark, at the epoch's end."""
        if self._sees_eval or self.number == 0:
            return "eval"
        if not self._sees_training:
            return "epoch"  # nobody handed out batches: the whole time is training
        # What follows the training batches is evaluation where one was tracked; else it is what the loop does besides.
        return "eval" if self._is_evaluated else "tracking"

    def close(self) -> tuple[EpochRecord, LoggedLosses]:
        """Stop the clock and bring everything home, waiting for the device once.

        Without an evaluation there are no `eval_seconds`: what follows the last training batch then counts as tracking.
        The record lacks what comes after (`wall_seconds`, sinks and checkpoint in `tracking_seconds`) and what only
        the run knows (`warmup`, `run_seconds`). With it come the losses of the steps that were to be logged.
        """
        self._refuse_misuse("end_epoch")
        self._thread = None
        self._timer.mark(self._last_phase())
        seconds = self._timer.resolve()
        train, evaluated = self._train.averages(), self._eval.averages()
        record = _record(self.number, train, evaluated, seconds, seen=self._sees_training)
        return record, self._train.logged_losses()


def _count(preds: torch.Tensor | None, labels: torch.Tensor | None, samples: int | None) -> int:
    if preds is not None and labels is None:
        raise UsageError("Tracked predictions must come with their labels, got none; pass both or leave both out.")
    if samples is not None:
        return samples
    if labels is None:
        raise UsageError("A tracked step must say how many samples it had, got neither labels nor samples=…")
    return int(labels.shape[0])


def _record(number: int, train: Averages, evaluated: Averages, seconds: dict[str, float], *, seen: bool) -> EpochRecord:
    training: tuple[float | None, ...] = (None, None, None)
    evaluation = seconds.get("eval")
    if number == 0:
        epoch_seconds = None
    elif seen:
        parts = [seconds.get(name, 0.0) for name in ("data", "transfer", "compute")]
        training, epoch_seconds = tuple(parts), sum(parts)
    else:
        epoch_seconds = seconds.get("epoch", 0.0)
    return EpochRecord(
        epoch=number,
        loss=train.loss,
        accuracy=train.accuracy,
        val_loss=evaluated.loss,
        val_accuracy=evaluated.accuracy,
        epoch_seconds=epoch_seconds,
        samples=train.samples,
        data_seconds=training[0],
        transfer_seconds=training[1],
        compute_seconds=training[2],
        eval_seconds=evaluation,
        tracking_seconds=seconds.get("tracking", 0.0),
    )


def with_walls(record: EpochRecord, *, begun_at: float, ended_at: float, run_seconds: float) -> EpochRecord:
    """The record as of now: all since the last phase ended is tracking; moments are `time.perf_counter`'s."""
    now = time.perf_counter()
    return msgspec.structs.replace(
        record,
        tracking_seconds=(record.tracking_seconds or 0.0) + now - ended_at,
        wall_seconds=now - begun_at,
        run_seconds=run_seconds,
    )


def without_walls(record: EpochRecord) -> EpochRecord:
    """The record for the sinks, whose own time is not over yet."""
    return msgspec.structs.replace(record, tracking_seconds=None, wall_seconds=None)
