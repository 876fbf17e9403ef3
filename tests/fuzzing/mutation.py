"""Changes of JSON documents that keep them JSON: a fuzzer of bytes alone rarely gets behind the parser."""

import copy
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

__all__ = ["mutated"]

_NUMBERS = (
    *(0, 1, -1, 2, 255, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**18, 10**30, 10**400),
    *(0.0, -0.0, 0.5, -0.5, 5e-324, 1e-300, 1e18, 1e300, -1e300, 1.7976931348623157e308),
)
_TEXTS = (
    *("", " ", "\0", "é", "\u202e", "..", "../..", "/", "a/b", ".hidden", "x" * 300, "None", "nan", "inf", "1e999"),
    *("0001-01-01T00:00:00", "9999-12-31T23:59:59+00:00", "2026-01-01T00:00:00+23:59", "2026-01-01", "=1+1", "<b>"),
    *("finished", "running", "crashed", "pending", "steps", "cuda", "min", "max", "event file", "printed"),
)
_OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": {}}, [None], {"a": 10**18}, [0.5, "a", None])
_NOT_JSON = ("NaN", "1e999", "-", "[" * 2000, '"\\ud800"')


def mutated(data: bytes, *, seed: int, of_bytes: Callable[[bytes], bytes]) -> bytes:
    """Change a document, or one of a document's lines; now and then, and where it is no JSON, by `of_bytes`."""
    random = Random(seed)
    if random.random() < 0.15:
        return of_bytes(data)
    try:
        return _changed(data, random)
    except (ValueError, RecursionError):
        pass
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    try:
        lines[at] = _changed(lines[at], random)
    except (ValueError, RecursionError):
        return of_bytes(data)
    if random.random() < 0.2:
        lines.insert(at, lines[random.randrange(len(lines))])
    return b"\n".join(lines)


def _changed(data: bytes, random: Random) -> bytes:
    """Raises `ValueError` for what is no JSON."""
    document = json.loads(data)
    mark = "\1"
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        document = _change(document, random)
    text = json.dumps(document, allow_nan=True)
    if random.random() < 0.03:
        places = list(_places(document))
        if places:
            container, key = random.choice(places)
            container[key] = mark
            text = json.dumps(document).replace(json.dumps(mark), random.choice(_NOT_JSON), 1)
    return text.encode(errors="surrogatepass")


def _change(document: Any, random: Random) -> Any:
    places = list(_places(document))
    if not places:
        return _value(random, document)
    container, key = random.choice(places)
    kind = random.random()
    if kind < 0.55:
        container[key] = _value(random, container[key])
    elif kind < 0.7:
        del container[key]
    elif kind < 0.85:
        other, name = random.choice(places)
        if name in (range(len(other)) if isinstance(other, list) else other):
            container[key] = copy.deepcopy(other[name])
    elif isinstance(container, list):
        container.insert(key, copy.deepcopy(container[key]))
    else:
        container[random.choice((*_TEXTS, f"{key}2"))] = container.pop(key)
    return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each list or mapping inside of a document with each of its indices or keys."""
    keys = range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _value(random: Random, before: Any) -> Any:
    if isinstance(before, int | float) and random.random() < 0.6:
        return random.choice((*_NUMBERS, -before, before * 10**6))
    if isinstance(before, str) and random.random() < 0.5:
        return random.choice(_TEXTS)
    return copy.deepcopy(random.choice((*_NUMBERS, *_TEXTS, *_OTHERS)))
