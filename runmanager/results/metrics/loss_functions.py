"""Which loss functions runs were trained with: values of different functions cannot be compared."""

from collections.abc import Mapping, Sequence

from runmanager.records.run.run_record import RunRecord
from runmanager.records.settings.signature import LATER
from runmanager.records.settings.values import flatten
from runmanager.text import format_value

__all__ = ["loss_functions"]

_TARGET = "_target_"


def loss_functions(records: Sequence[RunRecord]) -> list[str]:
    """Return the distinct losses of runs as texts: the target, and in brackets its settings.

    Runs of programs that do not set a loss by its target have the one of the built-in job's default.
    """
    settings = {id(loss): loss for record in records if (loss := record.config.get("loss")) is not None}
    texts = {_text(loss): None for loss in settings.values() if isinstance(loss, Mapping) and _TARGET in loss}
    if texts and any("loss" not in record.config for record in records):
        texts.setdefault(str(LATER[f"loss.{_TARGET}"]), None)
    return list(texts)


def _text(loss: Mapping[str, object]) -> str:
    others = [f"{name}={format_value(value)}" for name, value in sorted(flatten(loss).items()) if name != _TARGET]
    return f"{loss[_TARGET]}({', '.join(others)})" if others else str(loss[_TARGET])
