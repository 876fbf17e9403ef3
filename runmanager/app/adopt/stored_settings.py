"""The settings of a run that another program stored: a YAML file, hyperparameters, or the names of folders."""

import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import yaml

from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import read_bytes
from runmanager.records.files.file_errors import damaged_file_error
from runmanager.records.files.yaml_size import require_few_values
from runmanager.records.settings.values import plain_settings
from runmanager.text import encodable

__all__ = ["FOLDER", "read_yaml_settings", "settings_of_name"]

FOLDER = "folder"
"""The setting that tells runs without any other apart: the part of their path that names no setting."""

_MAX_BYTES = 1 << 20
_MAX_VALUES = 10_000
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "none": None}


def read_yaml_settings(path: Path) -> dict[str, Any]:
    """Read nested settings; interpolations such as `${lr}` stay text. Raises `RecordError` for a damaged file.

    No object is built that the file names, and a file of a few lines cannot expand to more than 10,000 values.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise RecordError(f"{path} must have at most {_MAX_BYTES:,} bytes to be read as settings")
        loaded = _load(read_bytes(path).decode())
        if not isinstance(loaded, dict | None):
            raise ValueError(f"it must hold a mapping of settings, got {type(loaded).__name__}")
        return plain_settings(_with_text_keys(loaded or {}))
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise damaged_file_error(path, ValueError(reason)) from None


def _load(text: str) -> Any:
    """Build the values of a document, if they are few. Raises `ValueError` for a faulty one."""
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        document = loader.get_single_node()
        require_few_values(document, most=_MAX_VALUES)
        return None if document is None else loader.construct_document(document)
    except (RecursionError, MemoryError):
        raise
    except Exception as error:  # a tag such as `!!int` on another text raises whatever its conversion does
        raise ValueError(str(error) or type(error).__name__) from None
    finally:
        if loader is not None:
            loader.dispose()


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value


def settings_of_name(relative: PurePath) -> dict[str, Any]:
    """Return the settings in a path such as `lr=0.1,batch=32/seed=1`; the rest of it is the setting `folder`.

    A value is a number, `true`, `false`, `null`, or text.
    """
    settings: dict[str, Any] = {}
    rest: list[str] = []
    for part in map(encodable, relative.parts):
        words = [re.fullmatch(r"([A-Za-z_][\w./-]*)=(.*)", word) for word in part.split(",")]
        if all(words):
            settings |= {word[1]: _parsed(word[2]) for word in words if word}
        else:
            rest.append(part)
    return settings | ({FOLDER: "/".join(rest)} if rest and FOLDER not in settings else {})


def _parsed(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return plain_settings({"": kind(text)})[""]
        except ValueError:
            continue
    return text
