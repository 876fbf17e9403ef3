"""An active run: its epochs, timed and tracked, and its end, recorded in every case."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import msgspec
import torch

from runmanager.errors import UsageError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord, counted_word
from runmanager.records.run.status import Outcome, judge
from runmanager.records.storage.run_end import end_own_run
from runmanager.signals import sigchld_ignored
from runmanager.tracking.device.devices import indexed, peak_memory
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.epoch_metrics.logged_metrics import whole_number
from runmanager.tracking.epoch_recorder import EpochRecorder, RunPlace
from runmanager.tracking.introspect.isolation import looking
from runmanager.tracking.introspect.loader_inspection import peek_batch
from runmanager.tracking.introspect.model_copy import num_parameters
from runmanager.tracking.lifecycle.finalizers import end_run_when_dropped, register, unregister
from runmanager.tracking.lifecycle.outcome import StopPolicy, asked_to_stop, outcome_of, write_traceback
from runmanager.tracking.lifecycle.run_epochs import OpenEpoch
from runmanager.tracking.lifecycle.run_measurements import RunMeasurements
from runmanager.tracking.lifecycle.run_sinks import RunNotes, RunSinks
from runmanager.tracking.lifecycle.run_values import RunMedia, RunValues
from runmanager.tracking.monitoring.heartbeat_writer import Heartbeat
from runmanager.tracking.monitoring.loader_workers import tell_lost_batches
from runmanager.tracking.options import Checkpointer, RunDirections, RunOptions
from runmanager.tracking.run_calls import JobCalls, LoopCalls
from runmanager.tracking.sinks import Sink
from runmanager.tracking.step_loop import StepLoop
from runmanager.tracking.timing.interleaving import RunClock, RunTurns
from runmanager.tracking.timing.timer import PhaseTimer, clock_for


class ActiveRun(LoopCalls, JobCalls):
    """A run between its beginning and its end.

    ```
    with manager.run(params, network, loader) as run:   # claims the folder, writes run.json, begins the sinks
        for epoch in run.epochs(5):                     # waits for the device, starts the clock
            for batch in epoch.batches(loader): ...     # data, transfer, compute
            ...                                         # eval
                                                        # waits once, sums up, sinks, checkpoint, epochs.jsonl
                                                        # the end, however it came about, in run.json
    ```

    If the device is missing, the run is recorded as skipped; if the run is finished already, it is kept. In both cases
    the manager returns an `InactiveRun`. After a NaN or infinite loss `epochs` yields no further epoch, and the run has
    failed.

    Calls out of order raise `UsageError` and change nothing: a second epoch while one is open, the end of one that is
    not open, any call but `end` after the run's end. So does every call in a fork of the process that began the run;
    there, leaving the `with` block writes nothing.
    """

    def __init__(
        self,
        place: RunPlace,
        sinks: Sequence[Sink],
        options: RunOptions,
        *,
        show: Callable[[str], None] = lambda line: None,
        on_enter: Callable[["ActiveRun"], None] | None = None,
        on_end: Callable[[], None] | None = None,
        in_program: bool = False,
    ) -> None:
        folder, device, ranks = place.folder, place.device, place.ranks
        self.is_resumed = folder.continues
        self._folder = folder
        self._options = options
        self._show = show
        self._on_enter = on_enter
        self._on_end = on_end
        self._in_program = in_program
        self._ranks = ranks
        tell_lost_batches()  # before a first batch is taken
        self._stop_policy = StopPolicy(options.early_stop)
        self._directions = RunDirections(folder)
        self._notes = RunNotes(folder)
        current = indexed(device)
        self._sinks = RunSinks(sinks, self._notes, folder, current)
        source = options.turns
        self._turns = None if source is None else RunTurns(source, folder.paths.turns, self._stop_policy)
        timer = PhaseTimer(clock_for(current))
        self._clock = RunClock(timer, self._turns)
        # The runs that it takes turns with are not outside load: all of them are children of one process.
        family = (source.family or os.getppid()) if source else None
        self._measurements = RunMeasurements(
            current, family=family, is_built_in=options.is_built_in, flop_per_sample=options.flop_per_sample
        )
        self._heartbeat = Heartbeat(
            folder.heartbeat, each_beat=self._measurements.sample, shows_progress_only=folder.is_supervised
        ).start()
        self._open = OpenEpoch()
        self._is_end_torn = False
        self._values = RunValues(folder, self._sinks, self._begin_sinks)
        self._epochs = EpochRecorder(
            place,
            options,
            clock=self._clock,
            sinks=self._sinks,
            measurements=self._measurements,
            values=self._values,
            heartbeat=self._heartbeat,
        )
        if ranks is not None:
            memory = partial(self._measurements.peak_memory, self.record)
            ranks.attach(note=self._notes.note_deviation, memory=memory)
        self._steps = StepLoop(folder, self._epochs, self._open, end=self.end_epoch)
        self._media = RunMedia(self._sinks, self._values.media_steps)
        if in_program:
            self._steps.start_clock()  # before its first step, which may come before its network
        register(self)
        self._when_dropped = end_run_when_dropped(self, folder, self._heartbeat)

    @property
    def device(self) -> torch.device:
        """The device that the run is measured on."""
        return self._epochs.device

    @property
    def record(self) -> RunRecord:
        """The run's current record."""
        return self._folder.record

    @property
    def paths(self) -> RunPaths:
        """The paths of the run's files."""
        return self._folder.paths

    @property
    def history(self) -> list[EpochRecord]:
        """The records of the epochs so far, those of earlier attempts included."""
        return self._epochs.history.records

    @property
    def num_steps(self) -> int:
        """The number of optimizer steps in the recorded epochs."""
        return self._epochs.num_steps

    def begin(
        self,
        network: torch.nn.Module | None,
        loader: Any,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> None:
        """Move the network to the run's device, restore the checkpoint of a resumed run, and begin the sinks.

        If that checkpoint cannot be loaded, the run begins again from the start, with its old files in attempts/.
        A first batch is taken from `loader` without a trace. With `optimizer` the learning rate is logged. In a run of
        `start_run` the network may be None.
        Raises `UsageError` if `network` is not a module, or on a second call.
        """
        self._folder.refuse_others()
        if self._epochs.has_begun:
            raise UsageError("begin() must be called once in a run, got a second call; begin another run.")
        if not isinstance(network, torch.nn.Module) and not (self._in_program and network is None):
            raise UsageError(f"`network` must be a torch.nn.Module, got {type(network).__name__}.")
        self._begin(network, loader, optimizer, checkpointer)

    def _begin(
        self,
        network: torch.nn.Module | None,
        loader: Any = None,
        optimizer: torch.optim.Optimizer | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> None:
        self._epochs.set_network(network, optimizer, checkpointer)
        if self.is_resumed:
            self.is_resumed = self._epochs.restore_or_begin_again(self._show)
            self._stop_policy.restore(self.history, counted=counted_word(self.record))
        batch = None
        with looking([]):  # the first batch that the loop takes is looked at otherwise
            batch = peek_batch(loader)
        if batch is not None:
            self._epochs.begin_with_batch(batch)
        elif self.is_resumed:
            self._sinks.begin(network, None)
        self._measurements.expect_steps(loader)
        measured, session = self._measurements.measurements(), self._turns and self._turns.session
        known = None if network is None else num_parameters(network)
        self._folder.write(num_parameters=known, measurements=measured, session=session)
        self._steps.start_clock()

    def _ensure_begun(self, call: str) -> None:
        """Begin the run of a program without a network. Raises `UsageError` in any other run that has not begun."""
        if self._epochs.has_begun:
            return
        if not self._in_program:
            raise UsageError(f"A run must have begun before {call}(), got no network; call begin(network, loader).")
        self._begin(None)

    def _begin_sinks(self) -> None:
        """Begin the sinks of a program's run, whose values may all belong to the summary."""
        if self._in_program:
            self._ensure_begun("log")
            if self._epochs.network is None:
                self._sinks.ensure_begun(None)

    def begin_epoch(self, number: int | None = None, *, is_all_training: bool = False) -> Epoch:
        """Start the clock of the next epoch, or of epoch `number`. Raises `UsageError` while another one is open."""
        self._folder.refuse_others()
        self._ensure_begun("begin_epoch")
        self._steps.refuse_epochs("begin_epoch")
        history = self._epochs.history
        number = history.next_number if number is None else whole_number("number", number)
        make = partial(self._epochs.make, is_all_training=is_all_training)
        self._epochs.restore_random_states()
        return self._open.begin(make, number, last=history.last_number)

    def end_epoch(self, epoch: Epoch) -> EpochRecord:
        """Stop the clock, record the epoch, and return its record.

        Raises `RunBusyError` and writes nothing if another process has taken the run over; `UsageError` for an epoch
        that has ended, or is another run's.
        """
        self._folder.refuse_others()
        self._epochs.note_parts(epoch)
        record = self._epochs.record(epoch, *self._open.close(epoch))
        if self._ranks is not None:
            self._stop_policy.stop(self._ranks.stop)
        self._stop_policy.process_epoch(record, counted=counted_word(self.record))
        self._directions.update()
        if self._ranks is not None:
            self._ranks.recorded()
        return record

    def discard_epoch(self) -> None:
        """Leave no epoch open, and record none, for a loop that begins again."""
        self._open.discard()

    @sigchld_ignored()
    def end(self, error: BaseException | None = None) -> RunRecord:
        """Record the run's end, as given by `error` or by its epochs; nothing if another process has taken it over.

        A second call changes nothing. An epoch that is still open is recorded if all of its batches were taken.
        Otherwise it is discarded, and without an `error` the run has failed and `UsageError` is raised.
        """
        if self.record.status.is_ended:
            return self.record
        is_lost = True
        try:
            if is_lost := self._folder.is_lost():
                return self.record
        finally:
            if is_lost:  # or its folder is gone
                self._heartbeat.stop(keeps_file=True)
                self._folder.leave()
        self._folder.refuse_others()
        with self._open.lock:
            try:
                if (left := self._steps.finish()) is not None:
                    self._values.keep(left)
                self._open.end_or_discard(self.end_epoch, must_be_whole=error is None)
                self._values.write()
            except BaseException as fault:
                self.end(error or fault)
                raise
            return self._end(error)

    def _end(self, error: BaseException | None) -> RunRecord:
        self._epochs.follow_device(is_timed=False)
        outcome, run_seconds = self._outcome(error), self._clock.seconds()  # before pictures are drawn
        memory = self._measurements.peak_memory(self.record)
        if self._ranks is not None:
            self._leave_ranks(self._ranks, error)
            memory = self._ranks.largest_memory or memory
        network = self._epochs.network
        try:
            self._notes.extend(self._measurements.finish())
            self._directions.update()
            if self._epochs.has_begun:
                self._sinks.ensure_begun(network)
            if outcome.status.is_success:
                self._notes.extend(self._stop_policy.notes)
                # Before the record is written: after a kill in between, the run would not be resumed to draw them.
                self._sinks.finish()
        except BaseException as fault:
            self._is_end_torn = True
            self.end(error or fault)
            raise
        try:
            if outcome.status.is_success:
                self._epochs.history.sync()  # else a power cut could leave `finished` without the last epoch
            kept = self._kept_record()
            record = end_own_run(
                self._folder,
                outcome,
                run_seconds=kept.run_seconds if kept else run_seconds,
                num_parameters=None if network is None else num_parameters(network),
                peak_memory_bytes=memory,
                environment=kept.environment
                if kept
                else self._measurements.environment_at_end(self.record.environment),
                measurements=self._measurements.measurements(),
                notes=self._notes.lines,
                num_records=len(self.history) if outcome.status.is_success else msgspec.UNSET,
            )
        except OSError as fault:  # a full disk, for example: the outcome is written again when the run is dropped
            known = outcome_of(fault) if outcome.status.is_success else outcome
            self._when_dropped.cancel()
            self._when_dropped = end_run_when_dropped(self, self._folder, self._heartbeat, known)
            raise
        if error is not None and not outcome.status.is_success:
            write_traceback(error, self.paths.error)
        self._heartbeat.stop()
        self._when_dropped.cancel()
        self._folder.leave()
        unregister(self)
        self._sinks.end(record)
        if self._on_end is not None:
            self._on_end()
        return record

    def _kept_record(self) -> RunRecord | None:
        """The record of a finished run that was opened again only to measure inference; None for any other.

        Its training keeps its time and its conditions.
        """
        before = self._folder.resumed_from
        is_kept = self._turns is None and not self._measurements.has_trained
        return before if is_kept and before is not None and before.is_complete else None

    def _outcome(self, error: BaseException | None) -> Outcome:
        is_measured = self._turns is None or self._turns.is_over
        planned = self.record.epochs_planned
        needs_epochs = planned is not None or not (self._in_program or self._values.has_any)
        seen = self._stop_policy.seen(self.history, planned=planned, is_measured=is_measured, needs_epochs=needs_epochs)
        if self._is_end_torn:  # what belongs to a good end is missing: a rerun makes it
            seen = replace(seen, is_complete=False, own_end_is_first=False)
        stop = asked_to_stop(self.paths, self.record.attempt) or seen.stop
        if error is None:
            return judge(replace(seen, stop=stop))
        batch_size, peak = self.record.config.get("batch_size"), peak_memory(self.device)
        outcome = outcome_of(error, batch_size=batch_size, memory_bytes=peak)
        if self._ranks is not None:
            outcome = self._ranks.outcome(error, outcome)
        if stop is None and isinstance(error, KeyboardInterrupt):
            stop = outcome
        return judge(replace(seen, stop=stop, error=outcome))

    def __enter__(self) -> Self:
        if self._on_enter is not None:
            try:
                self._on_enter(self)
            except BaseException as error:
                self.end(error)
                raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._folder.is_ours:  # not in a fork, nor if the body has ended the run itself
            self.end(error)
