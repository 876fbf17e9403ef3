"""The flags that a script requires, read from a help that argparse has certainly made itself."""

import re
from collections.abc import Sequence

__all__ = ["required_flags"]

_FIRST = "[-h]"
_DEFINITION = re.compile(r"^  (-.*?)(?:  .*)?$", re.MULTILINE)
_NEXT_FLAG = re.compile(r", (?=-)")
_FLAG_IN_REST = re.compile(r"(?<!\w)-")


def required_flags(usage: str, text: str) -> Sequence[Sequence[str]]:
    """Return the names, without dashes, of each flag outside all brackets of the usage; the script takes any of them.

    Empty unless each flag that the help `text` defines stands once in the `usage`, in the form that argparse gives it,
    and nothing else stands between them, which the script itself may have written.
    """
    _, first, rest = " ".join(usage.split()).partition(_FIRST)
    forms = dict(map(_usage_form, _DEFINITION.findall(text)))
    if not first or not forms:
        return []
    form = f"(?:{'|'.join(map(re.escape, sorted(forms, key=len, reverse=True)))})"
    several = rf"{form}(?: \| {form})*"
    part = re.compile(rf"(?:\[{several}\]|\({several}\)|(?P<required>{form}))(?= |$)")
    rest, found, required = f"{first}{rest}", list[str](), list[Sequence[str]]()
    while (match := part.match(rest)) is not None:
        found += re.findall(form, match[0])
        if match["required"]:
            required.append(forms[match["required"]])
        rest = rest[match.end() :].lstrip()
    is_own = sorted(found) == sorted(forms) and not _FLAG_IN_REST.search(rest)  # arguments by position come last
    return [names for names in required if names] if is_own else []


def _usage_form(definition: str) -> tuple[str, Sequence[str]]:
    """How the usage shows a flag that is defined as `-b N, --batch-size N`, and its long names."""
    flags = [each.partition(" ") for each in _NEXT_FLAG.split(" ".join(definition.split()))]
    names = [flag.removeprefix("--") for flag, _, _ in flags if flag.startswith("--")]
    value = flags[-1][2]
    if not value and any(f"no-{name}" in names for name in names):  # `BooleanOptionalAction`
        return " | ".join(flag for flag, _, _ in flags), names
    return f"{flags[0][0]} {value}".strip(), names
