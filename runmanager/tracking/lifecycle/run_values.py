"""What a program logs of the whole run: its summary, values of steps, pictures and texts for the sinks."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import msgspec
import numpy as np
import torch

from runmanager.errors import UsageError
from runmanager.records.run.measurement import METRICS
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.settings.secrets import redacted
from runmanager.records.storage.run_folder import RunFolder
from runmanager.text import encodable, error_line
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.epoch_metrics.logged_metrics import as_number, computed, is_accumulator, on_host, whole_number
from runmanager.tracking.epoch_metrics.step_values import Reduce, StepValues, check_reduce
from runmanager.tracking.epoch_part import LoggedState, SeriesState
from runmanager.tracking.lifecycle.run_sinks import RunSinks
from runmanager.tracking.options import check_name
from runmanager.tracking.torch_internals import as_plain

_SECONDS_BETWEEN_WRITES = 1.0


class Summary(MutableMapping[str, float]):
    """The metrics of a whole run, by name: `run.summary["test_accuracy"] = 0.93`.

    A value is a number, a tensor of one number, or an object with `compute()` and `reset()`, which are called at once.
    It is in the run's record within a second, and when the run ends. Reading a tensor's value waits for its device.
    Raises `UsageError` for other values, for a name that is empty or not text, and in another thread or after the end.
    """

    def __init__(self, stored: Mapping[str, float | None], check: Callable[[], None], changed: Callable[[], None]):
        self._values: dict[str, float | torch.Tensor | StepValues] = {
            name: math.nan if value is None else value for name, value in stored.items()
        }
        self._check = check
        self._changed = changed

    def __setitem__(self, name: str, value: Any) -> None:
        self._check()
        check_name(name)
        if is_accumulator(value):
            result = computed(name, value.compute(), known=())
            value.reset()
        else:
            result = {name: as_number(name, value)}
        for each, number in result.items():
            self._values[each] = number.detach().clone() if isinstance(number, torch.Tensor) else number
        self._changed()

    def __getitem__(self, name: str) -> float:
        value = self._values[name]
        if isinstance(value, StepValues):
            return value.result()
        return float(value)

    def __delitem__(self, name: str) -> None:
        self._check()
        del self._values[name]
        self._changed()

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self))

    def series(self, name: str) -> StepValues:
        """Return the collection of the values of steps under a name; one that was set is replaced."""
        known = self._values.get(name)
        if not isinstance(known, StepValues):
            known = self._values[name] = StepValues()
        return known

    def state(self) -> dict[str, float | SeriesState]:
        """Return all values for a checkpoint; waits for the devices that hold some."""
        return {
            name: each.state() if isinstance(each, StepValues) else float(each) for name, each in self._values.items()
        }

    def restore(self, state: Mapping[str, float | SeriesState]) -> None:
        """Replace all values by what `state` returned."""
        self._values = {
            name: StepValues.restored(each) if isinstance(each, SeriesState) else each for name, each in state.items()
        }

    def numbers(self) -> dict[str, float]:
        """Return all values; waits for the devices that hold some, once each."""
        known = {name: each.result() if isinstance(each, StepValues) else each for name, each in self._values.items()}
        return on_host(known)


class RunValues:
    """Takes the values that a program logs: for the open record, else for the run's summary.

    The summary is written at most once a second. `begin` makes the sinks ready, which get the values of steps.
    """

    def __init__(
        self,
        folder: RunFolder,
        sinks: RunSinks,
        begin: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.summary = Summary(folder.record.summary or {}, self._check, self._changed)
        self._folder = folder
        self._sinks = sinks
        self._begin = begin
        self._clock = clock
        self._thread = threading.get_ident()
        self._steps: dict[str, int] = {}
        self.media_steps: dict[str, int] = {}
        self._written_at = -math.inf
        self._is_changed = False
        self._series: dict[str, StepValues] = {}
        self._reductions: dict[str, Reduce] = {}

    @property
    def has_any(self) -> bool:
        """Whether the run has a summary."""
        return len(self.summary) > 0

    def log(self, values: Mapping[str, Any], *, step: int | None, reduce: Reduce, record: Epoch | None) -> None:
        """Log values of a step in the open `record`, an epoch or interval, else in the summary."""
        check_reduce(reduce)
        self._check()
        if step is not None:
            step = whole_number("step", step)
        accumulators = {name: value for name, value in values.items() if is_accumulator(value)}
        checked = {name: as_number(name, value) for name, value in values.items() if name not in accumulators}
        for name in values:
            check_name(name)
        self._check_reductions(checked, reduce)
        steps = {name: self._steps.get(name, 0) + 1 if step is None else step for name in checked}
        if record is not None:
            record.log(accumulators)
            record.log_steps(checked, steps, reduce)
        else:
            self._begin()
            for name, number in checked.items():
                series = self._series[name] = self.summary.series(name)
                series.reduce = reduce
                series.add(number, steps[name])
            for name, value in accumulators.items():
                self.summary[name] = value
            self._changed()
        self._steps.update(steps)
        self._reductions.update(dict.fromkeys(checked, reduce))

    def _check_reductions(self, names: Iterable[str], reduce: Reduce) -> None:
        """Raise `UsageError` for a name that another call reduces otherwise: its column would mean two things."""
        for name in names:
            known = self._reductions.get(name, reduce)
            if known != reduce:
                rule = f"be the same in all calls that log {name!r}"
                raise UsageError(f"`reduce` must {rule}, got {reduce} after {known}; log one of them by another name.")

    def keep(self, record: EpochRecord) -> None:
        """Add the values of a record that is not recorded itself, as it has no step of training."""
        columns = {name: getattr(record, name) for name in METRICS}
        known = {name: value for name, value in columns.items() if value is not None} | (record.metrics or {})
        for name, value in known.items():
            self.summary[name] = math.nan if value is None else value

    def state(self) -> LoggedState:
        """Return the values so far for a checkpoint; they are written first, so that it has no value of a step."""
        self.write()
        return LoggedState(self.summary.state(), dict(self._steps), dict(self.media_steps))

    def restore(self, state: LoggedState) -> None:
        """Continue from what `state` returned; values that were logged later are no longer in the record."""
        self.summary.restore(state.summary)
        self._steps |= state.steps
        self.media_steps |= state.media_steps
        self._is_changed = True
        self.write()

    def write(self) -> None:
        """Write the summary into the record, and the values of steps to the sinks."""
        if not self._is_changed:
            return
        self._is_changed = False
        points = {name: series.read() for name, series in self._series.items()}
        self._series.clear()
        if points:
            self._sinks.points(points)
        numbers = self.summary.numbers()
        known = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        self._folder.write(summary=known or msgspec.UNSET)
        self._written_at = self._clock()

    def _changed(self) -> None:
        self._is_changed = True
        if self._clock() - self._written_at >= _SECONDS_BETWEEN_WRITES:
            self.write()

    def _check(self) -> None:
        self._folder.refuse_others()
        if threading.get_ident() != self._thread:
            raise UsageError(
                "A value must be logged by the thread that began the run, got another one; give each thread its own "
                "run."
            )


_OWN = ("images", "predictions", "confusion_matrix", "config")  # the tags of this package's own


_CHANNELS = (1, 3, 4)
_LEAST_FLOAT = 4  # bytes


def image_pixels(name: str, image: Any) -> np.ndarray[Any, Any]:
    """Return an image as bytes (channels, height, width), with 1, 3 or 4 channels.

    `image` is an image of PIL, or a tensor or array (height, width), (channels, height, width) or (height, width,
    channels). Where both fit, the channels of a tensor come first and those of an array last. Integers are 0 to 255,
    floating-point numbers and booleans 0 to 1; values outside are clipped, and NaN is 0. Raises `UsageError` for
    anything else.
    """
    first_dimensions = (0, 2) if isinstance(image, torch.Tensor) else (2, 0)
    try:
        pixels = _as_array(image)
    except Exception as error:  # a tensor or object that cannot become an array of numbers
        kind = f"a tensor of {image.dtype}" if type(image) is torch.Tensor else type(image).__name__
        raise UsageError(
            f"Image {name!r} must be one of PIL, or a tensor or array of numbers, got {kind} ({error_line(error)})."
        ) from error
    shape = pixels.shape
    if pixels.ndim == 2:
        pixels = pixels[None]
    elif pixels.ndim == 3:
        of_channels = next((each for each in first_dimensions if pixels.shape[each] in _CHANNELS), 0)
        pixels = np.moveaxis(pixels, of_channels, 0)
    if pixels.ndim != 3 or pixels.shape[0] not in _CHANNELS or not pixels.size or pixels.dtype.kind not in "buif":
        raise UsageError(
            f"Image {name!r} must be (height, width), (channels, height, width) or (height, width, channels) with 1, 3 "
            f"or 4 channels of numbers, got shape {shape} of {pixels.dtype}."
        )
    if pixels.dtype.kind in "fb":
        pixels = np.nan_to_num(pixels.astype(np.float64), posinf=1.0, neginf=0.0) * 255 + 0.5
    return np.ascontiguousarray(pixels.clip(0, 255).astype(np.uint8))


def _as_array(image: Any) -> np.ndarray[Any, Any]:
    """Return what may be an image as an array."""
    if isinstance(image, torch.Tensor):
        plain = as_plain(image).detach()
        plain = plain.dequantize() if plain.is_quantized else plain.to_dense().resolve_neg()
        is_small = plain.is_floating_point() and plain.element_size() < _LEAST_FLOAT  # NumPy lacks some of these types
        return plain.to("cpu", torch.float32 if is_small else plain.dtype).numpy()
    if hasattr(image, "convert") and hasattr(image, "getbands"):  # PIL's
        image = image if image.mode in ("L", "RGB", "RGBA") else image.convert("RGB")
    return np.asarray(image)


def figure_pixels(name: str, figure: Any) -> np.ndarray[Any, Any]:
    """Return a figure of matplotlib as bytes (4, height, width). Raises `UsageError` for anything else."""
    if not hasattr(figure, "savefig") or not hasattr(figure, "canvas"):
        raise UsageError(f"Figure {name!r} must be a figure of matplotlib, got {type(figure).__name__}.")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    screen = figure.canvas
    try:
        canvas: Any = FigureCanvasAgg(figure)  # whatever the figure is shown with
        canvas.draw()
        return np.ascontiguousarray(np.asarray(canvas.buffer_rgba()).transpose(2, 0, 1))
    finally:
        figure.set_canvas(screen)


class RunMedia:
    """Passes pictures and texts to the sinks; `steps` has the last one of each name, which counts its own from 1."""

    def __init__(self, sinks: RunSinks, steps: dict[str, int]) -> None:
        self._sinks = sinks
        self._steps = steps

    def image(self, name: str, image: Any, step: int | None) -> None:
        """Show an image, see `image_pixels`."""
        _check(name)
        pixels = image_pixels(name, image)
        self._sinks.image(name, pixels, self._step(name, step))

    def figure(self, name: str, figure: Any, step: int | None) -> None:
        """Show a figure of matplotlib."""
        _check(name)
        pixels = figure_pixels(name, figure)
        self._sinks.image(name, pixels, self._step(name, step))

    def text(self, name: str, text: str, step: int | None) -> None:
        """Show a text, without the secrets that this process knows."""
        _check(name)
        if not isinstance(text, str):
            raise UsageError(f"Text {name!r} must be a string, got {type(text).__name__}.")
        self._sinks.text(name, redacted(encodable(text)), self._step(name, step))

    def _step(self, name: str, step: int | None) -> int:
        found = self._steps.get(name, 0) + 1 if step is None else whole_number("step", step)
        self._steps[name] = found
        return found


def _check(name: str) -> None:
    check_name(name)
    if name in _OWN:
        raise UsageError(f"A picture or text must have a name other than {', '.join(_OWN)}, got {name!r}.")
