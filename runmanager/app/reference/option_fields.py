"""The fields of an options class as settings: the sentence below each field, its type, default and values."""

import ast
import dataclasses
import inspect
import textwrap
import types
from typing import Any, get_args, get_origin, get_type_hints

from runmanager.text import format_value
from runmanager.validation import allowed_values, default_words

__all__ = ["Setting", "settings_of"]


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting as it is described: all fields are text for people; `choice` is the one that has it, or empty."""

    key: str
    sentence: str
    type: str
    default: str
    values: str = ""
    choice: str = ""


def settings_of(
    options: type[Any], *, prefix: str = "", choice: str = "", without: frozenset[str] = frozenset()
) -> list[Setting]:
    """Describe the fields of an options dataclass, but for `name` of a group and those in `without`.

    Names begin with `prefix`. The sentence of a field is its `help`, or the docstring below it; else it is empty.
    """
    hints, sentences = get_type_hints(options), field_sentences(options)
    return [
        Setting(
            key=f"{prefix}{each.name}",
            sentence=each.metadata.get("help") or sentences.get(each.name, ""),
            type=_type_name(hints[each.name]),
            default=default_words(each) or format_value(_default(each)),
            values=allowed_values(each) or ("true, false" if hints[each.name] is bool else ""),
            choice=choice,
        )
        for each in dataclasses.fields(options)
        if each.name not in without
    ]


def field_sentences(options: type[Any]) -> dict[str, str]:
    """Return the docstring below each field of a class, those of its bases included, by the field's name."""
    found: dict[str, str] = {}
    for each in reversed(options.__mro__):
        if dataclasses.is_dataclass(each):
            found |= _own_sentences(each)
    return found


def _own_sentences(options: type[Any]) -> dict[str, str]:
    """The docstrings of a class's own fields: Python does not keep them, so they are read from the source, if any."""
    try:
        source = inspect.getsource(options)
    except OSError:
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(inspect.cleandoc(below.value.value).split())
        for field, below in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _type_name(hint: Any) -> str:
    """Format a type: `int or null`, `list of str`."""
    if hint is types.NoneType:
        return "null"
    if get_origin(hint) is types.UnionType:
        return " or ".join(_type_name(each) for each in get_args(hint))
    if get_origin(hint) is list:
        return f"list of {_type_name(get_args(hint)[0])}"
    return "mapping" if get_origin(hint) is dict else str(hint.__name__)
