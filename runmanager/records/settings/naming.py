"""Names for runs, made of their settings, and shorter ones within a sweep."""

import re
from collections import Counter
from collections.abc import Collection, Container, Mapping
from typing import Any

from runmanager.records.settings.values import differing_settings
from runmanager.text import format_value

__all__ = ["MAX_NAME_BYTES", "readable_name", "short_names"]

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
