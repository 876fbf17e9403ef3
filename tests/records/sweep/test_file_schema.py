"""The JSON Schemas describe what is on disk."""

import json
from pathlib import Path

import msgspec
import pytest

from runmanager.cli.commands.ls import FileKind, file_schema
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
    for kind, record in ((FileKind.RUN, run), (FileKind.EPOCHS, epoch)):
        schema = file_schema(kind)
        assert breaches(json.loads(msgspec.json.encode(record)), schema, schema) == []


@pytest.mark.parametrize(
    ("kind", "changes", "at"),
    [
        (FileKind.EPOCHS, {"epoch": "1"}, "$.epoch"),
        (FileKind.EPOCHS, {"metrics": {"f1": "high"}}, "$.metrics.f1"),
        (FileKind.RUN, {"status": "done"}, "$.status"),
        (FileKind.RUN, {"notes": [3]}, "$.notes[0]"),
    ],
)
def test_other_files_are_not_as_the_schema_says(kind: FileKind, changes: dict[str, object], at: str) -> None:
    good = (
        {"epoch": 1} if kind is FileKind.EPOCHS else {"name": "a", "signature": "b", "status": "finished", "config": {}}
    )
    schema = file_schema(kind)
    assert breaches(good, schema, schema) == []
    assert at in "".join(breaches(good | changes, schema, schema))


@pytest.mark.parametrize("kind", FileKind)
def test_the_command_prints_the_schema_with_its_version(kind: FileKind, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["schema", kind]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(file_schema(kind)))
    assert printed["version"] == SCHEMA_VERSION
    assert printed["$id"].endswith(f":{SCHEMA_VERSION}")
