"""Whose time it is: an epoch's time divided among its phases by what its loop is handed, tracks, and marks.

The time up to a tracked step is training, unless it is marked as something else. What follows the last step is
evaluation where evaluated batches are tracked or handed out, or where it is marked. The rest belongs to no phase.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from runmanager.tracking.timing.timer import TRAINING, PhaseTimer

__all__ = ["Division", "Part", "Phases", "Unmarked"]

_TRAINING_PHASES = ("data", "transfer", "compute")
_WORTH_A_NOTE = 0.01  # of the epochs: the phases add up to their wall time within that
_LEAST_NOTED_SECONDS = 0.05  # a busy machine takes some hundredths of a second between any two lines of a loop
_UNMARKED = (
    "the time after an epoch's last tracked step is in `wall_seconds` alone where it is neither tracked nor marked; "
    "track the evaluation (`track_eval`), or mark it (`with epoch.evaluating():`)"
)
_REPEATED = (
    "`track` was called more often than batches were taken from `epoch.batches`, and each call counts as a step with "
    "its samples; of several losses of one step track one, or their sum"
)
_GUESSED = (
    "where no step of an epoch was tracked, all of its time that is not marked counts as training; call `epoch.track` "
    "after each step"
)


class _Unclaimed(NamedTuple):
    """Time after so many tracked steps: training, if another one follows."""

    num_trained: int


_EVALUATED_FIRST = object()
"""Time up to an evaluated batch where no step was tracked before: evaluation, if any step is tracked at all."""


class Part:
    """A part of an epoch whose time goes to `phase`; `is_marked` where it is a `with` block of somebody's."""

    __slots__ = ("_phases", "is_marked", "phase")

    def __init__(self, phases: "Phases", phase: str, *, is_marked: bool = False) -> None:
        self._phases = phases
        self.phase = phase
        self.is_marked = is_marked

    def __enter__(self) -> None:
        self._phases.enter(self)

    def __exit__(self, *_: object) -> None:
        self._phases.leave(self)


@dataclass(frozen=True)
class Division:
    """The seconds of an epoch by phase; those of training that no single phase is known for are `TRAINING`'s.

    `unclaimed` ones belong to no phase. `is_guessed`: nothing said which part of the epoch was training. `is_repeated`:
    there were more tracked steps than batches handed out.
    """

    seconds: Mapping[str, float]
    unclaimed: float
    is_guessed: bool
    is_repeated: bool


class Unmarked:
    """Looks at a run's epochs, one after the other, for time that nobody tracked or marked, and steps tracked twice."""

    def __init__(self) -> None:
        self._unclaimed = self._guessed = self._total = 0.0

    def look_at(self, division: Division) -> list[str]:
        """What is to be said by now; the same again with each further epoch."""
        self._total += sum(division.seconds.values()) + division.unclaimed
        self._unclaimed += division.unclaimed
        self._guessed += division.seconds.get(TRAINING, 0.0) if division.is_guessed else 0.0
        least = max(_WORTH_A_NOTE * self._total, _LEAST_NOTED_SECONDS)
        said = ((self._unclaimed, _UNMARKED), (self._guessed, _GUESSED))
        return [note for seconds, note in said if seconds > least] + [_REPEATED] * division.is_repeated


