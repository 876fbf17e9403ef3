"""`runmanager schema`: the JSON Schema of a sweep's files."""

from typing import Annotated

import typer

from runmanager.cli.printing import print_text
from runmanager.records.sweep.file_schema import FileKind, file_schema

__all__ = ["schema"]


def schema(
    kind: Annotated[FileKind, typer.Argument(metavar="run|epochs|sweep", help="run.json, epochs.jsonl or sweep.json.")],
) -> None:
    """Print the JSON Schema of a file of sweeps, with its version; that of `epochs` is of each line."""
    import json

    print_text(json.dumps(file_schema(kind), indent=2) + "\n")
