"""A running epoch, of one thread: times batches, moves them to the device, and sums up losses and predictions there."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Unpack

import torch

from runmanager.errors import UsageError
from runmanager.records.run.run_record import PHASES, EpochRecord
from runmanager.tracking.device.transfer import batch_on_device
from runmanager.tracking.epoch_metrics.epoch_meter import EpochMeter, EpochParts, epoch_record, notes_on
from runmanager.tracking.epoch_metrics.epoch_totals import EpochTotals, ShareTotals
from runmanager.tracking.epoch_metrics.evaluation import Evaluation
from runmanager.tracking.epoch_metrics.logged_metrics import (
    EpochMetrics,
    checked_numbers,
    checked_units,
    checked_values,
    num_samples,
    require_64_bits,
    whole_number,
)
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses
from runmanager.tracking.epoch_metrics.prediction_task import IGNORED, PredictionOptions, Task
from runmanager.tracking.epoch_metrics.step_values import Reduce
from runmanager.tracking.epoch_part import EpochPart
from runmanager.tracking.monitoring.heartbeat_writer import Heartbeat
from runmanager.tracking.monitoring.loader_workers import worker_start_methods
from runmanager.tracking.options import StepObserver
from runmanager.tracking.timing.phases import DrivenLoop, PhaseTimes, PhaseTracker, Span
from runmanager.tracking.timing.timer import TRAINING, PhaseTimer

_END = object()
_Loss = torch.Tensor | float


class EpochOwner:
    """The process and thread that begin an epoch, which alone may use it; none once it has ended."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._thread: int | None = threading.get_ident()

    @property
    def has_ended(self) -> bool:
        """Whether the epoch has ended."""
        return self._thread is None

    def end(self) -> None:
        """Let nothing use the epoch from now on."""
        self._thread = None

    def check(self, call: str, number: int) -> None:
        """Raise `UsageError` for a call that is not the owner's, in epoch `number`."""
        if self._thread is None:
            raise UsageError(f"{call}() must come before its epoch's end, got epoch {number}, which has ended.")
        if os.getpid() != self._process:
            raise UsageError(
                f"{call}() must be called by process {self._process}, which began epoch {number}, got its fork "
                f"{os.getpid()}; begin a separate run there."
            )
        if threading.get_ident() != self._thread:
            raise UsageError(
                f"{call}() must be called by the thread that began epoch {number}, got another one; "
                "give each thread its own run."
            )


@dataclass(frozen=True)
class EpochContext:
    """What the epochs of a run share: its clock, the device of their batches, and who is told of what they see.

    `share` returns the totals of all ranks, where the run has several.
    """

    timer: PhaseTimer
    device: torch.device | None
    log_every: int = 0
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    on_first_batch: Callable[[Any], None] | None = None
    keep_scores: bool = False
    share: ShareTotals | None = None


