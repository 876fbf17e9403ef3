"""Checks of settings, and the wording of their faults: what must hold, what was given, and the way out."""

import dataclasses
import difflib
import math
import numbers
import operator
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_COUNT = 2**31 - 1
"""The largest count that every part of PyTorch accepts: some store it in a signed 32-bit integer."""

_MAX_INT64 = 2**63 - 1
_LIMITS = "limits"
_ALLOWED = "allowed"
_DERIVED = "derived"
_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "above"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "below"),
}


_NUMBERS: dict[object, tuple[type, str]] = {
    **dict.fromkeys((int, int | None), (numbers.Integral, "a whole number")),
    **dict.fromkeys((float, float | None), (numbers.Real, "a number")),
}
"""For fields of these types: what their values are instances of, and in words."""


def fault(key: str, rule: str, value: object, way_out: str = "") -> str:
    """Format a fault as a sentence: *key* must *rule*, got *value*; *way out*."""
    sentence = f"`{key}` must {rule}, got {value}" + (f"; {way_out}" if way_out else "")
    return sentence if sentence.endswith((".", "?")) else f"{sentence}."


def did_you_mean(name: str, known: Iterable[str], *, max_names: int = 3, cutoff: float = 0.5) -> str:
    """Suggest the `nearest_names` as a question; empty if there are none."""
    close = nearest_names(name, known, max_names=max_names, cutoff=cutoff)
    return f"did you mean {' or '.join(repr(each) for each in close)}?" if close else ""


def nearest_names(name: str, known: Iterable[str], *, max_names: int = 3, cutoff: float = 0.5) -> list[str]:
    """Return the known names that may be meant, the likeliest first, at most `max_names`.

    First those with the same last part, as optimizer.momentum for momentum, and those that are the initials or have
    them, as lr for learning_rate and batch_size for bs. Then those whose letters are similar by `cutoff` or more, where
    1 is equal.
    """
    names = list(dict.fromkeys(map(str, known)))
    meant = [each for each in names if _may_mean(name, each)]
    close = difflib.get_close_matches(name, names, n=max_names, cutoff=cutoff)
    return list(dict.fromkeys([*meant, *close]))[:max_names]


def _may_mean(name: str, known: str) -> bool:
    given, other = (each.strip("-_").replace("-", "_") for each in (name, known))
    last, last_known = given.rpartition(".")[2], other.rpartition(".")[2]
    if last == last_known:
        return "." not in given or "." not in other
    return _initials(last) == last_known or last == _initials(last_known)


def _initials(name: str) -> str | None:
    """The first letters of a name of several words."""
    words = [word for word in name.split("_") if word]
    return "".join(word[0] for word in words) if len(words) > 1 else None


