"""A running epoch: times batches, moves them to the device, and sums up losses and predictions there."""

import operator
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Unpack

import torch

from runmanager.errors import UsageError
from runmanager.records.run.run_record import PHASES, EpochRecord
from runmanager.tracking.device.prefetch import batch_on_device
from runmanager.tracking.epoch_metrics.epoch_meter import Averages, EpochMeter
from runmanager.tracking.epoch_metrics.evaluation import Evaluation
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses
from runmanager.tracking.epoch_metrics.prediction_task import IGNORED, PredictionOptions, Task
from runmanager.tracking.monitoring.heartbeat_writer import Heartbeat
from runmanager.tracking.timing.phases import PhaseTimes, PhaseTracker, Span
from runmanager.tracking.timing.timer import TRAINING, PhaseTimer

__all__ = ["Epoch"]

_END = object()


class Epoch:
    """One epoch of a run: yields batches, timed and on the device, and sums up what is tracked.

    With `is_all_training` all of its time is training except what is marked or evaluated; otherwise training ends with
    the last step.

    An epoch belongs to the thread that begins it. Tracking, taking batches, marking and ending it raise `UsageError` in
    any other thread, in a fork, and once it has ended; so does tracking a training step within an evaluation.
    """

    def __init__(
        self,
        number: int,
        *,
        timer: PhaseTimer,
        device: torch.device,
        log_every: int = 0,
        steps_before: int = 0,
        on_first_batch: Callable[[Any], None] | None = None,
        heartbeat: Heartbeat | None = None,
        keep_scores: bool = False,
        is_all_training: bool = False,
    ) -> None:
        self.number = number
        self.num_steps = steps_before
        self.first_batch_seconds: float | None = None  # from requesting the first loader's first batch to getting it
        self._process = os.getpid()
        self._thread: int | None = threading.get_ident()
        self._timer = timer
        self._device = device
        self._on_first_batch = on_first_batch
        self._heartbeat = heartbeat or Heartbeat()
        self._train, self._eval = EpochMeter(log_every=log_every, steps_before=steps_before), EpochMeter()
        self.phase_times: PhaseTimes | None = None  # once it is closed
        self._phases = PhaseTracker(
            timer, default_phase="eval" if number == 0 else TRAINING if is_all_training else None
        )
        self._sees_training = self._is_evaluated = False
        self._open_loops = 0
        self._evaluation = Evaluation() if keep_scores else None

    @property
    def evaluation(self) -> Evaluation | None:
        """The scores of the evaluated samples; None without an evaluation, or if they are not kept."""
        return self._evaluation if self._is_evaluated else None

    def _check_owner(self, call: str) -> None:
        if self._thread is None:
            raise UsageError(f"{call}() must come before its epoch's end, got epoch {self.number}, which has ended.")
        if os.getpid() != self._process:
            raise UsageError(
                f"{call}() must be called by process {self._process}, which began epoch {self.number}, got its fork "
                f"{os.getpid()}; begin a separate run there."
            )
        if threading.get_ident() != self._thread:
            raise UsageError(
                f"{call}() must be called by the thread that began epoch {self.number}, got another one; "
                "give each thread its own run."
            )

    def _check_training_step(self, call: str) -> None:
        self._check_owner(call)
        if self.number == 0:
            raise UsageError(
                f"{call}() must count a step of training, got epoch 0, which is the evaluation before training; "
                "count epochs from 1, or call track_eval() there."
            )
        if self._phases.is_in_evaluation:
            raise UsageError(
                f"{call}() must come outside of an evaluation, got a call within `evaluating` or `eval_batches`; call "
                "track_eval() there, or end the evaluation first."
            )

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the loader's batches on the run's device; times waiting, moving and what the loop does with each."""
        self._check_owner("batches")
        if self._phases.is_marked_evaluation:
            yield from self.eval_batches(loader)
            return
        self._sees_training = True
        self._open_loops += 1
        phases, mark, heartbeat = self._phases, self._timer.mark, self._heartbeat
        step = Span(phases, TRAINING)
        with Span(phases, "data"):
            requested_at = time.perf_counter()
            iterator = iter(loader)
            while not phases.is_over:
                batch = next(iterator, _END)
                if self.first_batch_seconds is None:  # before the mark, as it is part of the phase
                    self.first_batch_seconds = time.perf_counter() - requested_at
                if batch is _END:
                    self._open_loops -= 1
                    return
                mark("data")
                self.show_first_batch(batch)
                moved = batch_on_device(batch, self._device)
                mark("transfer")
                heartbeat.progress += 1
                phases.open.append(step)
                try:
                    yield moved
                finally:
                    phases.end_step(step)
        self._check_owner("batches")  # it has ended meanwhile

    @property
    def is_whole(self) -> bool:
        """Whether it has yielded training batches and every loop over its batches is complete."""
        return self._sees_training and self._open_loops == 0

    def show_first_batch(self, batch: Any) -> None:
        """Pass on the first batch of a loader from which none could be taken before; later calls do nothing."""
        if self._on_first_batch is not None:
            show, self._on_first_batch = self._on_first_batch, None
            with self.phase("tracking"):
                show(batch)

    def eval_batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the loader's batches on the run's device; all the time they take counts as evaluation."""
        self._check_owner("eval_batches")
        self._open_loops += 1
        if self._evaluation is not None:
            self._evaluation.add_loader(loader)
        with (span := Span(self._phases, "eval")):
            for batch in loader:
                self._heartbeat.progress += 1
                yield batch_on_device(batch, self._device)
                self._phases.resume(span)
            self._open_loops -= 1

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Return a `with` block whose time goes to `name`: data, transfer, compute, eval or tracking.

        Nested blocks have their own times, but parts of training within an evaluation are evaluation.
        Nothing waits for the device. Raises `UsageError` for an unknown phase.
        """
        self._check_owner("phase")
        if name not in PHASES:
            raise UsageError(f"A phase must be {', '.join(PHASES[:-1])} or {PHASES[-1]}, got {name!r}.")
        return self._phases.marked(name)

    def evaluating(self) -> AbstractContextManager[None]:
        """Return a `with` block whose time counts as evaluation."""
        return self.phase("eval")

    def track(
        self,
        loss: torch.Tensor | float,
        preds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        *,
        samples: int | None = None,
        task: Task | None = None,
        class_dim: int | None = None,
        ignore_index: int = IGNORED,
    ) -> None:
        """Count one training step; nothing waits for the device.

        `loss` is the step's mean, a scalar. Without labels, pass the number of `samples`. `preds` are logits, which
        give the accuracy over all labels other than `ignore_index`. The shapes depend on `task`: "multiclass" scores
        (batch, classes, …) for labels (batch, …), with the classes in dimension `class_dim` (default 1); "binary"
        logits (batch, …), positive above 0; "multilabel" logits (batch, labels, …), each positive above 0.
        Without `task` the predictions are multiclass; raises `UsageError` if the shapes leave that open.
        """
        self._check_training_step("track")
        count = _num_samples(preds, labels, samples)
        if preds is not None and labels is not None:
            self._train.add_predictions(preds, labels, task, class_dim, ignore_index, samples=count)
        self._count_step(loss, count)

    def track_loss(self, loss: torch.Tensor | float, samples: int) -> None:
        """Count one training step's mean loss over `samples` samples."""
        self._check_training_step("track_loss")
        self._count_step(loss, _whole_number(samples))

    def _count_step(self, loss: torch.Tensor | float, samples: int) -> None:
        self._train.add_loss(loss, samples)
        self._phases.step_tracked()
        self.num_steps += 1
        self._heartbeat.progress += 1  # the only progress in a loop that does not use `batches`

    def track_predictions(
        self, preds: torch.Tensor, labels: torch.Tensor, **options: Unpack[PredictionOptions]
    ) -> None:
        """Count the correct predictions of a training step, as `track` does."""
        self._check_training_step("track_predictions")
        self._train.add_predictions(preds, labels, **options, samples=_num_samples(preds, labels, None))

    def track_eval(
        self,
        loss: torch.Tensor | float,
        preds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        *,
        samples: int | None = None,
        task: Task | None = None,
        class_dim: int | None = None,
        ignore_index: int = IGNORED,
    ) -> None:
        """Count one evaluated batch, as `track` does for training."""
        self._check_owner("track_eval")
        count = _num_samples(preds, labels, samples)
        self._is_evaluated = True
        self._eval.add_loss(loss, count)
        if preds is not None and labels is not None:
            self._eval.add_predictions(preds, labels, task, class_dim, ignore_index, samples=count)
            if self._evaluation is not None:
                self._evaluation.add(preds, labels, self._eval.prediction_format)
        self._phases.evaluation_tracked()

    def close(self) -> tuple[EpochRecord, LoggedLosses]:
        """Stop the clock; return the epoch's record and logged step losses. Waits for the device once.

        Without an evaluation `eval_seconds` is None. Time after the last training step that is neither tracked nor
        marked is in no phase. The record lacks what follows (`wall_seconds`, sinks and checkpoint in
        `tracking_seconds`) and what only the run knows (`warmup`, `run_seconds`).
        """
        self._check_owner("end_epoch")
        self._thread = None
        self.phase_times = self._phases.resolve()
        train, evaluated = self._train.averages(), self._eval.averages()
        record = _record(self.number, train, evaluated, self.phase_times.seconds, seen=self._sees_training)
        return record, self._train.logged_losses()