class Epoch:
    """One epoch of a run: yields batches, timed and on the device, and sums up what is tracked.

    With `is_all_training` all of its time is training except what is marked or evaluated; otherwise training ends with
    the last step. `earlier` is its part before a checkpoint within it, which this epoch continues; `after_step(epoch,
    loader)` is called between two batches of training where it may be checkpointed.

    An epoch belongs to the thread that begins it. Tracking, taking batches, marking and ending it raise `UsageError` in
    any other thread, in a fork, and once it has ended; so does tracking a training step within an evaluation.
    """

    def __init__(
        self,
        number: int,
        context: EpochContext,
        *,
        steps_before: int = 0,
        is_all_training: bool = False,
        earlier: EpochPart | None = None,
        after_step: Callable[["Epoch", Any], None] | None = None,
    ) -> None:
        self.number = number
        self.first_batch_seconds: float | None = None  # from requesting the first loader's first batch to getting it
        self.worker_start_methods: set[str] = set()  # of the loaders' workers, seen at the first batches
        self._owner = EpochOwner()
        self._timer, self._device = context.timer, context.device
        self._on_first_batch = context.on_first_batch
        self._heartbeat = context.heartbeat
        self._train, self._eval = EpochMeter(log_every=context.log_every, steps_before=steps_before), EpochMeter()
        self.phase_times: PhaseTimes | None = None  # once it is closed
        self.observer: StepObserver | None = None
        self._phases = PhaseTracker(
            context.timer, default_phase="eval" if number == 0 else TRAINING if is_all_training else None
        )
        self._sees_training = self._is_evaluated = False
        self._open_loops = 0
        self._evaluation = Evaluation() if context.keep_scores else None
        self._metrics = EpochMetrics()
        self._after_step = after_step
        self._share = context.share
        self.parts = EpochParts(earlier, trained=self._train, evaluated=self._eval, metrics=self._metrics)
        self.notes: list[str] = []  # on what it cannot tell, once it is closed
        self._first_step = self.num_steps = steps_before + self.parts.earlier_steps

    def part(self) -> EpochPart:
        """Return what the epoch has given so far, for a checkpoint; waits for the device. The epoch continues."""
        steps, seconds = self.num_steps - self._first_step, self._phases.so_far()
        return self.parts.so_far(self.number, num_steps=steps, seconds=seconds, begun_at=self._timer.begun_at)

    @property
    def evaluation(self) -> Evaluation | None:
        """The scores of the evaluated samples; None without an evaluation, or if they are not kept."""
        return self._evaluation if self._is_evaluated else None

    @property
    def step_points(self) -> Mapping[str, LoggedLosses]:
        """The values of steps that `run.log` recorded in the closed epoch, by name."""
        return self._metrics.points

    @property
    def has_ended(self) -> bool:
        """Whether it was closed, though its record may have failed."""
        return self._owner.has_ended

    def is_in_evaluation(self) -> bool:
        """Return whether the current time counts as evaluation."""
        return self._phases.is_in_evaluation

    def _check_owner(self, call: str) -> None:
        self._owner.check(call, self.number)

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
        # A resumed epoch begins with this loop, so what came before it would be done twice.
        is_first = not self._sees_training and self.num_steps == self._first_step and not self._is_evaluated
        after_step = self._after_step if is_first else None
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
                if after_step is not None and not phases.is_over:
                    after_step(self, loader)
        self._check_owner("batches")  # it has ended meanwhile

    def driven_loop(self) -> DrivenLoop:
        """Begin a loop over training batches that a framework runs, which tells of its parts."""
        self._sees_training = True
        self._open_loops += 1
        return DrivenLoop(
            self._phases, self._timer, self._heartbeat, on_step=self._count_step, on_end=self._end_driven_loop
        )

    def _end_driven_loop(self, first_batch_seconds: float | None) -> None:
        self._open_loops -= 1
        self.first_batch_seconds = first_batch_seconds

    @property
    def is_whole(self) -> bool:
        """Whether it has yielded training batches and every loop over its batches is complete."""
        return self._sees_training and self._open_loops == 0

    @property
    def awaits_batch(self) -> bool:
        """Whether `show_first_batch` would pass a batch on."""
        return self._on_first_batch is not None

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
        metrics: Mapping[str, Any] | None = None,
        **units: int,
    ) -> None:
        """Count one training step; nothing waits for the device.

        `loss` is the step's mean, a scalar. Without labels, pass the number of `samples`. `preds` are logits, which
        give the accuracy over all labels other than `ignore_index`. The shapes depend on `task`: "multiclass" scores
        (batch, classes, …) for labels (batch, …), with the classes in dimension `class_dim` (default 1); "binary"
        logits (batch, …), positive above 0; "multilabel" logits (batch, labels, …), each positive above 0.
        Without `task` the predictions are multiclass; raises `UsageError` if the shapes leave that open.

        `metrics` are further means of the step by name, numbers or tensors of one number: the epoch records their
        means over its samples. Any other keyword counts a unit in addition to samples, as `tokens=512`, an integer.
        """
        self._check_training_step("track")
        count = num_samples(preds, labels, samples)
        numbers = self._checked_metrics("track", metrics) if metrics else None
        counts = checked_units(units) if units else None
        if preds is not None and labels is not None:
            self._train.add_predictions(preds, labels, task, class_dim, ignore_index, samples=count)
        self._count_step(loss, count, counts)
        if numbers:
            self._metrics.add_means("track", numbers, 1 if count is None else count)
        if counts:
            self._metrics.add_units(counts)

    def track_loss(self, loss: _Loss | None, samples: int | None) -> None:
        """Count one training step's mean loss over `samples` samples; either is None if it is not known."""
        self._check_training_step("track_loss")
        self._count_step(loss, None if samples is None else whole_number("samples", samples))

    def _count_step(self, loss: _Loss | None, samples: int | None, units: Mapping[str, int] | None = None) -> None:
        if self.num_steps == self._first_step:
            self.worker_start_methods |= worker_start_methods()
        self._train.add_loss(loss, samples)
        self._phases.step_tracked()
        self.num_steps += 1
        if self.observer is not None and not self.observer.is_finished:
            counted = {} if samples is None else {"samples": samples}
            self.observer.step_tracked({**counted, **(units or {})})
        self._heartbeat.progress += 1  # the only progress in a loop that does not use `batches`

    def track_predictions(
        self, preds: torch.Tensor, labels: torch.Tensor, **options: Unpack[PredictionOptions]
    ) -> None:
        """Count the correct predictions of a training step, as `track` does."""
        self._check_training_step("track_predictions")
        self._train.add_predictions(preds, labels, **options, samples=num_samples(preds, labels, None))

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
        metrics: Mapping[str, Any] | None = None,
    ) -> None:
        """Count one evaluated batch, as `track` does for training; its `metrics` have names of their own."""
        self._check_owner("track_eval")
        count = num_samples(preds, labels, samples)
        numbers = self._checked_metrics("track_eval", metrics) if metrics else None
        if not self._is_evaluated:
            self.worker_start_methods |= worker_start_methods()
        self._is_evaluated = True
        if self.observer is not None:
            self.observer.discard()
        self._eval.add_loss(loss, count)
        if preds is not None and labels is not None:
            self._eval.add_predictions(preds, labels, task, class_dim, ignore_index, samples=count)
            if self._evaluation is not None:
                self._evaluation.add(preds, labels, self._eval.prediction_format)
        if numbers:
            self._metrics.add_means("track_eval", numbers, 1 if count is None else count)
        self._phases.evaluation_tracked()

    def _checked_metrics(self, call: str, metrics: Mapping[str, Any]) -> Mapping[str, float | torch.Tensor]:
        numbers = checked_numbers(metrics)
        self._metrics.check_means(call, numbers)
        return numbers

    def log(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Record values of this epoch: `epoch.log(val_f1=0.8)`, or `epoch.log({"val/f1": f1})` for other names.

        A value is a number, a tensor of one number, which stays on its device until the epoch's end, or an object of
        torchmetrics, or any with `compute()` and `reset()`, which are called at the epoch's end. The last value of a
        name counts. Raises `UsageError` for other values, an empty name, or a name that is also tracked.
        """
        self._check_owner("log")
        self._metrics.log(checked_values(values, named))

    def log_steps(self, values: Mapping[str, float | torch.Tensor], steps: Mapping[str, int], reduce: Reduce) -> None:
        """Record checked values of steps, for `run.log`; the epoch gets their reduction."""
        self._check_owner("log")
        self._metrics.log_steps(values, steps, reduce)

    @property
    def metric_error(self) -> Exception | None:
        """Why a logged metric of the closed epoch could not be computed; None if all could."""
        return self._metrics.error

    def close(self) -> tuple[EpochRecord, LoggedLosses]:
        """Stop the clock; return the epoch's record and logged step losses. Waits for the device once.

        Logged accumulators are computed after that, so their time is in no phase of the epoch, but in its tracking.
        Without an evaluation `eval_seconds` is None. Time after the last training step that is neither tracked nor
        marked is in no phase. The record lacks what follows (`wall_seconds`, sinks and checkpoint in
        `tracking_seconds`) and what only the run knows (`warmup`, `run_seconds`).
        """
        self._check_owner("end_epoch")
        self._owner.end()
        self.phase_times = self._phases.resolve()
        train, evaluated = self._train.totals(), self._eval.totals()
        self.notes += notes_on(self._train) + notes_on(self._eval, "evaluated ")
        seconds, metrics = self.parts.total_seconds(self.phase_times.seconds), self._metrics
        totals = EpochTotals(train, evaluated, seconds, self._sees_training, metrics.results(), metrics.units)
        if self._share is not None:
            totals = self._share(self.number, totals, metrics.reductions(), metrics.weights())
        require_64_bits({"samples": totals.train.samples, **totals.units})
        return epoch_record(self.number, totals), self._train.logged_losses()
