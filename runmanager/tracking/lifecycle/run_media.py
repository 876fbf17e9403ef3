"""Pictures and texts that a program logs, for the sinks of its run."""

from typing import Any

import numpy as np
import torch

from runmanager.errors import UsageError
from runmanager.records.settings.secrets import redacted
from runmanager.text import encodable, error_line
from runmanager.tracking.epoch_metrics.sample_count import whole_number
from runmanager.tracking.lifecycle.run_sinks import RunSinks
from runmanager.tracking.metric_definitions import check_name
from runmanager.tracking.torch_internals import as_plain

__all__ = ["RunMedia"]


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