def _num_samples(preds: torch.Tensor | None, labels: torch.Tensor | None, samples: int | None) -> int:
    if preds is not None and labels is None:
        raise UsageError("Tracked predictions must come with their labels, got none; pass both or leave both out.")
    if preds is not None and not (isinstance(preds, torch.Tensor) and isinstance(labels, torch.Tensor)):
        raise UsageError(
            f"Predictions and labels must be tensors, got {type(preds).__name__} and {type(labels).__name__}; use "
            "torch.as_tensor(…)."
        )
    if samples is not None:
        return _whole_number(samples)
    if labels is None or not labels.ndim:
        got = "neither labels nor samples=…" if labels is None else "labels of no dimension; pass samples=…"
        raise UsageError(f"A tracked step must come with its number of samples, got {got}")
    return int(labels.shape[0])


def _whole_number(samples: Any) -> int:
    """Return the number; tensors are rejected, as reading one would wait for the device."""
    is_whole = hasattr(samples, "__index__") and not isinstance(samples, bool | torch.Tensor)
    if not is_whole or samples < 0:
        raise UsageError(f"`samples` must be a whole number of at least 0, got {samples!r}; pass int(…) of a tensor.")
    return operator.index(samples)


def _record(
    number: int, train: Averages, evaluated: Averages, seconds: Mapping[str, float], *, seen: bool
) -> EpochRecord:
    data, transfer, compute = (seconds.get(name, 0.0 if seen else None) for name in ("data", "transfer", "compute"))
    rest = seconds.get(TRAINING, 0.0)
    epoch_seconds = sum((data or 0.0, transfer or 0.0, compute or 0.0, rest))
    if data is not None:  # with `batches`, the rest of the training time is computing
        compute = (compute or 0.0) + rest
    return EpochRecord(
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
