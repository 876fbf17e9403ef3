"""Secrets among settings and environment variables: which names mean one, and a mask in place of what they hold."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from runmanager.errors import UsageError

MASK = "***"
"""What stands for the text of a secret in all that is written or printed."""

SECRET_NAMES = ("password", "secret", "api_key", "access_token", "auth_token")
"""The names of secrets: a setting is one if the last part of its dotted name is one of them, or ends in `_` and one.

Hyphens, capitals and `camelCase` do not matter: `db.userPassword`, `API-KEY`.
"""

SECRETS_VARIABLE = "RUNMANAGER_SECRETS"
"""Environment variable with the names of further secrets, separated by commas; child processes inherit it."""

# Of a setting, `token` and `key` are more often counts and names than secrets; of a variable they hardly ever are.
_VARIABLE = re.compile(r"(^|_)(api_?key|key|token|secret|passw(or)?d|pass|credentials?|auth)(_|$)", re.IGNORECASE)

_MIN_CHARACTERS = 5  # shorter texts are also parts of other words, which must stay readable
_WORD_BEGINNINGS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# `${oc.env:NAME}`, also with an empty default and inside one other resolver, and `${another.setting}`.
_REFERENCE = re.compile(
    r"""\$\{(?:[\w.]+:)?\s*[\w.]+\s*(?:,\s*(?:null|''|"")\s*)?\}|\$\{[\w.]+:\s*\$\{(?:[\w.]+:)?\s*[\w.]+\s*\}\s*\}"""
)
_VARIABLE_REFERENCE = re.compile(r"\$\{\s*oc\.env\s*:\s*(\w+)\s*\}")
_OTHER_TYPES = re.compile(r"null|none|true|false|[+-]?(inf|nan|[\d_.]+(e[+-]?[\d_]+)?)", re.IGNORECASE | re.ASCII)
_ASSIGNMENT = re.compile(
    r"""(?P<name>[A-Za-z_][\w.-]*)(?P<sign>['"]?\s*[=:]\s*)(?P<value>"[^"]*"|'[^']*'|\$\{[^}]*\}|[^\s,;&(){}\[\]'"`]+)"""
)

_values: set[str] = set()


def declare_secrets(names: Iterable[str]) -> None:
    """Make settings of these names secrets too, in this process and those that it starts.

    A name without dots is compared with the last part of a setting's name, as those of `SECRET_NAMES` are; one with
    dots is that of one setting.
    """
    known = dict.fromkeys([*_declared().split(","), *(name.strip() for name in names)])
    known.pop("", None)
    if known:
        os.environ[SECRETS_VARIABLE] = ",".join(known)


def _declared() -> str:
    return os.environ.get(SECRETS_VARIABLE, "")


def is_secret(name: str) -> bool:
    """Whether a setting of this dotted name is a secret."""
    return _is_secret(name, _declared())


@lru_cache(maxsize=4096)
def _is_secret(name: str, declared: str) -> bool:
    dotted = name.strip("+~-")
    more = declared.split(",") if declared else []
    last = _with_underscores(dotted.rpartition(".")[2])
    known = [_with_underscores(each) for each in (*SECRET_NAMES, *(each for each in more if "." not in each))]
    known += [each.replace("_", "") for each in known]
    return dotted in more or any(last == each or last.endswith(f"_{each}") for each in known)


def _with_underscores(name: str) -> str:
    return _WORD_BEGINNINGS.sub("_", name).replace("-", "_").lower()


def without_secrets(names: Iterable[str]) -> list[str]:
    """Return the names that do not mean a secret: a secret distinguishes no cells, and is not an axis."""
    return [name for name in names if not is_secret(name)]


def secret_axis_notes(names: Iterable[str]) -> list[str]:
    """Return a note for each of a grid's axes that is a secret."""
    return [
        f"`{name.lstrip('+~')}` is a secret, which counts by its name alone: cells that differ in nothing else are one."
        for name in names
        if is_secret(name)
    ]


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable of this name holds a secret."""
    return _VARIABLE.search(name) is not None or is_secret(name)


def masked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested plain settings with `MASK` in place of each text below the name of a secret.

    Numbers, truth values and interpolations such as `${oc.env:NAME}` stay. Where another setting contains the text of
    a secret, as an address with a password does, the mask stands for that part.
    """
    found: set[str] = set()
    masked = _masked(settings, "", False, _declared(), found)
    if not found:
        return dict(settings)
    remember_secrets(found)
    long = sorted((each for each in found if len(each) >= _MIN_CHARACTERS), key=len, reverse=True)
    result: dict[str, Any] = _without(masked, long)
    return result


def _masked(value: Any, name: str, is_hidden: bool, declared: str, found: set[str]) -> Any:
    if isinstance(value, Mapping):
        masked = {}
        for key, item in value.items():
            inner = f"{name}.{key}" if name else str(key)
            masked[key] = _masked(item, inner, is_hidden or _is_secret(inner, declared), declared, found)
        return masked
    if isinstance(value, list):
        return [_masked(item, name, is_hidden, declared, found) for item in value]
    if is_hidden and isinstance(value, str) and _is_literal(value):
        found.add(value)
        return MASK
    return value


def _without(value: Any, texts: Sequence[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(item, texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_without(item, texts) for item in value]
    if isinstance(value, str):
        for text in texts:
            value = value.replace(text, MASK)
    return value


def _is_literal(text: str) -> bool:
    return text not in ("", MASK) and _REFERENCE.fullmatch(text) is None


def masked_names(settings: Any, name: str = "") -> list[str]:
    """Return the dotted names of the settings that hold a mask: their texts are not recorded."""
    if isinstance(settings, Mapping):
        return [each for key, item in settings.items() for each in masked_names(item, f"{name}.{key}" if name else key)]
    if isinstance(settings, list | tuple):
        return list(dict.fromkeys(each for item in settings for each in masked_names(item, name)))
    return [name] if isinstance(settings, str) and MASK in settings else []


def masked_words(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a command with `MASK` in place of the texts of secrets.

    Known are `NAME=TEXT`, `--NAME=TEXT`, `--NAME TEXT`, and `NAME: TEXT` within a word.
    """
    masked: list[str] = []
    is_next = False
    for word in words:
        name, given, value = word.partition("=")
        hides = is_secret(name) and (bool(given) or word.startswith("-"))
        if hides and given:
            masked.append(f"{name}={_masked_text(value)}")
        elif is_next and not word.startswith("-"):
            masked.append(_masked_text(word))
        else:
            masked.append(_with_masked_assignments(word))
        is_next = hides and not given
    return tuple(masked)


def _masked_text(text: str) -> str:
    """The mask, unless no value in the text is that of a secret: of an axis each counts."""
    parts = [part.strip().strip("'\"") for part in re.sub(r"^choice\((.*)\)$", r"\1", text).split(",")]
    literal = [each for each in parts if _is_literal(each) and not _OTHER_TYPES.fullmatch(each)]
    remember_secrets([*literal, *([text] if literal else [])])
    return MASK if literal else text


def _with_masked_assignments(text: str) -> str:
    return _ASSIGNMENT.sub(_masked_assignment, text) if "=" in text or ":" in text else text


def _masked_assignment(found: re.Match[str]) -> str:
    if is_secret(found["name"]):
        return f"{found['name']}{found['sign']}{_masked_text(found['value'])}"
    # What follows the sign may be an assignment itself, as in `url=http://host/?api_key=…`.
    return f"{found['name']}{found['sign']}{_with_masked_assignments(found['value'])}"


def remember_secrets(texts: Iterable[str]) -> None:
    """Let `redacted` remove these texts, and as they stand in a string of JSON or Python; not very short ones."""
    for text in texts:
        if text != MASK:
            _values.update((text, json.dumps(text)[1:-1], repr(text)[1:-1], text.replace("'", r"\'")))


def remembered_secrets() -> list[str]:
    """Return the texts that `redacted` removes, the longest first."""
    return sorted((each for each in _values if len(each) >= _MIN_CHARACTERS), key=len, reverse=True)


def redacted(text: str) -> str:
    """Return a text for people without the secrets that this process knows: by their values, and by `NAME=VALUE`."""
    if not _values:
        return text
    for value in remembered_secrets():
        text = text.replace(value, MASK)
    return _with_masked_assignments(text)


def without_remembered_secrets(value: Any) -> Any:
    """Return nested plain values of Hydra with each text `redacted`, and masked as a word of a command."""
    if not _values:
        return value
    if isinstance(value, dict):
        return {key: without_remembered_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_remembered_secrets(item) for item in value]
    return redacted(masked_words([value])[0]) if isinstance(value, str) else value


def refuse_masks(words: Iterable[str]) -> None:
    """Raise `UsageError` if a command gives the mask for a secret, as one does that is copied from a record."""
    for word in words:
        name, _, value = word.partition("=")
        if value == MASK and is_secret(name):
            raise UsageError(
                f"`{name.lstrip('+-')}` must be given its own text, got the mask {MASK} of a record; write it, or "
                f"{name}='${{oc.env:NAME}}'."
            )


def secrets_from_environment(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings with the values of the environment variables that secrets name by `${oc.env:NAME}`.

    Raises `UsageError` for a variable that is not set, and for a secret whose text was not recorded.
    """
    return {key: _revealed(value, key, is_secret(key)) for key, value in settings.items()}


def _revealed(value: Any, name: str, is_hidden: bool) -> Any:
    if isinstance(value, Mapping):
        return {key: _revealed(each, f"{name}.{key}", is_hidden or is_secret(key)) for key, each in value.items()}
    if not is_hidden or not isinstance(value, str):
        return value
    if value == MASK:
        raise UsageError(
            f"`{name}` must come from the environment to be used again, got a text that was not recorded; run it with "
            f"{name}='${{oc.env:NAME}}'."
        )
    reference = _VARIABLE_REFERENCE.fullmatch(value)
    if reference is None:
        return value
    if reference[1] not in os.environ:
        raise UsageError(
            f"`{name}` must name an environment variable that is set, got {value}; set {reference[1]} for the command."
        )
    remember_secrets([os.environ[reference[1]]])
    return os.environ[reference[1]]
