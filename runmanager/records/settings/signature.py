"""Signatures: the identity of a cell as a hash of its settings."""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["LATER", "UNSIGNED", "short_signature", "signature", "with_later_settings", "without_unsigned"]

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


_BUILT_IN = ("dataset.name", "model.name", "optimizer.name")
"""Settings that every run of the built-in job has."""


def signature(
    config: Mapping[str, Any], *, unsigned: Collection[str] = UNSIGNED, later: Mapping[str, Any] = LATER
) -> str:
    """Return the SHA-256, as 64 hex digits, of the resolved configuration without the settings in `unsigned`.

    The order of keys does not matter. Default values count, so that a later change of a default does not change the
    signatures of stored runs. Settings in `later` are left out if they have their neutral value.
    """
    signed = without_unsigned(config, unsigned)
    signed = _without_later(signed) if later else signed
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def without_unsigned(config: Mapping[str, Any], unsigned: Collection[str]) -> dict[str, Any]:
    """Return nested settings without those in `unsigned`: top-level names, or dotted ones of settings in groups."""
    inner = [name for name in unsigned if "." in name]
    return _without(config, unsigned, inner) if inner else {k: v for k, v in config.items() if k not in unsigned}


def _without(config: Mapping[str, Any], names: Collection[str], inner: Collection[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in config.items():
        below = [name.removeprefix(f"{key}.") for name in inner if name.startswith(f"{key}.")]
        if key in names:
            continue
        if not (below and isinstance(value, Mapping)):
            kept[key] = value
        elif rest := _without(value, below, [name for name in below if "." in name]):
            kept[key] = rest
    return kept


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

    Settings of other programs than the built-in job are returned unchanged.
    """
    later = LATER if all(name in settings for name in _BUILT_IN) else {}
    return {**settings, **{name: value for name, value in later.items() if _is_missing(name, settings)}}


def _is_missing(name: str, settings: Mapping[str, Any]) -> bool:
    group = name.rpartition(".")[0]
    option = _OPTION_WITH.get(name) or settings.get(f"{group}.name")
    return name not in settings and (not group or option == settings.get(f"{group}.name"))


def short_signature(full: str) -> str:
    """Return the first eight hex digits of a signature, which end the name of a run folder."""
    return full[:8]
