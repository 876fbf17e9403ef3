"""A check of a sweep's files against their JSON Schemas, for the part of the language that these use."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runmanager.cli.commands.schema import SchemaKind, schema_of

__all__ = ["breaches", "check_sweep_files"]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = {
    *("$schema", "$id", "$defs", "$ref", "version", "title", "description", "default"),
    *("type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems"),
    *("enum", "anyOf", "minimum", "maximum"),
}


def breaches(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], at: str = "$") -> list[str]:
    """Return where `value` breaks `schema`; a keyword that is not known here is one."""
    found = [f"{at}: keyword {word}" for word in schema if word not in _KNOWN]
    if "$ref" in schema:
        found += breaches(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, at)
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is not one of {schema['enum']}")
    if "anyOf" in schema:
        choices = [breaches(value, each, root, at) for each in schema["anyOf"]]
        if all(choices):
            found.append(f"{at}: {value!r} fits none of {len(choices)} choices: {choices[0]}")
    if "type" in schema and not _is_of_type(value, schema["type"]):
        return [*found, f"{at}: {value!r} is not of type {schema['type']}"]
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{at}: {value} is out of range")
    if isinstance(value, dict):
        found += _object_breaches(value, schema, root, at)
    if isinstance(value, list):
        of_items = schema.get("items", {})
        assert isinstance(of_items, dict), schema
        for index, each in enumerate(value):
            found += breaches(each, of_items, root, f"{at}[{index}]")
    return found


def _object_breaches(value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], at: str) -> list[str]:
    found = [f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value]
    properties = schema.get("properties")
    if properties is not None:  # a record: everything that is written is described
        found += [f"{at}: {name} is not described" for name in value if name not in properties]
        for name in set(properties) & set(value):
            found += breaches(value[name], properties[name], root, f"{at}.{name}")
    elif isinstance(schema.get("additionalProperties"), dict):
        for name, each in value.items():
            found += breaches(each, schema["additionalProperties"], root, f"{at}.{name}")
    return found


def _is_of_type(value: Any, name: str) -> bool:
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, _TYPES[name])


def check_sweep_files(sweep: Path) -> int:
    """Assert that every record of a sweep is as its schema says; return how many there were."""
    documents = [(SchemaKind.SWEEP, sweep / "sweep.json", (sweep / "sweep.json").read_text())]
    for run in sorted((sweep / "runs").iterdir()):
        documents.append((SchemaKind.RUN, run / "run.json", (run / "run.json").read_text()))
        lines = (run / "epochs.jsonl").read_text().splitlines() if (run / "epochs.jsonl").exists() else []
        documents += [(SchemaKind.EPOCHS, run / "epochs.jsonl", line) for line in lines]
    for kind, path, text in documents:
        schema = schema_of(kind)
        assert breaches(json.loads(text), schema, schema) == [], path
    return len(documents)
