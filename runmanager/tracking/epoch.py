"""One epoch while it is running: batches timed and moved, losses and predictions added up on the device."""

import operator
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Unpack

import msgspec
import torch

from runmanager.errors import UsageError
from runmanager.records.run.record import PHASES, EpochRecord
from runmanager.tracking.device.prefetch import arrived
from runmanager.tracking.environment.heartbeat_writer import Heartbeat
from runmanager.tracking.metrics.epoch_meter import Averages, EpochMeter
from runmanager.tracking.metrics.evaluation import Evaluation
from runmanager.tracking.metrics.loss_buffer import LoggedLosses
from runmanager.tracking.metrics.prediction_task import IGNORED, Said, Task
from runmanager.tracking.timing.phases import Division, Part, Phases
from runmanager.tracking.timing.timer import TRAINING, PhaseTimer

__all__ = ["Epoch", "with_walls", "without_walls"]

_END = object()


class Epoch:
    """One epoch of a run: hands out batches, timed and on the device, and adds up what is tracked.

    With `is_all_training` all of its time is training but for what is marked or evaluated; else training ends with the
    last step.

    It belongs to the thread that begins it. Tracking, taking batches, marking and ending it raise `UsageError` in any
    other thread, in a fork, and once it has ended; so does tracking a step of training within an evaluation.
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
        is_all_training: bool = False,
    ) -> None:
        self.number = number
        self.num_steps = steps_before
        self.first_batch_seconds: float | None = None  # from asking the first loader to its first batch
        self._process = os.getpid()
        self._thread: int | None = threading.get_ident()
        self._timer = timer
        self._device = device
        self._when_first_batch = when_first_batch
        self._heartbeat = heartbeat or Heartbeat()
        self._train, self._eval = EpochMeter(log_every=log_every, steps_before=steps_before), EpochMeter()
        self.division: Division | None = None  # of its time, once it is closed
        self._phases = Phases(timer, otherwise="eval" if number == 0 else TRAINING if is_all_training else None)
        self._sees_training = self._is_evaluated = False
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
        if os.getpid() != self._process:
            raise UsageError(
                f"{call}() must be called by process {self._process}, which began epoch {self.number}, got its fork "
                f"{os.getpid()}; begin a run of its own there."
            )
        if threading.get_ident() != self._thread:
            raise UsageError(
                f"{call}() must be called by the thread that began epoch {self.number}, got another one; "
                "give each thread a run of its own."
            )

    def _refuse_no_step(self, call: str) -> None:
        self._refuse_misuse(call)
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
        """The loader's batches on the run's device; waiting, moving and what the loop does with each are timed."""
        self._refuse_misuse("batches")
        if self._phases.is_evaluation:
            yield from self.eval_batches(loader)
            return
        self._sees_training = True
        self._open_loops += 1
        phases, mark, heartbeat = self._phases, self._timer.mark, self._heartbeat
        step = Part(phases, TRAINING)
        with Part(phases, "data"):
            asked_at = time.perf_counter()
            iterator = iter(loader)
            while not phases.is_over:
                batch = next(iterator, _END)
                if self.first_batch_seconds is None:  # before the mark: it is a part of the phase
                    self.first_batch_seconds = time.perf_counter() - asked_at
                if batch is _END:
                    self._open_loops -= 1
                    return
                mark("data")
                self.show_first_batch(batch)
                moved = arrived(batch, self._device)
                mark("transfer")
                heartbeat.progress += 1
                phases.open.append(step)
                try:
                    yield moved
                finally:
                    phases.take_back(step)
        self._refuse_misuse("batches")  # as it has ended meanwhile

    @property
    def is_whole(self) -> bool:
        """Whether it has handed out training batches, and every loop over its batches has come to its end."""
        return self._sees_training and self._open_loops == 0

    def show_first_batch(self, batch: Any) -> None:
        """Let the sinks see the first batch of a loader that could not be looked into before."""
        if self._when_first_batch is not None:
            show, self._when_first_batch = self._when_first_batch, None
            with self.phase("tracking"):
                show(batch)

    def eval_batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches on the run's device; all the time they take counts as evaluation."""
        self._refuse_misuse("eval_batches")
        self._open_loops += 1
        if self._evaluation is not None:
            self._evaluation.takes_from(loader)
        with (part := Part(self._phases, "eval")):
            for batch in loader:
                self._heartbeat.progress += 1
                yield arrived(batch, self._device)
                self._phases.resume(part)
            self._open_loops -= 1

    def phase(self, name: str) -> AbstractContextManager[None]:
        """A `with` block whose time goes to `name`: data, transfer, compute, eval or tracking.

        Of blocks in one another each has its own time, but parts of training within an evaluation are evaluation.
        Nothing waits for the device. Raises `UsageError` for a phase that there is not.
        """
        self._refuse_misuse("phase")
        if name not in PHASES:
            raise UsageError(f"A phase must be {', '.join(PHASES[:-1])} or {PHASES[-1]}, got {name!r}.")
        return self._phases.marked(name)

    def evaluating(self) -> AbstractContextManager[None]:
        """A `with` block whose time is evaluation."""
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

        `loss` is the step's mean, a scalar. Without labels say how many `samples` the step had. `preds` are logits, and
        give the accuracy over all labels but those that are `ignore_index`: by `task` "multiclass" scores
        (batch, classes, …) beside labels (batch, …), with the classes in dimension `class_dim` (1 unless given);
        "binary" logits (batch, …), a yes where above 0; "multilabel" the same (batch, labels, …), each by itself.
        Without `task` they are multiclass, if that is clear; else it raises `UsageError`.
        """
        self._refuse_no_step("track")
        count = _count(preds, labels, samples)
        if preds is not None and labels is not None:
            self._train.add_predictions(preds, labels, task, class_dim, ignore_index, samples=count)
        self._count_step(loss, count)

    def track_loss(self, loss: torch.Tensor | float, samples: int) -> None:
        """Count one training step's mean loss over `samples` samples."""
        self._refuse_no_step("track_loss")
        self._count_step(loss, _whole(samples))

    def _count_step(self, loss: torch.Tensor | float, samples: int) -> None:
        self._train.add_loss(loss, samples)
        self._phases.trained()
        self.num_steps += 1
        self._heartbeat.progress += 1  # where somebody takes the batches by hand, this is all there is

    def track_predictions(self, preds: torch.Tensor, labels: torch.Tensor, **said: Unpack[Said]) -> None:
        """Count the right ones among a training step's predictions, as `track` does."""
        self._refuse_no_step("track_predictions")
        self._train.add_predictions(preds, labels, **said, samples=_count(preds, labels, None))

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
        self._refuse_misuse("track_eval")
        count = _count(preds, labels, samples)
        self._is_evaluated = True
        self._eval.add_loss(loss, count)
        if preds is not None and labels is not None:
            self._eval.add_predictions(preds, labels, task, class_dim, ignore_index, samples=count)
            if self._evaluation is not None:
                self._evaluation.add(preds, labels, self._eval.reading)
        self._phases.evaluated()

    def close(self) -> tuple[EpochRecord, LoggedLosses]:
        """Stop the clock and bring everything home, waiting for the device once.

        Without an evaluation there are no `eval_seconds`. What is neither tracked nor marked after the last training
        step is in no phase. The record lacks what comes after (`wall_seconds`, sinks and checkpoint in
        `tracking_seconds`) and what only the run knows (`warmup`, `run_seconds`). With it come the losses of the steps
        that were to be logged.
        """
        self._refuse_misuse("end_epoch")
        self._thread = None
        self.division = self._phases.resolve()
        train, evaluated = self._train.averages(), self._eval.averages()
        record = _record(self.number, train, evaluated, self.division.seconds, seen=self._sees_training)
        return record, self._train.logged_losses()


