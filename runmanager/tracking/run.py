"""One run while it is running: its epochs, timed and tracked, and its end, written whatever happens."""

import datetime
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import msgspec
import torch

from runmanager.errors import RunBusyError, UsageError
from runmanager.records.attempts import attempts_up_to, epochs_made_elsewhere
from runmanager.records.run import EpochRecord, RunRecord
from runmanager.records.states import Outcome
from runmanager.records.store import RunFolder
from runmanager.tracking.devices import peak_memory_bytes
from runmanager.tracking.ending import Ending
from runmanager.tracking.epoch import Epoch, with_walls, without_walls
from runmanager.tracking.events import cut_events
from runmanager.tracking.first_batch import batch_size_of, inputs_of, peek
from runmanager.tracking.heartbeat import Heartbeat
from runmanager.tracking.idle import IdleRun
from runmanager.tracking.last_evaluation import LastEvaluation
from runmanager.tracking.measuring import Measuring, num_parameters
from runmanager.tracking.notes import RunNotes
from runmanager.tracking.options import Checkpointer, Progress, RunOptions
from runmanager.tracking.outcomes import keep_traceback, outcome_of
from runmanager.tracking.sinks import EpochDetails, RunStart, Sink
from runmanager.tracking.timer import PhaseTimer, clock_for
from runmanager.tracking.turns import turns_of
from runmanager.tracking.unheard import children_unheard
from runmanager.tracking.warmup import Warmup

__all__ = ["ActiveRun", "IdleRun"]


