"""Pictures and texts that a program logs, for the sinks of its run."""

from typing import Any

from runmanager.errors import UsageError
from runmanager.records.settings.secrets import redacted
from runmanager.text import encodable
from runmanager.tracking.epoch_metrics.sample_count import whole_number
from runmanager.tracking.lifecycle.run_sinks import RunSinks
from runmanager.tracking.media import figure_pixels, image_pixels
from runmanager.tracking.metric_definitions import check_name

__all__ = ["RunMedia"]

_OWN = ("images", "predictions", "confusion_matrix", "config")  # the tags of this package's own


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
