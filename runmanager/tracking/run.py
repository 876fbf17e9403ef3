"""One run while it is running: its epochs, timed and tracked, and its end, written whatever happens."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Self

import msgspec
import torch

from runmanager.errors import RunBusyError, UsageError
from runmanager.records.run.attempts import attempts_up_to
from runmanager.records.run.environment_changes import epochs_in_other_environments
from runmanager.records.run.record import EpochRecord, RunRecord
from runmanager.records.run.status import Outcome
from runmanager.records.storage.run_end import end_own_run
from runmanager.records.storage.run_folder import RunFolder
from runmanager.signals import sigchld_ignored
from runmanager.tracking.device.devices import peak_memory_bytes
from runmanager.tracking.environment.heartbeat_writer import Heartbeat
from runmanager.tracking.epoch import Epoch, without_walls
from runmanager.tracking.introspect.first_batch import batch_size_of, inputs_of, peek
from runmanager.tracking.lifecycle.abandoned import end_run_when_dropped
from runmanager.tracking.lifecycle.inactive_run import InactiveRun
from runmanager.tracking.lifecycle.last_evaluation import LastEvaluation
from runmanager.tracking.lifecycle.open_epoch import OpenEpoch
from runmanager.tracking.lifecycle.outcome import keep_traceback, outcome_of
from runmanager.tracking.lifecycle.run_clock import RunClock
from runmanager.tracking.lifecycle.run_measurements import Measuring, num_parameters
from runmanager.tracking.lifecycle.run_notes import RunNotes
from runmanager.tracking.lifecycle.run_sinks import ToldSinks
from runmanager.tracking.lifecycle.stop_policy import Ending
from runmanager.tracking.options import Checkpointer, Progress, RunOptions
from runmanager.tracking.sinks import EpochDetails, RunStart, Sink
from runmanager.tracking.tensorboard.event_writer import cut_events
from runmanager.tracking.timing.interleaving import turns_of
from runmanager.tracking.timing.phases import Unmarked
from runmanager.tracking.timing.timer import PhaseTimer, clock_for
from runmanager.tracking.timing.warmup import Warmup

__all__ = ["ActiveRun", "InactiveRun"]


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
    it is an `InactiveRun`. After a NaN or infinite loss `epochs` yields no further epoch and the run has failed.

    Calls out of order raise `UsageError` and change nothing: a second epoch while one is open, the end of one that is
    not, anything but `end` after the run's end. So does every call in a fork of the process that began the run; there
    leaving the `with` block writes nothing.
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
        self._options = options
        self._begin_with = begin_with
        self._when_ended = when_ended
        self._planned: int | None = folder.record.epochs_planned
        self._ending = Ending(options.early_stop)
        self._open = OpenEpoch()
        self._notes = RunNotes(folder)
        self._sinks = ToldSinks(sinks, self._notes)
        self._last_evaluation = LastEvaluation(sinks)
        self._warmup = Warmup(options.warmup_epochs)
        self._unmarked = Unmarked()
        self._learning_rate: float | None = None
        self.turns = turns_of(
            options, folder.paths, is_cancelled=lambda: self._ending.is_interrupted, interrupt=self.interrupt
        )
        self._clock = RunClock(self._timer, self.turns)
        # Those with which it takes turns are no outside load: all of them are children of one process.
        family = os.getppid() if self.turns else None
        self._measuring = Measuring(device, family=family, is_built_in=options.is_built_in)
        self._heartbeat = Heartbeat(folder.paths.heartbeat, each_beat=self._measuring.look).start()
        self._when_dropped = end_run_when_dropped(self, folder, self._heartbeat)

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
        Raises `UsageError` if the network is none, or the run has one.
        """
        self.folder.refuse_others()
        if self._network is not None:
            raise UsageError("begin() must be called once in a run, got a second call; begin another run.")
        if not isinstance(network, torch.nn.Module):
            raise UsageError(f"`network` must be a torch.nn.Module, got {type(network).__name__}.")
        self._network, self._optimizer, self._checkpointer = network.to(self.device), optimizer, checkpointer
        self._measuring.begin(self._network, self.record, precision=self._options.precision)
        if self.is_resumed:
            self._restore()
        batch = peek(loader)
        if batch is not None:
            self._begin_with_batch(batch, batch_size_of(loader))
        elif self.is_resumed:
            self._begin_sinks(None)
        measured, session = self._measuring.measurements(), self.turns and self.turns.session
        self.folder.write(num_parameters=num_parameters(network), measurements=measured, session=session)

    def _restore(self) -> None:
        assert self._checkpointer is not None
        progress = self._checkpointer.load(self.folder.paths.checkpoint)
        record = self.folder.write(earlier=attempts_up_to(self.record.earlier, progress.record.epoch))
        self.history = self.folder.cut_epochs(progress.record, unmeasured=epochs_in_other_environments(record))
        self.num_steps = progress.num_steps
        self._clock.before = progress.record.run_seconds or 0.0
        if (events := self.folder.paths.events) is not None:
            cut_events(events, progress.events_length)
        self._ending.restore(self.history)

    def _begin_with_whole_batch(self, batch: Any) -> None:
        inputs = inputs_of(batch)
        self._begin_with_batch(batch, None if inputs is None else len(inputs))

    def _begin_with_batch(self, batch: Any, batch_size: int | None) -> None:
        """What is done once with the first batch, or with a part of it, where a full one has `batch_size` samples."""
        assert self._network is not None
        work_of = self._measuring.count_work
        self._notes.extend(work_of(self._network, batch, optimizer=self._optimizer, batch_size=batch_size))
        self._begin_sinks(batch)
        self._measuring.memory_begins()

    def _begin_sinks(self, batch: Any | None) -> None:
        """Tell the sinks that the run begins, with a first batch where there is one."""
        assert self._network is not None
        self._sinks.begin(RunStart(self.record, self.folder.paths, self._network, self.device, batch))

    def epochs(self, num_epochs: int) -> Iterator[Epoch]:
        """The epochs that are still to be run, counted from 1 to `num_epochs`."""
        self.folder.refuse_others()
        if self._planned != num_epochs:
            self._planned = num_epochs
            self.folder.write(epochs_planned=num_epochs)
        for number in range(self._next_number(), num_epochs + 1):
            self._await_turn()
            if self._ending.is_due:
                return
            yield from self._one_epoch(number)

    def _one_epoch(self, number: int) -> Iterator[Epoch]:
        epoch = self.begin_epoch(number)
        try:
            yield epoch
        except GeneratorExit:
            # The loop was left. Where that was after all of the epoch's batches, the epoch is not to be lost.
            if self._open.is_this(epoch) and self.folder.is_ours:
                self._open.settle(self.end_epoch)
            raise
        if self._open.is_this(epoch):  # the loop's body may have ended it itself, for its record
            self.end_epoch(epoch)

    def evaluation_before_training(self) -> Iterator[Epoch]:
        """Epoch 0, for an evaluation only; nothing where it was done before a break."""
        if not self.history:
            self._await_turn()
            if not self._ending.is_due:
                yield from self._one_epoch(0)

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

    def begin_epoch(self, number: int | None = None, *, is_all_training: bool = False) -> Epoch:
        """Start the clock of the next epoch, or of epoch `number`. Raises `UsageError` while another one is open."""
        self.folder.refuse_others()
        if self._network is None:
            raise UsageError("A run must have begun before its epochs, got no network; call begin(network, loader).")
        number = self._next_number() if number is None else number
        begin = partial(self._new_epoch, is_all_training=is_all_training)
        return self._open.begin(begin, number, last=self.history[-1].epoch if self.history else -1)

    def _new_epoch(self, number: int, *, is_all_training: bool) -> Epoch:
        self._measuring.epoch_begins()
        self._timer.start()
        if self._optimizer is not None:
            self._learning_rate = float(self._optimizer.param_groups[0]["lr"])
        return Epoch(
            number,
            timer=self._timer,
            device=self.device,
            log_every=self._options.log_every,
            steps_before=self.num_steps,
            heartbeat=self._heartbeat,
            when_first_batch=self._begin_with_whole_batch if not self._sinks.have_begun else None,
            keep_scores=self._last_evaluation.is_wanted,
            is_all_training=is_all_training,
        )

    def end_epoch(self, epoch: Epoch) -> EpochRecord:
        """Stop the clock, write the epoch down, and return its record.

        Raises `RunBusyError` where another process has taken the run over meanwhile: then nothing is written any more;
        `UsageError` for an epoch that has ended, or is another run's.
        """
        self.folder.refuse_others()
        record, step_losses = self._open.close(epoch)
        assert epoch.division is not None
        self._notes.extend(self._unmarked.look_at(epoch.division))
        if self.folder.is_lost():  # a file is read for that: when the clock has stopped
            raise RunBusyError(f"Run {self.record.name} was taken over by another process, which saw no sign of life.")
        warmup = self._warmup.look_at(record, self._timer.step_seconds)
        record = msgspec.structs.replace(record, warmup=warmup, run_seconds=self._clock.seconds())
        self._measuring.epoch_ends(epoch, record, num_steps=epoch.num_steps - self.num_steps)
        self.num_steps = epoch.num_steps
        if not self._sinks.have_begun:
            self._begin_sinks(None)
        assert self._network is not None
        self._last_evaluation.keep(record, epoch.evaluation)
        details = EpochDetails(self._network, self._learning_rate, step_losses, epoch.evaluation)
        self._sinks.epoch(without_walls(record), details)
        if self._warmup.revise(self.history):
            self.folder.replace_epochs(self.history)  # before the checkpoint: who goes on from that judges them no more
        if self._checkpointer is not None:
            self._checkpointer.observe(record)
            if self._checkpointer.is_due(record.epoch):
                so_far = self._clock.with_walls(record)
                self._checkpointer.save(self.folder.paths.checkpoint, self._progress(so_far))
        record = self._clock.with_walls(record)
        self.folder.append(record)
        self.history.append(record)
        self._measuring.warmup = self._warmup.epochs
        if self._warmup.num_epochs == 1:
            self.folder.write(measurements=self._measuring.measurements())  # a kill is not to take all of them
        self._heartbeat.progress += 1
        self._ending.look_at(record)
        return record

    def _progress(self, record: EpochRecord) -> Progress:
        events = self.folder.paths.events
        return Progress(record, events.stat().st_size if events else 0, self.num_steps)

    def learn(self, **facts: Any) -> None:
        """Keep facts that somebody else has measured, by the names that `Measurements` has for them."""
        self._measuring.learn(**facts)

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

    @sigchld_ignored()
    def end(self, error: BaseException | None = None) -> RunRecord:
        """Write the run's end: as `error` says, or as the epochs say; nothing where another process has the run now.

        A second call changes nothing. An epoch that is still open is recorded where all its batches were taken; any
        other is not, and without an `error` it makes the run a failure and raises `UsageError`.
        """
        if self.record.status.is_ended:
            return self.record
        is_lost = True
        try:
            if is_lost := self.folder.is_lost():
                return self.record
        finally:
            if is_lost:  # or its folder is gone
                self._heartbeat.stop(keeps_file=True)
                self.folder.leave()
        self.folder.refuse_others()
        with self._open.lock:
            try:
                self._open.settle(self.end_epoch, refuse=error is None)
            except BaseException as fault:
                self.end(error or fault)
                raise
            return self._end(error)

    def _end(self, error: BaseException | None) -> RunRecord:
        outcome, run_seconds = self._outcome(error), self._clock.seconds()  # before pictures are drawn
        try:
            if not self._sinks.have_begun and self._network is not None:
                self._begin_sinks(None)
            if outcome.status.is_success:
                # Before the record says so: with a kill after that nobody would go on with the run, and draw them.
                self._notes.extend(self._last_evaluation.finish())
        except BaseException as fault:
            self.end(error or fault)
            raise
        try:
            record = end_own_run(
                self.folder,
                outcome,
                run_seconds=run_seconds,
                num_parameters=None if self._network is None else num_parameters(self._network),
                peak_memory_bytes=self._measuring.peak_memory_bytes(self.record),
                environment=self._measuring.environment_at_end(self.record.environment),
                measurements=self._measuring.measurements(),
                notes=self._notes.said,
            )
        except OSError as fault:  # as on a full disk: what happened is tried once more when the run is dropped
            known = outcome_of(fault) if outcome.status.is_success else outcome
            self._when_dropped.cancel()
            self._when_dropped = end_run_when_dropped(self, self.folder, self._heartbeat, known)
            raise
        if error is not None:
            keep_traceback(error, self.folder.paths.error)
        self._heartbeat.stop()
        self._when_dropped.cancel()
        self.folder.leave()
        self._sinks.end(record)
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
        if self.folder.is_ours:  # it is not in a fork, nor where the body has ended the run itself
            self.end(error)
