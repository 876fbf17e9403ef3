"""The calls of a run that the built-in job makes: evaluations out of order, and measured turns."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from runmanager.errors import UsageError
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.run.status import Outcome
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.lifecycle.run_sinks import RunSinks
from runmanager.tracking.run_calls.epoch_calls import EpochCalls
from runmanager.tracking.timing.timer import PhaseTimer, clock_for

__all__ = ["JobCalls"]


class JobCalls(EpochCalls):
    """Epochs of an active run that are not simply the next one."""

    device: torch.device
    _sinks: RunSinks

    @property
    @abstractmethod
    def history(self) -> Sequence[EpochRecord]: ...

    @abstractmethod
    def _outcome(self, error: BaseException | None) -> Outcome: ...

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
            batches, self._epochs.timer, num_steps=num_steps, most_steps=most_steps, leads_in=leads_in
        )
