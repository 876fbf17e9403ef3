"""An interval of steps, which takes the place of an epoch in a loop without epochs."""

import time

from runmanager.records.run.run_record import EpochRecord
from runmanager.tracking.epoch import Epoch, EpochContext
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses

SECONDS = 1.0
"""How long an interval takes without `record_every`, at least."""


class StepInterval(Epoch):
    """The steps of one record: `record_every`, or as many as take `seconds`, and the evaluation that follows them.

    Its number is that of its last step. It ends with what was last tracked or marked: what follows belongs to the next
    interval, which begins at that moment. One that `lacks_first_step` has it among its steps, but not in its times.
    """

    lacks_first_step = False

    def __init__(
        self,
        number: int,
        context: EpochContext,
        *,
        steps_before: int = 0,
        record_every: int | None = None,
        seconds: float = SECONDS,
    ) -> None:
        super().__init__(number, context, steps_before=steps_before)
        self._phases.ends_at_last_mark = True
        self.steps_before = self.num_steps
        self._record_every = record_every
        self._seconds = seconds
        self._begun_at = time.perf_counter()  # of the host: reading the device's clock would wait for it

    @property
    def has_steps(self) -> bool:
        """Whether it has tracked a step."""
        return self.num_steps > self.steps_before

    @property
    def is_whole(self) -> bool:
        """Whether it has something to record: any step is a whole one."""
        return self.has_steps

    @property
    def is_full(self) -> bool:
        """Whether its record is due, once its evaluation is over."""
        if self._record_every is not None:
            return self.num_steps - self.steps_before >= self._record_every
        return self.has_steps and time.perf_counter() - self._begun_at >= self._seconds

    @property
    def is_between_parts(self) -> bool:
        """Whether no batch, evaluation or marked block is open."""
        return not self._phases.open

    def close(self) -> tuple[EpochRecord, LoggedLosses]:
        """Give it its number, and close it as an epoch."""
        if self.has_steps:
            self.number = self.num_steps
        return super().close()
