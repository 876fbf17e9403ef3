"""Signatures: the identity of a cell as a hash of its settings; the readable names of cells."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from typing import Any

from runmanager.records.settings.values import differing_settings
from runmanager.text import format_value

UNSIGNED = frozenset(
    {"name", "output_root", "data_root", "resume", "rerun_changed", "checkpoint", "log_every", "infer", "hydra"}
)
"""Top-level settings of the built-in job that decide where and how a run is stored and what is measured after it, not
what it computes. They are not part of the signature. In a custom training loop these names have no special meaning."""

LATER: dict[str, Any] = {
    "channels_last": False,
    "compile": False,
    "cudnn_benchmark": False,
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


@dataclass(frozen=True)
class ChangedDefault:
    """The default of a setting `before` a version of this package, and `now`.

    `same_results`: whether runs that differ in it alone compute the same, at another speed.
    """

    before: Any
    now: Any
    same_results: bool = False


CHANGED_DEFAULTS = {
    name: ChangedDefault(LATER[name], "auto", same_results=True) for name in ("channels_last", "micro_batch")
}
"""By setting. A new entry is enough for named sweeps that began before to be recognised."""

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


MAX_NAME_BYTES = 120
"""The most bytes of a readable name: file systems take 255, which may be far fewer letters."""
_SHORT_BYTES = 12  # shorter values are never shortened


def readable_name(settings: Mapping[str, Any], *, distinguishing: Container[str] = ()) -> str:
    """Return the readable part of a run's name: `lr=0.01,model=cnn`; `run` without settings.

    The name has at most 120 bytes. If necessary, the longest values are shortened in the middle; if that is not enough,
    settings are left out from the end, and those in `distinguishing`, in which this run differs from others, last.
    """
    parts = {key: (f"{key.removesuffix('.name')}=", _format_short(value)) for key, value in settings.items()}
    parts = {key: (_safe(name), _safe(value)) for key, (name, value) in parts.items()}
    size = _num_bytes(parts.values(), limit=_SHORT_BYTES)
    least_first = list(parts)[::-1]
    for key in sorted(least_first, key=lambda key: key in distinguishing):
        if len(parts) > 1 and size > MAX_NAME_BYTES:
            size -= 1 + _num_bytes([parts.pop(key)], limit=_SHORT_BYTES)
    longest = range(MAX_NAME_BYTES, _SHORT_BYTES, -1)
    limit = next((each for each in longest if _num_bytes(parts.values(), limit=each) <= MAX_NAME_BYTES), _SHORT_BYTES)
    name = ",".join(f"{key}{_cut(value, limit)}" for key, value in parts.values())
    return name.encode()[:MAX_NAME_BYTES].decode(errors="ignore").strip(".,_") or "run"


def _safe(text: str) -> str:
    return re.sub(r"[^\w.,=+-]+", "_", text)


def _num_bytes(parts: Collection[tuple[str, str]], *, limit: int) -> int:
    """Return the length of a name of these keys and values, with values cut to `limit` bytes."""
    return sum(len(key.encode()) + min(len(value.encode()), limit) + 1 for key, value in parts) - 1


def _cut(text: str, limit: int) -> str:
    """Cut a text to `limit` bytes: its beginning and its end, because similar values often differ in one of them."""
    data = text.encode()
    if len(data) <= limit:
        return text
    tail = (limit - 2) // 2
    head = limit - 2 - tail
    return f"{data[:head].decode(errors='ignore')}..{data[-tail:].decode(errors='ignore')}"


def _format_short(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(_format_short(item) for item in value)
    return format_value(value)


def short_names(cells: Mapping[str, Mapping[str, Any]], *, lone: str) -> dict[str, str]:
    """Return a short unique name for each run of a sweep, fit for a folder, by the name of its run folder.

    `cells` maps the names of run folders to flat settings. A name has only the settings in which the runs differ, each
    by the last part of its name if that is unambiguous (`depth=8` for `model.depth`). Runs that still have the same
    name get the digits of their folder's name too. `lone` is the name of a run that is alone in its sweep.
    """
    if len(cells) == 1:
        return dict.fromkeys(cells, lone)
    varying = differing_settings(list(cells.values()))
    labels = _labels(varying)
    plain = {
        run: readable_name({labels[name]: settings[name] for name in varying if name in settings})
        for run, settings in cells.items()
    }
    # Some file systems ignore case.
    number = Counter(name.casefold() for name in plain.values())
    return {
        run: name if number[name.casefold()] == 1 else f"{name}-{run.rpartition('-')[2]}" for run, name in plain.items()
    }


def _labels(names: list[str]) -> dict[str, str]:
    whole = {name: name.removesuffix(".name") for name in names}
    last = {name: text.rpartition(".")[2] for name, text in whole.items()}
    number = Counter(last.values())
    return {name: last[name] if number[last[name]] == 1 else whole[name] for name in names}
