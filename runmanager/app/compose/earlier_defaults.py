"""Defaults of earlier versions, for named sweeps of the built-in job that began under them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from runmanager.records.settings.signature import with_later_settings
from runmanager.records.settings.values import flatten
from runmanager.records.sweep.changed_defaults import kept_defaults, kept_defaults_note
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.text import format_value, pluralize
from runmanager.training.options.job import TrainingOptions

__all__ = ["EarlierDefaults"]

_EPOCHS = "epochs"
_EARLIER_EPOCHS = 5
_VAL_SIZE = "dataset.val_size"
_EARLIER_VAL_SIZES = {"fake": 1000}
"""By dataset; of the others it was null, which is all validation images."""
_VALIDATED_BY = ("dataset.name", "dataset.size")
"""The settings on which the default of `dataset.val_size` depends."""


class EarlierDefaults:
    """What the cells of a sweep had by default in earlier versions, for a command that does not say otherwise.

    `configs` are the settings of the command's cells, and `given` those that it says. All cells keep what
    `kept_defaults` returns. Cells with the earlier default of `dataset.val_size` keep it, and so do new cells that
    train on as many samples of the same dataset, because they are compared with each other. Runs of fewer epochs are
    continued; a note says so.
    """

    def __init__(self, sweep: SweepRecord | None, given: Collection[str], configs: Sequence[Mapping[str, Any]]) -> None:
        self._kept = {} if sweep is None else kept_defaults(sweep, configs, given=given)
        shared = {} if sweep is None else sweep.settings
        cells = [with_later_settings({**shared, **cell.settings}) for cell in sweep.planned] if sweep else []
        self._epochs = [] if _EPOCHS in given else [cell.get(_EPOCHS) for cell in cells]
        of_cells = [] if _VAL_SIZE in given else cells
        self._validated = {_sources(cell) for cell in of_cells if cell.get(_VAL_SIZE, 0) == _earlier_val_size(cell)}
        self._today: dict[str, tuple[int | None, int]] = {}

    def words(self, config: Mapping[str, Any]) -> list[str]:
        """Return the overrides that give a composed cell the earlier defaults of its sweep."""
        words = [f"{name}={format_value(value)}" for name, value in self._kept.items()]
        settings = flatten({"dataset": config.get("dataset", {})})
        val_size, earlier = settings.get(_VAL_SIZE), _earlier_val_size(settings)
        if val_size not in (None, earlier) and _sources(settings) in self._validated:
            self._today[str(settings["dataset.size"])] = earlier, val_size
            words.append(f"{_VAL_SIZE}={format_value(earlier)}")
        return words

    def notes(self, configs: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return what a command of these cells says of the defaults."""
        lines = [kept_defaults_note(self._kept)] if self._kept else []
        lines += [
            f"This sweep validates on {'all' if earlier is None else f'{earlier:,}'} validation images, as was the "
            f"default when it began; with `dataset.size={size}` a new sweep takes `{_VAL_SIZE}={val_size}`."
            for size, (earlier, val_size) in self._today.items()
        ]
        now, shorter = TrainingOptions.epochs, self._epochs.count(_EARLIER_EPOCHS)
        if shorter and now not in self._epochs and {config.get(_EPOCHS) for config in configs} == {now}:
            cells = pluralize(shorter, "cell of this sweep has", "cells of this sweep have")
            lines.append(
                f"{cells} {_EARLIER_EPOCHS} epochs, once the default, which is {now} now: longer runs continue them; "
                f"`{_EPOCHS}={_EARLIER_EPOCHS}` keeps to {_EARLIER_EPOCHS}."
            )
        return lines


def _earlier_val_size(settings: Mapping[str, Any]) -> int | None:
    return _EARLIER_VAL_SIZES.get(settings.get("dataset.name", ""))


def _sources(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(settings.get(name) for name in _VALIDATED_BY)