def suggestion(name: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """Suggest the closest known names, or list the known names if none is close."""
    names = list(known)
    close = did_you_mean(name, names, cutoff=cutoff)
    if close:
        return close
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"known: {', '.join(names[:20]) or 'none'}{more}."


def limits(
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: Collection[str] | None = None,
    key: str | None = None,
    way_out: str = "",
) -> dict[str, Any]:
    """Metadata of a dataclass field whose values `field_faults` checks.

    A number must be `ge`, `gt`, `le` and `lt` the bounds given, and finite; a string must be one of `choices`.
    `key` is the name in messages if it is not the field's own; `way_out` ends the message.
    """
    bounds = {name: bound for name, bound in (("ge", ge), ("gt", gt), ("le", le), ("lt", lt)) if bound is not None}
    return {_LIMITS: {"bounds": bounds, "choices": choices, "key": key, "way_out": way_out}}


def allowed(values: str) -> dict[str, Any]:
    """Metadata of a dataclass field that says in words which values it takes, where `limits` cannot."""
    return {_ALLOWED: values}


def derived(default: str) -> dict[str, Any]:
    """Metadata of a dataclass field whose default configuration files derive from other settings: how, in words."""
    return {_DERIVED: default}


def default_words(each: "dataclasses.Field[Any]") -> str | None:
    """How the default of a field is derived, in words; None for a plain default."""
    return each.metadata.get(_DERIVED)


def allowed_values(each: "dataclasses.Field[Any]") -> str:
    """The values that a field takes, in words, from `allowed` or else `limits`; empty if it has neither."""
    if _ALLOWED in each.metadata:
        return str(each.metadata[_ALLOWED])
    limit = each.metadata.get(_LIMITS)
    if limit is None:
        return ""
    if limit["choices"] is not None:
        return ", ".join(map(str, limit["choices"]))
    bounds = {name: bound for name, bound in limit["bounds"].items() if bound not in (MAX_COUNT, 2**63)}
    return ", ".join(f"{_BOUNDS[name][1]} {bound}" for name, bound in bounds.items())


def field_faults(options: "DataclassInstance", prefix: str = "") -> list[str]:
    """Check every field of a dataclass that has `limits`: one fault for each value outside them, in field order.

    Names in messages begin with `prefix`. None is allowed where the field's type says so, a string in a field without
    `choices` unless its type is that of a number, and a whole number up to 64 bits.
    """
    faults = []
    for each in dataclasses.fields(options):
        limit, value = each.metadata.get(_LIMITS), getattr(options, each.name)
        if limit is None or (value is None and type(None) in get_args(each.type)):
            continue
        key = limit["key"] or f"{prefix}{each.name}"
        if limit["choices"] is not None:
            faults += _choice_faults(key, value, limit["choices"])
        elif (kind := _NUMBERS.get(each.type)) is not None and not _is_number(value, *kind):
            faults.append(fault(key, f"be {kind[1]}", repr(value), limit["way_out"]))
        elif not isinstance(value, str):
            faults += range_faults(key, value, **limit["bounds"], way_out=limit["way_out"]) or _size_faults(key, value)
    return faults


def _size_faults(key: str, value: float) -> list[str]:
    return range_faults(key, value, le=_MAX_INT64) if isinstance(value, numbers.Integral) else []


def _is_number(value: object, kind: type, _: str) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def range_faults(key: str, value: float | None, *, way_out: str = "", **bounds: float) -> list[str]:
    """Check a number against bounds by the names of `limits`; None is allowed, infinity and NaN are not.

    `ge` or `gt` with `lt` is named as one interval. `le` is named only by values above it.
    """
    if value is None:
        return []
    broken = [name for name, bound in bounds.items() if not _BOUNDS[name][0](value, bound)]
    if not broken and (isinstance(value, int) or math.isfinite(value)):
        return []
    named = [name for name in bounds if name != "le"] if broken != ["le"] else broken
    rules = [f"{_BOUNDS[name][1]} {bounds[name]}" for name in named]
    if isinstance(value, float) and not {"le", "lt"} & set(bounds):
        rules.append("finite")
    return [fault(key, f"be {' and '.join(rules)}", value, way_out)]


def _choice_faults(key: str, value: str, choices: Collection[str]) -> list[str]:
    names = list(map(str, choices))
    return [] if value in names else [fault(key, f"be one of {', '.join(names)}", value, did_you_mean(value, names))]


@dataclass(frozen=True)
class GroupOptions:
    """One choice of a configuration group: its settings and their checks. Subclasses have a field `name`."""

    group: ClassVar[str]

    def faults(self) -> list[str]:
        """Every fault of these values as a line; an empty list if there are none."""
        return self._name_faults() + field_faults(self, f"{self.group}.") + self._special_faults()

    def _special_faults(self) -> list[str]:
        """Faults that the limits of single fields cannot express."""
        return []

    def _name_faults(self) -> list[str]:
        default = next(each.default for each in dataclasses.fields(self) if each.name == "name")
        name = getattr(self, "name", default)
        if name == default:
            return []
        way_out = f"`{self.group}=…` chooses another one, `runmanager help {self.group}` lists them"
        return [fault(f"{self.group}.name", f"stay {default!r}", repr(name), way_out)]
