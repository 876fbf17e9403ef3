"""The identity of a cell: a hash of everything that it was asked to do."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["LATER", "UNSIGNED", "later_settings", "short_signature", "signature"]

UNSIGNED = frozenset(
    {"name", "output_root", "data_root", "resume", "rerun_changed", "checkpoint", "log_every", "hydra"}
)
"""Top-level settings that say where and how a run is kept, not what it computes: left out of the signature."""

LATER: dict[str, Any] = {
    "channels_last": False,
    "compile": False,
    "graphs": False,
    "loader.prefetch_to_device": False,
    "micro_batch": None,
    "on_oom": "fail",
    "optimizer.fused": None,
    "precision": "fp32",
}
"""Settings that came after runs were first signed, by dotted name, each with the value that changes nothing: a run with
it has the signature that it had before there was the setting."""


def signature(config: Mapping[str, Any]) -> str:
    """SHA-256, as 64 hex digits, of the resolved configuration without the `UNSIGNED` settings.

    The order of keys does not matter. Everything else does, defaults too: a default that changes later then changes
    no old identity. Only a setting of `LATER` is left out at the value that is named there.
    """
    signed = _without_later({key: value for key, value in config.items() if key not in UNSIGNED})
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


def later_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `LATER`, by dotted name, that a run's configuration had no word for when it was stored.

    None for a run that is no application's: its settings are what somebody's own loop made of them.
    """
    if not isinstance(config.get("optimizer"), Mapping):
        return {}
    return {name: value for name, value in LATER.items() if _is_unknown(name, config)}


def _is_unknown(name: str, config: Mapping[str, Any]) -> bool:
    group, _, key = name.rpartition(".")
    holder = config.get(group) if group else config
    return isinstance(holder, Mapping) and key not in holder


def short_signature(full: str) -> str:
    """The eight hex digits that end a run folder's name."""
    return full[:8]
