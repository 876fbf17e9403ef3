"""Signatures: the identity of a cell as a hash of its settings."""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

__all__ = [
    "AUTOMATIC",
    "LATER",
    "UNSIGNED",
    "short_signature",
    "signature",
    "with_later_settings",
    "without_unsigned",
]

UNSIGNED = frozenset(
    {"name", "output_root", "data_root", "resume", "rerun_changed", "checkpoint", "log_every", "hydra"}
)
"""Top-level settings of the built-in job that decide where and how a run is stored, not what it computes. They are not
part of the signature. In a custom training loop these names have no special meaning."""

LATER: dict[str, Any] = {
    "channels_last": False,
    "compile": False,
    "graphs": False,
    "loss._target_": "torch.nn.CrossEntropyLoss",
    "loader.prefetch_to_device": False,
    "metrics": {},
    "micro_batch": None,
    "on_oom": "fail",
    "optimizer.fused": None,
    "precision": "fp32",
    "tensorboard.confusion_matrix": True,
    "tensorboard.predictions": True,
}
"""Settings that were added after the first release of signatures, by dotted name, with their neutral value: a run with
that value keeps the signature that it had before the setting existed."""

AUTOMATIC = ("channels_last", "micro_batch")
"""Those of them that are `auto` by default since, which computes the same at another speed."""

_LATER_GROUP = "loss"  # a group that did not exist before
_OF_JOB = ("loss._target_", "metrics")  # other programs have such settings too, and give them a meaning of their own
_LATER_ANYWHERE = {name: value for name, value in LATER.items() if name not in _OF_JOB}

_OPTION_WITH = {"loader.prefetch_to_device": "dataloader"}
"""For settings that only one option of their config group has: that option."""

_WITH_VAL_SIZE = ("mnist", "fashion_mnist", "cifar10", "cifar100")
"""Datasets that got the setting `val_size` later, with the neutral value null; `digits` always signed theirs."""


_BUILT_IN = ("dataset.name", "model.name", "optimizer.name")
"""Settings that every run of the built-in job has."""


def signature(
    config: Mapping[str, Any], *, unsigned: Collection[str] = UNSIGNED, later: Mapping[str, Any] | None = None
) -> str:
    """Return the SHA-256, as 64 hex digits, of the resolved configuration without the settings in `unsigned`.

    The order of keys does not matter. Default values count, so that a later change of a default does not change the
    signatures of stored runs. Settings in `later` are left out if they have their neutral value; by default those in
    `LATER`, as far as they belong to the program.
    """
    signed = without_unsigned(config, unsigned)
    if later is None:
        later = LATER if _is_of_job(config) else _LATER_ANYWHERE
        signed = _without_val_size(signed)
    signed = _without_later(signed, later)
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_val_size(config: Mapping[str, Any]) -> dict[str, Any]:
    dataset = config.get("dataset")
    if not isinstance(dataset, Mapping) or dataset.get("name") not in _WITH_VAL_SIZE or dataset.get("val_size", 0):
        return dict(config)
    return {**config, "dataset": {key: value for key, value in dataset.items() if key != "val_size"}}


def _is_of_job(config: Mapping[str, Any]) -> bool:
    optimizer = config.get("optimizer")
    return isinstance(optimizer, Mapping) and "name" in optimizer


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


def _without_later(config: Mapping[str, Any], later: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Remove the settings of `later` at their neutral value, at top level and inside groups."""
    if not later:
        return dict(config)
    kept: dict[str, Any] = {}
    for key, value in config.items():
        name = prefix + key
        if name in later and type(value) is type(later[name]) and value == later[name]:
            continue
        kept[key] = _without_later(value, later, f"{name}.") if not prefix and isinstance(value, Mapping) else value
    if later is LATER and not prefix and kept.get(_LATER_GROUP) == {}:
        del kept[_LATER_GROUP]
    return kept


def with_later_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Add the settings of `LATER` that did not exist when these (flat) settings were stored, at their neutral value.

    Settings of other programs than the built-in job are returned unchanged.
    """
    later = LATER if all(name in settings for name in _BUILT_IN) else {}
    if later and settings["dataset.name"] in _WITH_VAL_SIZE:
        later = {**later, "dataset.val_size": None}
    return {**settings, **{name: value for name, value in later.items() if _is_missing(name, settings)}}


def _is_missing(name: str, settings: Mapping[str, Any]) -> bool:
    group = name.rpartition(".")[0]
    option = _OPTION_WITH.get(name) or settings.get(f"{group}.name")
    return name not in settings and (not group or option == settings.get(f"{group}.name"))


def short_signature(full: str) -> str:
    """Return the first eight hex digits of a signature, which end the name of a run folder."""
    return full[:8]
