"""The JSON Schemas describe what is on disk."""

import json
from pathlib import Path

import msgspec
import pytest

from runmanager.cli.commands.schema import SchemaKind, schema_of
from runmanager.cli.main import run_command
from runmanager.records.run.run_record import SCHEMA_VERSION, EpochRecord, RunRecord
from runmanager.records.run.status import Status

from ...documented import example_in
from ...file_schemas import breaches, check_sweep_files


def test_every_file_of_the_example_sweep_is_as_its_schema_says(tmp_path: Path) -> None:
    with example_in(tmp_path):
        assert check_sweep_files(tmp_path / "outputs" / "digits") > 50


def test_fields_that_are_left_out_where_there_is_nothing_are_described() -> None:
    run = RunRecord(
        name="a",
        signature="b",
        status=Status.FINISHED,
        config={"lr": 0.1, "deep": {"list": [1, None]}},
        better={"fid": "min"},
        interval="steps",
        summary={"fid": 1.5, "gone": None},
        origins={"fid": "printed"},
        adopted="elsewhere",
        cell_command=("python", "train.py"),
        variables={"HOME": "/root"},
    )
    epoch = EpochRecord(1, metrics={"f1": 0.5, "gone": None}, units={"tokens": 7})
    for kind, record in ((SchemaKind.RUN, run), (SchemaKind.EPOCHS, epoch)):
        schema = schema_of(kind)
        assert breaches(json.loads(msgspec.json.encode(record)), schema, schema) == []


@pytest.mark.parametrize(
    ("kind", "changes", "at"),
    [
        (SchemaKind.EPOCHS, {"epoch": "1"}, "$.epoch"),
        (SchemaKind.EPOCHS, {"metrics": {"f1": "high"}}, "$.metrics.f1"),
        (SchemaKind.RUN, {"status": "done"}, "$.status"),
        (SchemaKind.RUN, {"notes": [3]}, "$.notes[0]"),
    ],
)
def test_other_files_are_not_as_the_schema_says(kind: SchemaKind, changes: dict[str, object], at: str) -> None:
    good = (
        {"epoch": 1}
        if kind is SchemaKind.EPOCHS
        else {"name": "a", "signature": "b", "status": "finished", "config": {}}
    )
    schema = schema_of(kind)
    assert breaches(good, schema, schema) == []
    assert at in "".join(breaches(good | changes, schema, schema))


@pytest.mark.parametrize("kind", SchemaKind)
def test_the_command_prints_the_schema_with_its_version(kind: SchemaKind, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["schema", kind]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(schema_of(kind)))
    assert printed["version"] == SCHEMA_VERSION
    assert printed["$id"].endswith(f":{SCHEMA_VERSION}")