class ActiveRun:
    """A run between its beginning and its end.

    ```
    with manager.run(params, network, loader) as run:   # claims the folder, writes run.json, begins the sinks
        for epoch in run.epochs(5):                     # waits for the device, starts the clock
            for batch in epoch.batches(loader): ...     # data, transfer, compute
            ...                                         # eval
                                                        # waits once, sums up, sinks, checkpoint, epochs.jsonl
                                                        # the end, whatever it was, in run.json
    ```

    Where the device is missing the run is recorded as skipped, and where it was finished earlier it is kept: then
    `epochs` yields nothing. After a NaN or infinite loss it yields no further epoch and the run has failed.
    """

    def __init__(
        self,
        *,
        folder: RunFolder,
        device: torch.device,
        sinks: Sequence[Sink],
        options: RunOptions,
        is_resumed: bool = False,
        begin_with: Callable[["ActiveRun"], None] | None = None,
        when_ended: Callable[["ActiveRun"], None] | None = None,
    ) -> None:
        self.folder = folder
        self.device = device
        self.is_resumed = is_resumed
        self.history: list[EpochRecord] = []
        self.num_steps = 0
        self._timer = PhaseTimer(clock_for(device))
        self._network: torch.nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._checkpointer: Checkpointer | None = None
        self._sinks = sinks
        self._begun_sinks: list[Sink] | None = None
        self._options = options
        self._begin_with = begin_with
        self._when_ended = when_ended
        self._planned: int | None = folder.record.epochs_planned
        self._ending = Ending(options.early_stop)
        self._notes = RunNotes(folder)
        self._last_evaluation = LastEvaluation(sinks)
        self._warmup = Warmup(options.warmup_epochs)
        self._seconds_before = 0.0
        self._learning_rate: float | None = None
        self._begun_at = time.perf_counter()
        self.turns = turns_of(
            options, folder.paths, is_cancelled=lambda: self._ending.is_interrupted, interrupt=self.interrupt
        )
        # Those with which it takes turns are no outside load: all of them are children of one process.
        self.measuring = Measuring(device, family=os.getppid() if self.turns else None)
        self._heartbeat = Heartbeat(folder.paths.heartbeat, each_beat=self.measuring.look).start()
        weakref.finalize(self, self._heartbeat.stop)  # a run that was dropped without an end beats no more

    @property
    def record(self) -> RunRecord:
        """The run's record as it stands."""
        return self.folder.record

    def begin(
        self,
        network: torch.nn.Module,
        loader: Any,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> None:
        """Move the network to the run's device, put back what a checkpoint holds, and begin the sinks.

        `loader` is looked into for a first batch, without a trace. `optimizer` lets the learning rate be logged.
        Raises `UsageError` if the network is none.
        """
        if not isinstance(network, torch.nn.Module):
            raise UsageError(f"`network` must be a torch.nn.Module, got {type(network).__name__}.")
        self._network, self._optimizer, self._checkpointer = network.to(self.device), optimizer, checkpointer
        self.measuring.begin(self._network, self.record, precision=self._options.precision)
        if self.is_resumed:
            self._restore()
        batch = peek(loader)
        if batch is not None:
            self._begin_with_batch(batch, batch_size_of(loader))
        elif self.is_resumed:
            self._begin_sinks(None)
        measured, session = self.measuring.measurements(), self.turns and self.turns.session
        self.folder.write(num_parameters=num_parameters(network), measurements=measured, session=session)

    def _restore(self) -> None:
        assert self._checkpointer is not None
        progress = self._checkpointer.load(self.folder.paths.checkpoint)
        record = self.folder.write(earlier=attempts_up_to(self.record.earlier, progress.record.epoch))
        self.history = self.folder.cut_epochs(progress.record, unmeasured=epochs_made_elsewhere(record))
        self.num_steps = progress.num_steps
        self._seconds_before = progress.record.run_seconds or 0.0
        if (events := self.folder.paths.events) is not None:
            cut_events(events, progress.events_length)
        self._ending.restore(self.history)

    def _begin_with_whole_batch(self, batch: Any) -> None:
        inputs = inputs_of(batch)
        self._begin_with_batch(batch, None if inputs is None else len(inputs))

    def _begin_with_batch(self, batch: Any, batch_size: int | None) -> None:
        """What is done once with the first batch, or with a part of it, where a full one has `batch_size` samples."""
        assert self._network is not None
        work_of = self.measuring.count_work
        self._notes.extend(work_of(self._network, batch, optimizer=self._optimizer, batch_size=batch_size))
        self._begin_sinks(batch)
        self.measuring.memory_begins()

    def _begin_sinks(self, batch: Any | None) -> None:
        """Tell every sink, once, that the run begins, with a first batch where there is one."""
        self._begun_sinks = []
        assert self._network is not None
        start = RunStart(self.record, self.folder.paths, self._network, self.device, batch)
        for sink in self._sinks:
            self._notes.extend(sink.begin(start))
            self._begun_sinks.append(sink)

    def epochs(self, num_epochs: int) -> Iterator[Epoch]:
        """The epochs that are still to be run, counted from 1 to `num_epochs`."""
        if self._planned != num_epochs:
            self._planned = num_epochs
            self.folder.write(epochs_planned=num_epochs)
        for number in range(self._next_number(), num_epochs + 1):
            self._await_turn()
            if self._ending.is_due:
                return
            epoch = self.begin_epoch(number)
            try:
                yield epoch
            except GeneratorExit:
                # The loop was left. Where that was after all of the epoch's batches, the epoch is not to be lost.
                if epoch.is_whole and not self.record.status.is_ended:
                    self.end_epoch(epoch)
                raise
            self.end_epoch(epoch)

    def evaluation_before_training(self) -> Iterator[Epoch]:
        """Epoch 0, for an evaluation only; nothing where it was done before a break."""
        if not self.history:
            self._await_turn()
            if not self._ending.is_due:
                yield (epoch := self.begin_epoch(0))
                self.end_epoch(epoch)

    def _await_turn(self) -> None:
        if self.turns is not None and not self._ending.is_due:
            self.turns.wait()

    def unrecorded_epoch(self) -> Epoch:
        """An epoch for steps that only `turns` tell of."""
        return Epoch(self._next_number(), timer=self._timer, device=self.device, heartbeat=self._heartbeat)

    def evaluation_again(self) -> Iterator[Epoch]:
        """The last epoch once more, for an evaluation that is recorded nowhere, but that the sinks' pictures are of.

        Nothing but where a break came between the last epoch and the end of a run that is to finish now.
        """
        if self._last_evaluation.is_lost(self.history) and self._outcome(None).status.is_success:
            self._await_turn()
            last, timer = self.history[-1], PhaseTimer(clock_for(self.device))
            epoch = Epoch(last.epoch, timer=timer, device=self.device, heartbeat=self._heartbeat, keep_scores=True)
            yield epoch
            self._last_evaluation.keep(last, epoch.evaluation)

    def _next_number(self) -> int:
        return max(self.history[-1].epoch + 1, 1) if self.history else 1

    def begin_epoch(self, number: int | None = None) -> Epoch:
        """Start the clock of the next epoch, or of epoch `number`."""
        if self._network is None:
            raise UsageError("A run must have begun before its epochs, got no network; call begin(network, loader).")
        self.measuring.epoch_begins()
        self._timer.start()
        if self._optimizer is not None:
            self._learning_rate = float(self._optimizer.param_groups[0]["lr"])
        return Epoch(
            self._next_number() if number is None else number,
            timer=self._timer,
            device=self.device,
            log_every=self._options.log_every,
            steps_before=self.num_steps,
            heartbeat=self._heartbeat,
            when_first_batch=self._begin_with_whole_batch if self._begun_sinks is None else None,
            keep_scores=self._last_evaluation.is_wanted,
        )

    def end_epoch(self, epoch: Epoch) -> EpochRecord:
        """Stop the clock, write the epoch down, and return its record.

        Raises `RunBusyError` where another process has taken the run over meanwhile: then nothing is written any more.
        """
        record, step_losses = epoch.close()
        if self.folder.is_lost():  # a file is read for that: when the clock has stopped
            raise RunBusyError(f"Run {self.record.name} was taken over by another process, which saw no sign of life.")
        warmup = self._warmup.look_at(record.epoch, self._timer.step_seconds, history=self.history)
        record = msgspec.structs.replace(record, warmup=warmup, run_seconds=self._run_seconds())
        self.measuring.epoch_ends(epoch, record, num_steps=epoch.num_steps - self.num_steps)
        self.num_steps = epoch.num_steps
        if self._begun_sinks is None:
            self._begin_sinks(None)
        assert self._network is not None
        self._last_evaluation.keep(record, epoch.evaluation)
        details = EpochDetails(self._network, self._learning_rate, step_losses, epoch.evaluation)
        for sink in self._sinks:
            self._notes.extend(sink.epoch(without_walls(record), details))
        if self._checkpointer is not None:
            self._checkpointer.observe(record)
            if self._checkpointer.is_due(record.epoch):
                so_far = self._with_walls(record)
                self._checkpointer.save(self.folder.paths.checkpoint, self._progress(so_far))
        record = self._with_walls(record)
        self.folder.append(record)
        self.history.append(record)
        if self._warmup.num_epochs == 1:
            self.folder.write(measurements=self.measuring.measurements())  # a kill is not to take all of them
        self._heartbeat.progress += 1
        self._ending.look_at(record)
        return record

    def _with_walls(self, record: EpochRecord) -> EpochRecord:
        begun_at, ended_at = self._timer.begun_at, self._timer.ended_at
        return with_walls(record, begun_at=begun_at, ended_at=ended_at, run_seconds=self._run_seconds())

    def _progress(self, record: EpochRecord) -> Progress:
        events = self.folder.paths.events
        return Progress(record, events.stat().st_size if events else 0, self.num_steps)

    def _run_seconds(self) -> float:
        waited = self.turns.waited_seconds if self.turns else 0.0
        return self._seconds_before + time.perf_counter() - self._begun_at - waited

    def note(self, line: str) -> None:
        """Keep a readable line about what could not be done or was chosen; it is in the record at once."""
        self._notes.note(line)

    def deviates(self, line: str) -> None:
        """Keep a readable line about what is done otherwise than asked: in the record at once, and named by tables."""
        self._notes.deviates(line)

    def stop_early(self, message: str) -> None:
        """Let this epoch be the last; the run is finished."""
        self._ending.stop_early(message)

    def interrupt(self, message: str = "interrupted") -> None:
        """Let this epoch be the last; the run reads `killed`, and goes on from its checkpoint another time."""
        self._ending.interrupt(message)

    @children_unheard()
    def end(self, error: BaseException | None = None) -> RunRecord:
        """Write the run's end: as `error` says, or as the epochs say; nothing where another process has the run now."""
        is_lost = True
        try:
            if is_lost := self.folder.is_lost():
                return self.record
        finally:
            if is_lost:  # or its folder is gone
                self._heartbeat.stop(keeps_file=True)
                self.folder.close()
        outcome, run_seconds = self._outcome(error), self._run_seconds()  # before pictures are drawn
        try:
            if self._begun_sinks is None and self._network is not None:
                self._begin_sinks(None)
            if outcome.status.is_success:
                # Before the record says so: with a kill after that nobody would go on with the run, and draw them.
                self._notes.extend(self._last_evaluation.finish())
        except BaseException as fault:
            self.end(error or fault)
            raise
        record = self.folder.write(
            status=outcome.status,
            reason=outcome.reason,
            message=outcome.message,
            ended_at=datetime.datetime.now(datetime.UTC).isoformat(),
            run_seconds=run_seconds,
            num_parameters=None if self._network is None else num_parameters(self._network),
            peak_memory_bytes=peak_memory_bytes(self.device),
            environment=self.measuring.environment_at_end(self.record.environment),
            measurements=self.measuring.measurements(),
            notes=self._notes.said,
        )
        if error is not None:
            keep_traceback(error, self.folder.paths.error)
        self._heartbeat.stop()
        self.folder.close()
        for sink in self._begun_sinks or ():
            sink.end(record)
        if self._when_ended is not None:
            self._when_ended(self)
        return record

    def _outcome(self, error: BaseException | None) -> Outcome:
        if error is not None:
            batch_size, peak = self.record.config.get("batch_size"), peak_memory_bytes(self.device)
            return outcome_of(error, batch_size=batch_size, memory_bytes=peak)
        is_measured = self.turns is None or self.turns.is_over
        return self._ending.outcome(self.history, planned=self._planned, is_measured=is_measured)

    def __enter__(self) -> Self:
        if self._begin_with is not None:
            try:
                self._begin_with(self)
            except BaseException as error:
                self.end(error)
                raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.end(error)