def _count(preds: torch.Tensor | None, labels: torch.Tensor | None, samples: int | None) -> int:
    if preds is not None and labels is None:
        raise UsageError("Tracked predictions must come with their labels, got none; pass both or leave both out.")
    if preds is not None and not (isinstance(preds, torch.Tensor) and isinstance(labels, torch.Tensor)):
        raise UsageError(
            f"Predictions and labels must be tensors, got {type(preds).__name__} and {type(labels).__name__}; use "
            "torch.as_tensor(…)."
        )
    if samples is not None:
        return _whole(samples)
    if labels is None or not labels.ndim:
        got = "neither labels nor samples=…" if labels is None else "labels of no dimension; pass samples=…"
        raise UsageError(f"A tracked step must say how many samples it had, got {got}")
    return int(labels.shape[0])


def _whole(samples: Any) -> int:
    """The number, if it is one: of a tensor it would have to be waited for."""
    is_whole = hasattr(samples, "__index__") and not isinstance(samples, bool | torch.Tensor)
    if not is_whole or samples < 0:
        raise UsageError(
            f"`samples` must be a whole number of at least 0, got {samples!r}; pass int(…) of what is one, as a tensor."
        )
    return operator.index(samples)


def _record(
    number: int, train: Averages, evaluated: Averages, seconds: Mapping[str, float], *, seen: bool
) -> EpochRecord:
    data, transfer, compute = (seconds.get(name, 0.0 if seen else None) for name in ("data", "transfer", "compute"))
    rest = seconds.get(TRAINING, 0.0)
    epoch_seconds = sum((data or 0.0, transfer or 0.0, compute or 0.0, rest))
    if data is not None:  # the loop is seen: what it does besides is what `batches` would call computing
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
