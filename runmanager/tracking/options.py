"""Options of a run, and the interfaces for its checkpoints, its turns and the observer of its steps. Loads no torch."""

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from runmanager.errors import UsageError
from runmanager.records.run.measurement import METRICS
from runmanager.records.run.metric_names import is_larger_better, parse_better
from runmanager.records.run.run_record import EpochRecord, Grant
from runmanager.text import hidden_character
from runmanager.tracking.epoch_part import EpochPart, LoggedState
from runmanager.validation import allowed, field_faults, limits

if TYPE_CHECKING:
    from runmanager.records.storage.run_folder import RunFolder

_lock = threading.Lock()
_declared: dict[str, str] = {}
_active: "weakref.WeakSet[RunDirections]" = weakref.WeakSet()


def define_metric(name: str, *, better: str) -> None:
    """Declare whether smaller (`min`) or larger (`max`) values of metric `name` are better.

    It holds for the runs of this process that are active or begin later. Without it the words of the name decide, as
    `loss` or `f1`. Raises `UsageError` for another direction, or for a name that cannot be logged.
    """
    check_name(name)
    direction = parse_better(better)
    with _lock:
        _declared[name] = direction
        active = list(_active)
    for run in active:
        if run.is_own:
            run.update()


def declared_directions() -> dict[str, str]:
    """Return the directions declared so far, `min` or `max` by name."""
    with _lock:
        return dict(_declared)


def larger_is_better(name: str) -> bool:
    """Return whether larger values of metric `name` are better. Raises `UsageError` if that is not known."""
    known = is_larger_better(name, declared_directions())
    if known is None:
        raise UsageError(
            f"It must be known whether smaller or larger values of a monitored metric are better, got {name!r}, whose "
            f"name does not say it; call runmanager.define_metric({name!r}, better=…) with min or max first."
        )
    return known


def check_name(name: Any) -> None:
    """Raise `UsageError` unless `name` is text that a metric can have as its name, and that conditions can name.

    It is of visible characters, not blank, and without backticks and outer spaces.
    """
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"A metric's name must be text of one line, and not blank, got {name!r}.")
    if hidden := hidden_character(name):
        raise UsageError(f"A metric's name must be of visible characters, got {name!r} with {hidden}; leave it out.")
    if "`" in name or name != name.strip():
        raise UsageError(f"A metric's name must be without backticks and outer spaces, got {name!r}.")


class RunDirections:
    """Keeps the declared directions in a run's record.

    Only the thread that began the run writes them when they are declared; what other threads declare is written at
    the next `update`, as two threads may not write one record at the same time.
    """

    def __init__(self, folder: "RunFolder") -> None:
        self._folder = folder
        self._thread = threading.get_ident()
        self._process = os.getpid()
        with _lock:
            _active.add(self)
        self.update()

    @property
    def is_own(self) -> bool:
        """Whether this is the thread that began the run."""
        return (os.getpid(), threading.get_ident()) == (self._process, self._thread)

    def update(self) -> None:
        """Write the directions that the record lacks, unless the run has ended."""
        stored = self._folder.record.better or {}
        better = stored | declared_directions()
        if better != stored and self._folder.is_ours:
            self._folder.write(better=better)


CAPTURING_DEVICES = ("cuda",)
"""Device types that can capture the work of a step and replay it."""
STREAMING_DEVICES = ("cuda", "xpu")
"""Device types that can copy on one stream while they compute on another."""

RECORDED = f"null, {', '.join(METRICS)}, or what `metrics` records"
"""The metrics that a setting of a run may name, in words."""


@dataclass(frozen=True)
class TensorBoardOptions:
    """What TensorBoard gets in addition to the scalars; `enabled=false` writes no event file.

    `predictions` and `confusion_matrix` are pictures of evaluations.
    """

    enabled: bool = True
    """Write an event file."""
    images: bool = True
    """Write a grid of the first training images."""
    graph: bool = True
    """Write the graph of the model."""
    histograms: bool = False
    """Write histograms of weights and gradients."""
    predictions: bool = True
    """Write images of an evaluation with their predicted and true classes."""
    confusion_matrix: bool = True
    """Write the confusion matrix of an evaluation."""


@dataclass(frozen=True)
class EarlyStopOptions:
    """Stop after `patience` epochs in which `metric` improved by no more than `min_delta`; null never stops.

    `metric` is any metric that the epochs record.
    """

    metric: str | None = field(default=None, metadata=allowed(RECORDED))
    """A recorded metric; the run ends once it has not improved for `patience` epochs. null never stops."""
    patience: int = field(default=3, metadata=limits(ge=1))
    """Epochs without an improvement after which a run ends."""
    min_delta: float = field(default=0.0, metadata=limits(ge=0))
    """The least change of the metric that counts as an improvement."""


def metric_value(record: EpochRecord, metric: str) -> float | None:
    """Return an epoch's value of a metric, one of `METRICS` or a logged one; None if the epoch lacks it."""
    if metric in METRICS and (value := getattr(record, metric)) is not None:
        return float(value)
    return (record.metrics or {}).get(metric)


