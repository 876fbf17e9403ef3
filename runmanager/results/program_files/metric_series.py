"""A metric's values as one file has them, reduced while they are read."""

from dataclasses import dataclass, field

_MAX_POINTS = 2000


@dataclass
class MetricSeries:
    """The values of one metric: the last one, the last one of each epoch, how many there are of an epoch, its course.

    Epochs are numbered as in the file. `first_step` and `last_step` are the lowest and the highest step with a value;
    of equal steps the value written last counts. `has_stray` is whether a value belongs to no known epoch.
    """

    name: str
    last: float = float("nan")
    first_step: int | None = None
    last_step: int | None = None
    by_epoch: dict[int, float] = field(default_factory=dict)
    most_per_epoch: int = 0
    has_stray: bool = False
    low: float = float("inf")
    high: float = float("-inf")
    _counts: dict[int, int] = field(default_factory=dict)
    _sample: dict[int, float] = field(default_factory=dict)
    _stride: int = 1  # how many values there are for one of the sample
    _num_values: int = 0

    @property
    def points(self) -> dict[int, float]:
        """Values by step, of a long series at even numbers of values, the last one included."""
        return self._sample if self.last_step is None else {**self._sample, self.last_step: self.last}

    def add(self, value: float, *, step: int | None, epoch: int | None) -> None:
        """Add a value of a step (None: that follows the one before) and of an epoch (None: not known)."""
        self.low, self.high = min(self.low, value), max(self.high, value)
        if step is None or self.last_step is None or step >= self.last_step:
            self.last = value
            self.last_step = self.last_step if step is None else step
        if step is not None:
            self.first_step = step if self.first_step is None else min(self.first_step, step)
            self._sample_value(step, value)
        if epoch is None:
            self.has_stray = True
            return
        self.by_epoch[epoch] = value
        self._counts[epoch] = count = self._counts.get(epoch, 0) + 1
        self.most_per_epoch = max(self.most_per_epoch, count)

    def _sample_value(self, step: int, value: float) -> None:
        if self._num_values % self._stride == 0:
            self._sample[step] = value
        self._num_values += 1
        if len(self._sample) > _MAX_POINTS:
            self._sample = dict(list(self._sample.items())[::2])
            self._stride *= 2

    def continue_with(self, later: "MetricSeries") -> None:
        """Add the values of a file that continues this one, such as that of a resumed training.

        What it has at several steps, or of several epochs, replaces all from its first one on.
        """
        if later.first_step is not None and later.first_step != later.last_step:
            self._sample = {step: value for step, value in self._sample.items() if step < later.first_step}
        if len(later.by_epoch) > 1:
            first = min(later.by_epoch)
            self.by_epoch = {epoch: value for epoch, value in self.by_epoch.items() if epoch < first}
        self.last, self.last_step = later.last, later.last_step
        self.first_step = min((step for step in (self.first_step, later.first_step) if step is not None), default=None)
        for step, value in later.points.items():
            self._sample_value(step, value)
        self.by_epoch.update(later.by_epoch)
        self.most_per_epoch = max(self.most_per_epoch, later.most_per_epoch)
        self.has_stray |= later.has_stray
        self.low, self.high = min(self.low, later.low), max(self.high, later.high)
