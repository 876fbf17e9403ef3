"""The epoch recorder: makes a run's epochs, with checkpoints within them, and records each one when it has ended."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import torch

from runmanager.errors import RunBusyError
from runmanager.records.run.run_record import PHASES, EpochRecord, counted_word
from runmanager.records.storage.run_folder import RunFolder
from runmanager.text import pluralize
from runmanager.tracking.checkpoint.checkpoint_file import CheckpointError
from runmanager.tracking.device.devices import device_in_use, device_of, indexed, is_same_device
from runmanager.tracking.epoch import Epoch, EpochContext
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses
from runmanager.tracking.epoch_part import EpochPart, LoggedState
from runmanager.tracking.lifecycle.open_run import begin_again
from runmanager.tracking.lifecycle.run_epochs import EpochHistory
from runmanager.tracking.lifecycle.run_measurements import RunMeasurements
from runmanager.tracking.lifecycle.run_sinks import RunSinks
from runmanager.tracking.lifecycle.run_values import RunValues
from runmanager.tracking.monitoring.heartbeat_writer import Heartbeat
from runmanager.tracking.options import Checkpointer, Progress, RunOptions
from runmanager.tracking.ranks.run_ranks import RunRanks
from runmanager.tracking.sinks import EpochDetails
from runmanager.tracking.step_interval import StepInterval
from runmanager.tracking.tensorboard.event_writer import truncate_events
from runmanager.tracking.timing.interleaving import RunClock
from runmanager.tracking.timing.phases import TimingNotes
from runmanager.tracking.timing.timer import PhaseTimer, clock_for
from runmanager.tracking.torch_internals import version_notes


class PartCheckpoints:
    """Calls `save(epoch)` between two batches of an epoch, at most once every `seconds` (0: never)."""

    def __init__(
        self,
        checkpointer: Checkpointer,
        save: Callable[[Epoch], None],
        *,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checkpointer = checkpointer
        self._save = save
        self._seconds = seconds
        self._clock = clock
        self._last = clock()

    def saved(self) -> None:
        """Note that a checkpoint has just been taken."""
        self._last = self._clock()

    def after_step(self, epoch: Epoch, loader: Any) -> None:
        """Take a checkpoint if one is due and the epoch can continue from here."""
        if not self._seconds or not self._checkpointer.resumes_within(loader):
            return
        if self._clock() - self._last >= self._seconds:
            with epoch.phase("tracking"):
                self._save(epoch)
            self.saved()


@dataclass(frozen=True)
class RunPlace:
    """Where a run is: its folder, its device, and the other ranks that it consists of.

    With `keeps_place` its network stays where it is.
    """

    folder: RunFolder
    device: torch.device
    keeps_place: bool = False
    ranks: RunRanks | None = None


class EpochRecorder:
    """Makes the epochs of a run, and records each one when it has ended.

    Recording an epoch notifies the sinks, then saves the checkpoint, then appends to epochs.jsonl. `num_steps` counts
    the optimizer steps in the recorded epochs.
    """

    def __init__(
        self,
        place: RunPlace,
        options: RunOptions,
        *,
        clock: RunClock,
        sinks: RunSinks,
        measurements: RunMeasurements,
        values: RunValues,
        heartbeat: Heartbeat,
    ) -> None:
        self.history = EpochHistory(place.folder, warmup_epochs=options.warmup_epochs)
        self.timer = clock.timer
        self.network: torch.nn.Module | None = None
        self.has_begun = False
        self.num_steps = 0
        self._clock = clock
        self._folder = place.folder
        self.device = indexed(place.device)
        self._named = place.device  # without an index until the program has shown which one it uses
        self._keeps_place = place.keeps_place
        self._ranks = place.ranks
        self._batches_to: torch.device | None = place.device
        self._options = options
        self._sinks = sinks
        self._notes = sinks.notes
        self._measurements = measurements
        self._values = values
        self._heartbeat = heartbeat
        self._timing_notes = TimingNotes()
        self._optimizer: torch.optim.Optimizer | None = None
        self._checkpointer: Checkpointer | None = None
        self._part_checkpoints: PartCheckpoints | None = None
        self._part: EpochPart | None = None  # of the epoch within which the run was resumed
        self._learning_rate: float | None = None

    def set_network(
        self,
        network: torch.nn.Module | None,
        optimizer: torch.optim.Optimizer | None,
        checkpointer: Checkpointer | None,
    ) -> None:
        """Move the network to the run's device, and use it in the epochs that follow.

        It stays where it is in a run that `keeps_place`, as batches do if there is no network. A network whose first
        tensor is on another device of the run's kind is moved there as a whole, unless the run's device has an index.
        """
        self.has_begun = True
        self._optimizer, self._checkpointer = optimizer, checkpointer
        if network is not None:
            there = device_of(network)
            is_of_kind = self._named.index is None and there is not None and there.type == self._named.type
            self.network = network if self._keeps_place else network.to(there if is_of_kind else self._named)
        elif self._keeps_place:
            self._batches_to = None
        self.follow_device()
        if checkpointer is not None:
            seconds = self._options.checkpoint_seconds
            self._part_checkpoints = PartCheckpoints(checkpointer, self._save_part, seconds=seconds)
        self._begin_measurements()

    def follow_device(self, *, is_timed: bool = True) -> bool:
        """Measure the accelerator that the program uses by now, from here on; return whether it is another device.

        That is where its network is. Without one it is the accelerator with the most memory in use, unless the
        settings name another.
        """
        found = device_of(self.network)
        if found is None and (self._keeps_place or self._named.index is None):
            found = device_in_use()
        if found is None or found.type == "cpu" or is_same_device(found, self.device):
            return False
        if not self._keeps_place and found.type != self.device.type:
            if self.network is None:
                return False  # the program may use it for something else
            self._notes.note_deviation(f"device is {self._named} in the settings, and the network was moved to {found}")
        self.device = self._named = self._sinks.device = found
        if self._batches_to is not None:
            self._batches_to = found
        self._measurements.use(found)
        if is_timed:
            self.timer.use(clock_for(found))
        return True

    def _begin_measurements(self) -> None:
        """Begin to measure, from what the run's record has of earlier attempts."""
        self._notes.extend(version_notes())
        self._measurements.begin(
            self.network, self._folder.record, optimizer=self._optimizer, precision=self._options.precision
        )

    def restore_or_begin_again(self, show: Callable[[str], None]) -> bool:
        """Restore the checkpoint; if it cannot be loaded, begin the run again, `show` a line, and return False."""
        try:
            self._restore()
        except CheckpointError as error:
            line = begin_again(self._folder, error)
            self._notes.clear()
            self._notes.note(line)
            self._values.restore(LoggedState())
            self._begin_measurements()
            show(f"{self._folder.record.name}: {line}")
            return False
        return True

    def _restore(self) -> None:
        """Restore the state and epochs of the checkpoint; epochs and events recorded after it are cut.

        Raises `CheckpointError`, and changes nothing, if it cannot be loaded.
        """
        assert self._checkpointer is not None
        progress = self._checkpointer.load(self._folder.paths.checkpoint)
        self.history.restore(progress.record)
        if lost := self.history.num_lost:
            epochs = pluralize(lost, "epoch", "epochs")
            self._notes.note_deviation(f"{epochs} before the run was resumed had no record in epochs.jsonl any more")
        self.num_steps = progress.num_steps
        self._part = progress.part or None
        last = self._part or progress.record
        self._clock.earlier_seconds = (last and last.run_seconds) or 0.0
        if progress.logged is not msgspec.UNSET:
            self._values.restore(progress.logged)
        if (events := self._folder.paths.events) is not None:
            truncate_events(events, progress.events_length)

    def begin_with_batch(self, batch: Any) -> None:
        """Begin the sinks with `batch`, or the first samples of one."""
        with self._measurements.unobserved():
            self._sinks.begin(self.network, batch)
        self._measurements.reset_peak_memory()

    @property
    def has_checkpoint(self) -> bool:
        """Whether the state of the training is saved with its records."""
        return self._checkpointer is not None

    def restore_random_states(self) -> None:
        """Restore the random states of a checkpoint that was loaded since the last epoch."""
        if self._checkpointer is not None:
            self._checkpointer.epoch_begins()

    def make(self, number: int, *, is_all_training: bool) -> Epoch:
        """Start the clock of epoch `number`."""
        self.follow_device()
        self._prepare(trains=number > 0)
        self.timer.start()
        part, self._part = self._part, None
        epoch = Epoch(
            number,
            self._context(),
            steps_before=self.num_steps,
            is_all_training=is_all_training,
            earlier=part if part is not None and part.epoch == number else None,
            after_step=None if self._part_checkpoints is None else self._part_checkpoints.after_step,
        )
        epoch.observer = self._measurements.observer(epoch)
        return epoch

    def make_interval(self, number: int, *, continues: bool, seconds: float) -> StepInterval:
        """Begin an interval of steps: now, or if it `continues` at the last mark of the clock.

        Without `record_every` it takes as many steps as take `seconds`, a number that all ranks agree on.
        """
        if not continues:
            self.follow_device()
        self._prepare()
        if not continues:
            self.timer.start()
        record_every = self._options.record_every
        if record_every is None and self._ranks is not None:
            record_every = self._ranks.record_every(seconds)
        interval = StepInterval(
            number, self._context(), steps_before=self.num_steps, record_every=record_every, seconds=seconds
        )
        interval.observer = self._measurements.observer(interval, continues=continues)
        return interval

    def _prepare(self, *, trains: bool = True) -> None:
        self._measurements.epoch_begins(trains=trains)
        if self._optimizer is not None:
            self._learning_rate = float(self._optimizer.param_groups[0]["lr"])

    def _context(self) -> EpochContext:
        return EpochContext(
            self.timer,
            self._batches_to,
            log_every=self._options.log_every,
            heartbeat=self._heartbeat,
            on_first_batch=None if self._sinks.have_begun else self.begin_with_batch,
            keep_scores=self._sinks.need_scores,
            share=None if self._ranks is None else self._ranks.share,
        )

    def make_unrecorded(self, number: int, *, timer: PhaseTimer, keep_scores: bool = False) -> Epoch:
        """Return an epoch that is never recorded."""
        context = EpochContext(timer, self.device, heartbeat=self._heartbeat, keep_scores=keep_scores)
        return Epoch(number, context)

    def record(self, epoch: Epoch, record: EpochRecord, step_losses: LoggedLosses) -> EpochRecord:
        """Record a closed epoch; return its complete record.

        Raises `RunBusyError` and writes nothing if another process has taken the run over; after recording it, the
        error of a logged metric that could not be computed.
        """
        assert epoch.phase_times is not None
        self._notes.extend([*self._timing_notes.add(epoch.phase_times), *epoch.notes])
        self._refuse_if_lost()  # reads a file, so only after the clock has stopped
        is_continued = epoch.parts.are_several
        readings = self._measurements.readings()
        warmup = self.history.judge_warmup(record, self.timer.step_seconds, is_continued=is_continued)
        record = msgspec.structs.replace(record, warmup=warmup, run_seconds=self._clock.seconds(), readings=readings)
        interval = epoch if isinstance(epoch, StepInterval) else None
        is_unmeasured = self.follow_device() or (interval is not None and interval.lacks_first_step)
        if is_unmeasured:
            record = _without_times(record)
            self._notes.note(
                f"{counted_word(self._folder.record)} {record.epoch} has no times: it began before {self.device} was "
                "seen to be used, whose own clock times the work there"
            )
        num_steps = self._num_steps_of(epoch)
        self._notes.extend(self._measurements.epoch_ends(epoch, num_steps=num_steps))
        self.num_steps = epoch.num_steps
        self._sinks.ensure_begun(self.network)
        details = EpochDetails(
            self.network,
            self._learning_rate,
            step_losses,
            epoch.evaluation,
            epoch.step_points,
            first_step=None if interval is None else interval.steps_before + 1,
            first_call=self._measurements.first_call,
        )
        self._sinks.epoch(record, details)
        self.history.revise_warmup()  # before the checkpoint: a resumed run does not judge these epochs again
        if is_unmeasured:
            with_wall_times: Callable[[EpochRecord], EpochRecord] = _without_times
        elif interval is None:
            with_wall_times = partial(
                self._clock.with_wall_times,
                earlier_seconds=epoch.parts.earlier_seconds,
                waited_seconds=0.0 if self._ranks is None else self._ranks.waited_seconds,
            )
        else:
            with_wall_times = partial(_with_device_times, interval)
        self._save_checkpoint(record, with_wall_times)
        record = with_wall_times(record)
        self.history.append(record)
        if self.history.num_trained == 1:
            self._folder.write(measurements=self._measurements.measurements())  # so that a kill does not lose them all
        self._heartbeat.progress += 1
        if epoch.metric_error is not None:
            raise epoch.metric_error
        return record

    def _num_steps_of(self, epoch: Epoch) -> int:
        """Return an epoch's number of steps; 0 for intervals of a second, whose numbers differ."""
        is_variable = isinstance(epoch, StepInterval) and self._options.record_every is None
        return 0 if is_variable else epoch.num_steps - self.num_steps

    def _refuse_if_lost(self) -> None:
        if self._folder.is_lost():
            name = self._folder.record.name
            raise RunBusyError(
                f"Run {name} was taken over by another process, which saw no sign of life from this one."
            )

    def note_parts(self, epoch: Epoch) -> None:
        """Note that an epoch that is about to end was made in parts, and leave out metrics that saw only the last."""
        if self._checkpointer is None or not epoch.parts.are_several:
            return
        line = f"epoch {epoch.number} was made in parts, as the run was resumed within it; its times count as warm-up"
        if dropped := epoch.parts.drop_partial_metrics(self._checkpointer.is_complete):
            line += f"; {', '.join(dropped)} saw only its last part and is left out: add it to `state`"
        self._notes.extend([line])

    def _save_checkpoint(self, record: EpochRecord, with_wall_times: Callable[[EpochRecord], EpochRecord]) -> None:
        if self._checkpointer is None or self._part_checkpoints is None:
            return
        self._checkpointer.observe(record)
        if self._checkpointer.is_due(record.epoch):
            self.history.sync()  # else a power cut could leave the checkpoint without an epoch before its own
            self._checkpointer.save(self._folder.paths.checkpoint, self._progress(with_wall_times(record)))
            self._part_checkpoints.saved()

    def _save_part(self, epoch: Epoch) -> None:
        """Save a checkpoint within an epoch. Raises `RunBusyError` if another process has taken the run over."""
        assert self._checkpointer is not None
        self._refuse_if_lost()
        part = msgspec.structs.replace(epoch.part(), run_seconds=self._clock.seconds())
        last = self.history.records[-1] if self.history.records else None
        self.history.sync()
        self._checkpointer.save(self._folder.paths.checkpoint, self._progress(last, part))

    def _progress(self, last: EpochRecord | None, part: EpochPart | msgspec.UnsetType = msgspec.UNSET) -> Progress:
        logged = self._values.state()  # first, as it may write events
        events = self._folder.paths.events
        return Progress(last, events.stat().st_size if events else 0, self.num_steps, part, logged)


def _without_times(record: EpochRecord) -> EpochRecord:
    names = ("epoch_seconds", "wall_seconds", *(f"{phase}_seconds" for phase in PHASES))
    return msgspec.structs.replace(record, **dict.fromkeys(names), readings=msgspec.UNSET)


def _with_device_times(interval: StepInterval, record: EpochRecord) -> EpochRecord:
    """Complete an interval's record: its times follow one another, so recording one is part of the next."""
    assert interval.phase_times is not None
    total = sum(interval.phase_times.seconds.values()) + interval.phase_times.unclaimed
    return msgspec.structs.replace(record, wall_seconds=total)