def is_better(metric: str, value: float, best: float | None, *, by: float = 0.0) -> bool:
    """Return whether `value` of `metric` is better than `best` by more than `by`; any value is better than None.

    Raises `UsageError` if it is not known which values of the metric are better.
    """
    sign = 1 if larger_is_better(metric) else -1
    return best is None or sign * (value - best) > by


class TurnSource(Protocol):
    """Grants a run its turns on a machine that several runs share; `session` is the name of the group.

    With `again` a finished run continues from its last checkpoint, to repeat its measured turns. `family` is the
    process whose descendants take the turns; None for the parent of the run's process.
    """

    session: str
    again: bool
    family: int | None

    def ask(
        self, *, is_measured: bool, samples: int = 0, seconds: float = 0.0, is_cancelled: Callable[[], bool]
    ) -> Grant | None:
        """End the last turn, with what it measured, and wait for the next; returns None after the last turn.

        Raises `EOFError` if the process that grants turns is gone.
        """
        ...


@dataclass(frozen=True)
class RunOptions:
    """How a run is tracked: `step/loss` every `log_every` steps (0: never), and at least `warmup_epochs` of warm-up.

    With `turns` the run trains and is measured only in its turns. `precision` is the type that a step's products are
    computed in (`bf16`, `fp16`); by default it is found out from the weights and autocast. `flop_per_sample` states
    the FLOP of training on one sample, which are otherwise counted (see `Measurements`). `keep_best` is a recorded
    metric: best.pt has the weights of its best epoch. A run whose `state` has a loader that can resume within an epoch
    is also checkpointed there, every `checkpoint_seconds` (0: at the end of epochs only). `is_built_in` is for this
    package's own job: the process's main script then does not belong to its code. In a loop without epochs a record
    closes every `record_every` steps, by default after as many as take a second. The ranks of a run wait for each other
    at the end of an epoch for at most `rank_timeout` seconds.

    With `extends_epochs` a new run continues after the last epoch of a finished one that is the same but for the
    setting `epochs`: this promises that the training of an epoch does not depend on how many epochs follow, as that of
    a cosine schedule does. It needs a `state`, and has no effect in a cell of a sweep.

    Raises `UsageError` for a number out of range, here or in `early_stop`.
    """

    log_every: int = field(default=0, metadata=limits(ge=0))
    warmup_epochs: int = field(default=1, metadata=limits(ge=0))
    early_stop: EarlyStopOptions = field(default_factory=EarlyStopOptions)
    turns: TurnSource | None = None
    precision: str | None = None
    flop_per_sample: float | None = field(
        default=None, metadata=limits(gt=0, way_out="leave it out to have the FLOP counted")
    )
    keep_best: str | None = None
    checkpoint_seconds: float = field(default=60.0, metadata=limits(ge=0))
    is_built_in: bool = False
    record_every: int | None = field(default=None, metadata=limits(ge=1))
    rank_timeout: float = field(default=1800.0, metadata=limits(gt=0))
    extends_epochs: bool = False

    def __post_init__(self) -> None:
        if faults := field_faults(self) + field_faults(self.early_stop, "early_stop."):
            raise UsageError(" ".join(faults))


class Progress(msgspec.Struct, frozen=True):
    """The progress of a run that a checkpoint stores with the training state.

    `record` is the last complete epoch's, as known when the checkpoint is written, None before the first;
    `events_length` is the event file's size in bytes; `num_steps` is the number of optimizer steps up to that epoch's
    end. `part` is what the next epoch has given so far, if the checkpoint was taken within it. `logged` is what the
    program has logged of the whole run.
    """

    record: EpochRecord | None
    events_length: int
    num_steps: int
    part: EpochPart | msgspec.UnsetType = msgspec.UNSET
    logged: LoggedState | msgspec.UnsetType = msgspec.UNSET


class StepObserver(Protocol):
    """Sees each tracked step of an epoch, until it has finished."""

    is_finished: bool

    def step_tracked(self, units: Mapping[str, int]) -> None:
        """End a step that trained on these numbers of `units`, samples among them."""
        ...

    def discard(self) -> None:
        """Forget what was seen since the last step: it was evaluation."""
        ...


class Checkpointer(Protocol):
    """Saves and loads the training state of a run; after each epoch its methods are called in this order."""

    def observe(self, record: EpochRecord) -> None:
        """Note the epoch's metrics; its wall time is not known yet."""
        ...

    def is_due(self, epoch: int) -> bool:
        """Return whether to save after this epoch."""
        ...

    def save(self, path: Path, progress: Progress) -> None:
        """Write state and progress atomically."""
        ...

    def resumes_within(self, loader: Any) -> bool:
        """Return whether the state lets an epoch over `loader` continue in the middle, after the step just made."""
        ...

    def is_complete(self, metric: Any) -> bool:
        """Return whether the state restores what an accumulator of torchmetrics has added up."""
        ...

    def load(self, path: Path) -> Progress:
        """Restore the state and return the progress. Raises `RecordError`, and changes nothing, if it cannot."""
        ...

    def epoch_begins(self) -> None:
        """Restore the random states of a checkpoint that was loaded since the last epoch."""
        ...
