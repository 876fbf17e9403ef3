"""Signatures: the identity of a cell as a hash of its settings."""

import hashlib
import json
from collections.abc import Container, Mapping
from typing import Any

__all__ = ["LATER", "UNSIGNED", "short_signature", "signature", "with_later_settings"]

UNSIGNED = frozenset(
    {"name", "output_root", "data_root", "resume", "rerun_changed", "checkpoint", "log_every", "hydra"}
)
"""Top-level settings of the built-in job that decide where and how a run is stored, not what it computes. They are not
part of the signature. In a custom training loop these names have no special meaning."""

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
"""Settings that were added after the first release of signatures, by dotted name, with their neutral value: a run with
that value keeps the signature that it had before the setting existed."""

_OPTION_WITH = {"loader.prefetch_to_device": "dataloader"}
"""For settings that only one option of their config group has: that option."""


def signature(config: Mapping[str, Any], *, unsigned: Container[str] = UNSIGNED) -> str:
    """Return the SHA-256, as 64 hex digits, of the resolved configuration without the top-level settings in `unsigned`.

    The order of keys does not matter. Default values count, so that a later change of a default does not change the
    signatures of stored runs. Settings in `LATER` are left out if they have their neutral value.
    """
    signed = _without_later({key: value for key, value in config.items() if key not in unsigned})
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_later(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Remove the settings of `LATER` at their neutral value, at top level and inside groups."""
    kept = {}
    for key, value in config.items():
        name = prefix + key
        if name in LATER and type(value) is type(LATER[name]) and value == LATER[name]:
            continue
        kept[key] = _without_later(value, f"{name}.") if not prefix and isinstance(value, Mapping) else value
    return kept


def with_later_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Add the settings of `LATER` that did not exist when these (flat) settings were stored, at their neutral value.

    Settings of a custom training loop, which lack `optimizer.name`, are returned unchanged.
    """
    later = LATER if "optimizer.name" in settings else {}
    return {**settings, **{name: value for name, value in later.items() if _is_missing(name, settings)}}


def _is_missing(name: str, settings: Mapping[str, Any]) -> bool:
    group = name.rpartition(".")[0]
    option = _OPTION_WITH.get(name) or settings.get(f"{group}.name")
    return name not in settings and (not group or option == settings.get(f"{group}.name"))


def short_signature(full: str) -> str:
    """Return the first eight hex digits of a signature, which end the name of a run folder."""
    return full[:8]
