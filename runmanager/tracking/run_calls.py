"""The calls of a run besides tracking: epochs, values and pictures, the summary, loops by steps, measured turns."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from runmanager.errors import UsageError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import RANK_0_ALONE, EpochRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.run_folder import RunFolder
from runmanager.tracking.device.devices import device_of
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.epoch_metrics.logged_metrics import checked_values, whole_number
from runmanager.tracking.epoch_metrics.prediction_task import IGNORED, Task
from runmanager.tracking.epoch_metrics.step_values import Reduce
from runmanager.tracking.epoch_recorder import EpochRecorder
from runmanager.tracking.inference import measure_inference
from runmanager.tracking.lifecycle.outcome import StopPolicy
from runmanager.tracking.lifecycle.run_epochs import OpenEpoch
from runmanager.tracking.lifecycle.run_measurements import RunMeasurements
from runmanager.tracking.lifecycle.run_sinks import RunNotes, RunSinks
from runmanager.tracking.lifecycle.run_values import RunMedia, RunValues, Summary
from runmanager.tracking.ranks.run_ranks import RunRanks
from runmanager.tracking.step_loop import StepLoop
from runmanager.tracking.timing.interleaving import RunClock, RunTurns
from runmanager.tracking.timing.timer import PhaseTimer, clock_for


class EpochCalls(ABC):
    """A loop over the epochs that remain to be run."""

    _folder: RunFolder
    _open: OpenEpoch
    _epochs: EpochRecorder
    _stop_policy: StopPolicy
    _turns: RunTurns | None

    @abstractmethod
    def plan_epochs(self, num_epochs: int) -> int: ...

    @abstractmethod
    def begin_epoch(self, number: int | None = None, *, is_all_training: bool = False) -> Epoch: ...

    @abstractmethod
    def end_epoch(self, epoch: Epoch) -> EpochRecord: ...

    def epochs(self, num_epochs: int) -> Iterator[Epoch]:
        """Yield the epochs that remain to be run, counted from 1 to `num_epochs`."""
        last = self.plan_epochs(num_epochs)
        for number in range(self._epochs.history.next_number, last + 1):
            self._wait_for_turn()
            if self._stop_policy.should_stop:
                return
            yield from self._one_epoch(number)

    def _one_epoch(self, number: int) -> Iterator[Epoch]:
        epoch = self.begin_epoch(number)
        try:
            yield epoch
        except GeneratorExit:
            # The loop was left. If all of the epoch's batches were taken before, the epoch must not be lost.
            if self._open.is_this(epoch) and self._folder.is_ours:
                self._open.end_or_discard(self.end_epoch)
            raise
        if self._open.is_this(epoch):  # the loop's body may have ended it itself, for its record
            self.end_epoch(epoch)

    def _wait_for_turn(self) -> None:
        if self._turns is not None and not self._stop_policy.should_stop:
            self._turns.wait()


class JobCalls(EpochCalls):
    """Epochs of an active run that are not simply the next one."""

    _sinks: RunSinks
    _measurements: RunMeasurements
    _clock: RunClock

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @property
    @abstractmethod
    def history(self) -> Sequence[EpochRecord]: ...

    @abstractmethod
    def _outcome(self, error: BaseException | None) -> Outcome: ...

    def reset_peak_memory(self) -> None:
        """Let the peak of the device's memory be that of what follows."""
        self._measurements.reset_peak_memory()

    def evaluation_before_training(self) -> Iterator[Epoch]:
        """Yield epoch 0, for an evaluation only; nothing if an earlier attempt has recorded it."""
        if not self.history:
            self._wait_for_turn()
            if not self._stop_policy.should_stop:
                yield from self._one_epoch(0)

    def evaluation_again(self) -> Iterator[Epoch]:
        """Yield the last epoch once more, for an unrecorded evaluation that the sinks' pictures need.

        Yields nothing unless the run is about to finish and an earlier process made the last epoch's evaluation.
        """
        if self._sinks.lack_last_evaluation(self.history) and self._outcome(None).status.is_success:
            self._wait_for_turn()
            last, timer = self.history[-1], PhaseTimer(clock_for(self.device))
            epoch = self._epochs.make_unrecorded(last.epoch, timer=timer, keep_scores=True)
            yield epoch
            self._sinks.set_last_evaluation(last, epoch.evaluation)

    def measure_inference(
        self, network: torch.nn.Module, example: Any, batch_sizes: Sequence[int] = (1, 32), *, seconds: float = 1.0
    ) -> None:
        """Measure the latency of calls of `network` after training, for about `seconds` with batches of each size.

        `example` is a batch of samples, whose tensors are repeated along their first dimension to fill a batch; a tuple
        or list holds the positional arguments of a call, a mapping the named ones. They are moved to the network's
        device before. The network is called in `inference_mode` and evaluation mode. Nothing of it counts in the times
        and the memory of training. `inference.csv` and `runmanager compare --metric latency_p50_seconds` have the
        result. A run that was asked to stop begins no further size. Raises `UsageError` for bad arguments, and within
        an epoch.
        """
        if (epoch := self._open.current) is not None:
            raise UsageError(f"measure_inference() must come after an epoch, got epoch {epoch.number} still open.")
        self._wait_for_turn()
        began = time.perf_counter()
        with self._measurements.left_out():
            device = device_of(network) or self.device
            found = measure_inference(
                network,
                example,
                batch_sizes,
                seconds=seconds,
                device=device,
                is_stopped=lambda: self._stop_policy.is_interrupted,
            )
        known = {each.batch_size: each for each in self._measurements.measurements().inference or ()}
        known |= {each.batch_size: each for each in found}
        self._measurements.add(inference=list(known.values()))
        self._folder.write(measurements=self._measurements.measurements())
        self._clock.left_out_seconds += time.perf_counter() - began

    def unrecorded_epoch(self) -> Epoch:
        """Return an epoch for the steps of measured turns, which are recorded as turns only."""
        return self._epochs.make_unrecorded(self._epochs.history.next_number, timer=self._epochs.timer)

    def measured_batches(
        self, batches: Iterator[Any], *, num_steps: int | None, most_steps: int, leads_in: bool
    ) -> Iterator[Any]:
        """Divide `batches` into measured turns (see `RunTurns.measured_batches`), for use in `unrecorded_epoch`.

        Raises `UsageError` for a run without turns.
        """
        if self._turns is None:
            raise UsageError("A run must take turns to be measured in them, got none; give RunOptions(turns=…).")
        return self._turns.measured_batches(
            batches,
            self._epochs.timer,
            num_steps=num_steps,
            most_steps=most_steps,
            leads_in=leads_in,
            read_clock=None if self.device.type == "cpu" else self._measurements.clock_hertz,
        )


