"""`runmanager schema`: the JSON Schema of a sweep's files: run.json, a line of epochs.jsonl, sweep.json."""

import inspect
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from runmanager.cli.printing import print_text
from runmanager.records.run.run_record import SCHEMA_VERSION, EpochRecord, RunRecord
from runmanager.records.sweep.sweep_record import SweepRecord

__all__ = ["schema"]


_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class FileKind(StrEnum):
    """The files that have a schema; `epochs` is that of each line."""

    RUN = "run"
    EPOCHS = "epochs"
    SWEEP = "sweep"


_TYPES: dict[FileKind, type[msgspec.Struct]] = {
    FileKind.RUN: RunRecord,
    FileKind.EPOCHS: EpochRecord,
    FileKind.SWEEP: SweepRecord,
}


def file_schema(kind: FileKind) -> dict[str, Any]:
    """Return the JSON Schema of a file, with its version as `version` and in `$id`.

    Names that it does not know are allowed, as readers ignore them.
    """
    (root,), components = msgspec.json.schema_components([_TYPES[kind]], ref_template="#/$defs/{name}")
    for component in components.values():
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
    identity = {"$schema": _DIALECT, "$id": f"urn:runmanager:{kind}:{SCHEMA_VERSION}", "version": SCHEMA_VERSION}
    return {**identity, **root, "$defs": components}


def schema(
    kind: Annotated[FileKind, typer.Argument(metavar="run|epochs|sweep", help="run.json, epochs.jsonl or sweep.json.")],
) -> None:
    """Print the JSON Schema of a file of sweeps, with its version; that of `epochs` is of each line."""
    import json

    print_text(json.dumps(file_schema(kind), indent=2) + "\n")
