"""`runmanager schema`: the JSON Schema of a file of sweeps, or of what a command prints with `--format json`."""

import inspect
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from runmanager.cli.printing import print_document
from runmanager.records.run.run_record import SCHEMA_VERSION

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class SchemaKind(StrEnum):
    """What has a schema: run.json, each line of epochs.jsonl, sweep.json; then commands, for what they print."""

    RUN = "run"
    EPOCHS = "epochs"
    SWEEP = "sweep"
    TABLE = "table"
    COMPARE = "compare"
    BEST = "best"
    LS = "ls"
    SHOW = "show"
    DIFF = "diff"
    SCALARS = "scalars"
    WATCH = "watch"
    DOCTOR = "doctor"


def schema_of(kind: SchemaKind) -> dict[str, Any]:
    """Return a JSON Schema, with its version as `version` and in `$id`.

    Names that it does not know are allowed, as readers ignore them.
    """
    from runmanager.cli.output_schemas import TYPES

    (root,), components = msgspec.json.schema_components([TYPES[kind]], ref_template="#/$defs/{name}")
    for component in components.values():
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
    identity = {"$schema": _DIALECT, "$id": f"urn:runmanager:{kind}:{SCHEMA_VERSION}", "version": SCHEMA_VERSION}
    return {**identity, **root, "$defs": components}


def schema(
    kind: Annotated[
        SchemaKind,
        typer.Argument(
            metavar="|".join(SchemaKind), help="run.json, a line of epochs.jsonl, sweep.json, or a command's JSON."
        ),
    ],
) -> None:
    """Print the JSON Schema of a file of sweeps, or of what a command prints with `--format json`."""
    print_document(schema_of(kind))