class LoopCalls(ABC):
    """What an active run offers in any loop."""

    _folder: RunFolder
    _open: OpenEpoch
    _values: RunValues
    _media: RunMedia
    _steps: StepLoop
    _stop_policy: StopPolicy
    _notes: RunNotes
    _measurements: RunMeasurements
    _ranks: RunRanks | None

    @property
    @abstractmethod
    def paths(self) -> RunPaths: ...

    @abstractmethod
    def _ensure_begun(self, call: str) -> None: ...

    @property
    def dir(self) -> Path:
        """A folder in the run's folder, for files of the program; a run that starts again gets an empty one."""
        self.paths.files.mkdir(parents=True, exist_ok=True)
        return self.paths.files

    @property
    def summary(self) -> Summary:
        """The metrics of the whole run: `run.summary["test_accuracy"] = 0.93`."""
        return self._values.summary

    @property
    def should_stop(self) -> bool:
        """Whether the run should end: it diverged, it no longer improves, or it was asked to stop."""
        return self._stop_policy.should_stop

    def log(
        self,
        values: Mapping[str, Any] | None = None,
        /,
        *,
        step: int | None = None,
        reduce: Reduce = "last",
        **named: Any,
    ) -> None:
        """Log values of a step: `run.log(f1=0.8)`, or `run.log({"val/f1": f1})` for other names.

        They belong to the open epoch, or interval of steps, which records their reduction: the `last` value, or the
        `mean`, `sum`, `min` or `max`. Without one they belong to the run's summary. TensorBoard gets each value, at
        `step`, or as many as the name has had. Values are numbers, tensors of one number, which stay on their device
        until the record closes, or objects of torchmetrics.
        Raises `UsageError` for other values, another reduction, and a name that the epoch records in another way.
        """
        record = self._open.current
        self._values.log(checked_values(values, named), step=step, reduce=reduce, record=record)

    def log_image(self, name: str, image: Any, step: int | None = None) -> None:
        """Show an image in TensorBoard, at `step`, or as many as the name has had.

        `image` is an image of PIL, or a tensor or array (height, width), (channels, height, width) or (height, width,
        channels) with 1, 3 or 4 channels; where both fit, those of a tensor come first, those of an array last.
        Integers are 0 to 255, floating-point numbers 0 to 1; values outside are clipped. A tensor on a device is waited
        for.
        Raises `UsageError` for anything else.
        """
        self._folder.refuse_others()
        self._media.image(name, image, step)

    def log_figure(self, name: str, figure: Any, step: int | None = None) -> None:
        """Show a figure of matplotlib in TensorBoard; it stays open. Raises `UsageError` for anything else."""
        self._folder.refuse_others()
        self._media.figure(name, figure, step)

    def log_text(self, name: str, text: str, step: int | None = None) -> None:
        """Show a text, in Markdown, in TensorBoard. Raises `UsageError` for anything else."""
        self._folder.refuse_others()
        self._media.text(name, text, step)

    def add_measurements(self, **measurements: Any) -> None:
        """Record values that the caller has measured, by the field names of `Measurements`."""
        self._measurements.add(**measurements)

    def note(self, line: str) -> None:
        """Record a readable line about a choice made, or about what could not be done; it is written immediately."""
        self._notes.note(line)

    def note_deviation(self, line: str) -> None:
        """Record a readable line about a deviation from the settings; it is written immediately and shown in tables."""
        self._notes.note_deviation(line)

    def plan_epochs(self, num_epochs: int) -> int:
        """Record how many epochs the run will have; with fewer, and no reason to stop, it is not finished.

        Returns the number. Raises `UsageError` unless it is a whole one of at least 0.
        """
        self._folder.refuse_others()
        num_epochs = whole_number("num_epochs", num_epochs)
        if self._folder.record.epochs_planned != num_epochs:
            self._folder.write(epochs_planned=num_epochs)
        return num_epochs

    def stop_early(self, message: str) -> None:
        """Stop after the current epoch; the run is finished. All ranks of the run stop together."""
        self._stop_after_epoch(Outcome(Status.FINISHED, Reason.EARLY_STOPPED, message))

    def interrupt(self, message: str = "interrupted") -> None:
        """Stop after the current epoch; the run is recorded as `killed` and can resume from its checkpoint."""
        self._stop_after_epoch(Outcome(Status.KILLED, Reason.INTERRUPTED, message))

    def _stop_after_epoch(self, stop: Outcome) -> None:
        if self._ranks is None:
            self._stop_policy.stop(stop)
        else:
            self._ranks.request(stop)

    def write_world_size(self, size: int) -> None:
        """Record that the run is made by several ranks."""
        self._folder.write(world_size=size)

    def _leave_ranks(self, ranks: RunRanks, error: BaseException | None) -> None:
        """End the run for the other ranks, which may end later."""
        self._stop_policy.stop(ranks.pending)
        ranks.leave(error)
        if ranks.rank == 0 and not ranks.has_shared:
            self._notes.note_deviation(f"one of {ranks.size} ranks: {RANK_0_ALONE}")

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the loader's batches on the run's device, in a loop without epochs; timed as by `Epoch.batches`.

        Within `evaluating` they count as evaluation. Raises `UsageError` in a run with epochs.
        """
        self._enter_steps("batches")
        self._steps.interval("batches")  # refuses a run with epochs now, not at the first batch
        return self._steps.batches(loader)

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
        """Count one training step of a loop without epochs, with the arguments of `Epoch.track`.

        A record closes every `record_every` steps. What follows the last of them up to the next step, as an evaluation,
        belongs to it too. The rest at the run's end is a record as well. Raises `UsageError` in a run with epochs.
        """
        self._enter_steps("track")
        self._steps.track(
            *(loss, preds, labels),
            samples=samples,
            task=task,
            class_dim=class_dim,
            ignore_index=ignore_index,
            metrics=metrics,
            **units,
        )

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
        """Count one evaluated batch of a loop without epochs, with the arguments of `Epoch.track_eval`."""
        self._enter_steps("track_eval")
        self._steps.interval("track_eval").track_eval(
            *(loss, preds, labels),
            samples=samples,
            task=task,
            class_dim=class_dim,
            ignore_index=ignore_index,
            metrics=metrics,
        )

    def evaluating(self) -> AbstractContextManager[None]:
        """Return a `with` block whose time counts as evaluation, in a loop without epochs."""
        self._enter_steps("evaluating")
        return self._steps.interval("evaluating").evaluating()

    def _enter_steps(self, call: str) -> None:
        self._folder.refuse_others()
        self._ensure_begun(call)
