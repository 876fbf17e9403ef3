"""Pictures that a program logs, as arrays of bytes."""

from typing import Any

import numpy as np
import torch

from runmanager.errors import UsageError
from runmanager.text import error_line
from runmanager.tracking.torch_internals import as_plain

__all__ = ["figure_pixels", "image_pixels"]

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
