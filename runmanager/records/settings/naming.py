"""Names of runs made from their settings: of run folders, and shorter ones within a sweep."""

import re
from collections import Counter
from collections.abc import Collection, Container, Mapping
from typing import Any

from runmanager.records.settings.values import differing_settings
from runmanager.text import format_value

__all__ = ["readable_name", "short_names"]

_MAX_NAME_BYTES = 120  # file systems take 255 bytes, however few letters they are
_SHORT_BYTES = 12  # a value that is no longer is never shortened


def readable_name(settings: Mapping[str, Any], *, distinguishing: Container[str] = ()) -> str:
    """The part of a run folder's name for people: `lr=0.01,model=cnn`; `run` where there are no settings.

    It has at most 120 bytes. Where all do not fit, the longest values are shortened in their middle; where that is not
    enough, settings are left out from the end, those that are `distinguishing` (that tell this run from others) last.
    """
    parts = {key: (f"{key.removesuffix('.name')}=", _short(value)) for key, value in settings.items()}
    parts = {key: (_safe(name), _safe(value)) for key, (name, value) in parts.items()}
    while len(parts) > 1 and _num_bytes(parts.values(), limit=_SHORT_BYTES) > _MAX_NAME_BYTES:
        parts.pop(next((key for key in reversed(parts) if key not in distinguishing), next(reversed(parts))))
    longest = range(_MAX_NAME_BYTES, _SHORT_BYTES, -1)
    limit = next((each for each in longest if _num_bytes(parts.values(), limit=each) <= _MAX_NAME_BYTES), _SHORT_BYTES)
    name = ",".join(f"{key}{_cut(value, limit)}" for key, value in parts.values())
    return name.encode()[:_MAX_NAME_BYTES].decode(errors="ignore").strip(".,_") or "run"


def _safe(text: str) -> str:
    return re.sub(r"[^\w.,=+-]+", "_", text)


def _num_bytes(parts: Collection[tuple[str, str]], *, limit: int) -> int:
    """How long a name of these keys and values is, values cut to `limit` bytes."""
    return sum(len(key.encode()) + min(len(value.encode()), limit) + 1 for key, value in parts) - 1


def _cut(text: str, limit: int) -> str:
    """A text of at most `limit` bytes: its beginning and its end, as values of one kind often differ in one of them."""
    data = text.encode()
    if len(data) <= limit:
        return text
    tail = (limit - 2) // 2
    head = limit - 2 - tail
    return f"{data[:head].decode(errors='ignore')}..{data[-tail:].decode(errors='ignore')}"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(_short(item) for item in value)
    return format_value(value)


def short_names(cells: Mapping[str, Mapping[str, Any]], *, lone: str) -> dict[str, str]:
    """A name for each run (keys: names of run folders; values: flat settings), fit for a folder and unique among them.

    Of the settings only those in which the runs differ, each by the last part of its name where that is clear
    (`depth=8` for `model.depth`). Where that still leaves runs alike, the digits of the folder's name follow. `lone` is
    the name of a run that has no others.
    """
    if len(cells) == 1:
        return dict.fromkeys(cells, lone)
    varying = differing_settings(list(cells.values()))
    labels = _labels(varying)
    plain = {
        run: readable_name({labels[name]: settings[name] for name in varying if name in settings})
        for run, settings in cells.items()
    }
    # Some file systems take Net and net for one name.
    number = Counter(name.casefold() for name in plain.values())
    return {
        run: name if number[name.casefold()] == 1 else f"{name}-{run.rpartition('-')[2]}" for run, name in plain.items()
    }


def _labels(names: list[str]) -> dict[str, str]:
    whole = {name: name.removesuffix(".name") for name in names}
    last = {name: text.rpartition(".")[2] for name, text in whole.items()}
    number = Counter(last.values())
    return {name: last[name] if number[last[name]] == 1 else whole[name] for name in names}
