"""The identity of a cell: a hash of everything that it was asked to do."""

import hashlib
import json
from collections.abc import Container, Mapping
from typing import Any

__all__ = ["LATER", "UNSIGNED", "short_signature", "signature", "with_later_settings"]

UNSIGNED = frozenset(
    {"name", "output_root", "data_root", "resume", "rerun_changed", "checkpoint", "log_every", "hydra"}
)
"""Top-level settings of the built-in job that say where and how a run is kept, not what it computes: left out of the
signature. In somebody's own loop these are names like any other."""

LATER: dict[str, Any] = {
    "channels_last": False,
    "compile": False,
    "graphs": False,
    "loader.prefetch_to_device": False,
    "micro_batch": None,
    "on_oom": "fail",
    "optimizer.fused": None,
    "precision": "fp32",
    "tensorboard.confusion_matrix": True,
    "tensorboard.predictions": True,
}
"""Settings that came after runs were first signed, by dotted name, each with the value that changes nothing: a run with
it has the signature that it had before there was the setting."""

_CHOICES = {"loader.prefetch_to_device": "dataloader"}
"""The one choice of its group that has the setting, where not all of them do."""


def signature(config: Mapping[str, Any], *, unsigned: Container[str] = UNSIGNED) -> str:
    """SHA-256, as 64 hex digits, of the resolved configuration without the top-level settings in `unsigned`.

    The order of keys does not matter. Everything else does, defaults too: a default that changes later then changes
    no old identity. Only a setting of `LATER` is left out at the value that is named there.
    """
    signed = _without_later({key: value for key, value in config.items() if key not in unsigned})
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_later(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The settings without those of `LATER` that change nothing; only groups can hold some."""
    kept = {}
    for key, value in config.items():
        name = prefix + key
        if name in LATER and type(value) is type(LATER[name]) and value == LATER[name]:
            continue
        kept[key] = _without_later(value, f"{name}.") if not prefix and isinstance(value, Mapping) else value
    return kept


def with_later_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name, with those of `LATER` that they had no word for when they were stored.

    Those of somebody's own loop are left as they are: they name no optimiser by `optimizer.name`.
    """
    later = LATER if "optimizer.name" in settings else {}
    return {**settings, **{name: value for name, value in later.items() if _is_missing(name, settings)}}


def _is_missing(name: str, settings: Mapping[str, Any]) -> bool:
    group = name.rpartition(".")[0]
    choice = _CHOICES.get(name) or settings.get(f"{group}.name")
    return name not in settings and (not group or choice == settings.get(f"{group}.name"))


def short_signature(full: str) -> str:
    """The eight hex digits that end a run folder's name."""
    return full[:8]