class Phases:
    """Marks on `timer` whose time it is; a mark goes to the innermost part that is open.

    Where none is, it goes to `otherwise`, or without that to what is tracked next. `open` has the innermost part last;
    one that goes on after others had begun becomes the last. A step is put there as its batch is handed out.
    """

    def __init__(self, timer: PhaseTimer, *, otherwise: str | None = None) -> None:
        self.is_over = False
        self._timer = timer
        self._otherwise = otherwise
        self.open: list[Part] = []
        self._num_handed_out = self._num_tracked = 0

    @property
    def _num_trained(self) -> int:
        """Grows with each step, tracked or not."""
        return self._num_handed_out + self._num_tracked

    @property
    def is_evaluation(self) -> bool:
        """Whether what is done now was said to be evaluation, whatever it is."""
        if self.open:
            return self.open[-1].is_marked and self.open[-1].phase == "eval"
        return self._otherwise == "eval"

    @property
    def is_in_evaluation(self) -> bool:
        """Whether the time goes to evaluation."""
        return (self.open[-1].phase if self.open else self._otherwise) == "eval"

    def marked(self, phase: str) -> Part:
        """A part that somebody marks; the parts of training that lie within an evaluation are evaluation."""
        return Part(self, "eval" if self.is_in_evaluation and phase in _TRAINING_PHASES else phase, is_marked=True)

    def enter(self, part: Part) -> None:
        """What follows is time of `part`."""
        self._mark_up_to_here()
        self.open.append(part)

    def leave(self, part: Part) -> None:
        """What follows is time of whatever is open besides."""
        if not self.is_over:  # or the time is another epoch's by now
            self._mark_up_to_here()
            self.open.remove(part)

    def resume(self, part: Part) -> None:
        """`part` goes on, whatever has begun and not ended since."""
        if not self.is_over and self.open[-1] is not part:
            self._mark_up_to_here()
            self.open.remove(part)
            self.open.append(part)

    def take_back(self, step: Part) -> None:
        """A step ends, as the next batch is asked for."""
        if self.is_over:
            return
        if (last := self.open[-1].phase) != TRAINING:
            self._timer.mark(last)
        self._timer.mark("compute")
        self.open.remove(step)
        self._num_handed_out += 1

    def trained(self) -> None:
        """A step was tracked."""
        if self.open:
            # Within a step that was handed out its end is marked where an evaluation may follow, which is rare.
            if self._timer.marks_tracked and self.open[-1].phase == TRAINING:
                self._timer.mark(TRAINING)
        elif self._otherwise is None and not self.is_over:
            self._timer.mark(TRAINING)
        self._num_tracked += 1

    def evaluated(self) -> None:
        """An evaluated batch was tracked."""
        if self.open:
            if self.open[-1].phase == TRAINING:
                self._timer.marks_tracked = True  # from now on: of this step the end is not known
                self._timer.mark("eval")
        elif self._otherwise is None and not self.is_over:
            self._timer.mark("eval" if self._num_trained else _EVALUATED_FIRST)

    def resolve(self) -> Division:
        """End the last stretch, wait for the device, and divide the time."""
        if self.open and self.open[-1].phase == TRAINING:
            self._timer.marks_tracked = True  # somebody left the loop and holds on to it: of it the end is not known
            self._num_handed_out += 1
            self.open.clear()
        self._mark_up_to_here()
        self.is_over = True
        self.open.clear()
        return self._divided(self._timer.resolve())

    def _mark_up_to_here(self) -> None:
        if not self.is_over:
            self._timer.mark(self.open[-1].phase if self.open else self._otherwise or _Unclaimed(self._num_trained))

    def _divided(self, stretches: Mapping[Any, float]) -> Division:
        seconds: dict[str, float] = {}
        unclaimed = 0.0
        for name, taken in stretches.items():
            if isinstance(name, _Unclaimed) and self._num_trained == name.num_trained > 0:
                unclaimed += taken
            else:
                phase = self._phase_of(name)
                seconds[phase] = seconds.get(phase, 0.0) + taken
        is_guessed = self._otherwise is None and not self._num_trained
        return Division(seconds, unclaimed, is_guessed, is_repeated=0 < self._num_handed_out < self._num_tracked)

    def _phase_of(self, stretch: Any) -> str:
        """The phase of a stretch that belongs to one, as it is known in the end."""
        if stretch is _EVALUATED_FIRST:
            return "eval" if self._num_trained else TRAINING
        return TRAINING if isinstance(stretch, _Unclaimed) else str(stretch)
