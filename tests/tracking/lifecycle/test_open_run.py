"""A cell on a host that lacks its device: recorded as skipped, unless another host has run it."""

from pathlib import Path

import pytest

from runmanager.app.programs.cell_supervisor import CellSpec, ProgramEnd, supervise_cell
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.storage.versioned_file import encode_record


@pytest.mark.parametrize(
    ("stored", "expected"), [(None, "skipped"), ("pending", "skipped"), ("skipped", "skipped"), ("killed", "killed")]
)
def test_a_cell_without_its_device_keeps_what_another_host_has_made(
    tmp_path: Path, stored: str | None, expected: str
) -> None:
    paths = RunPaths(tmp_path / "sweep" / "runs" / "one")
    pending = RunRecord(name="one", signature="0" * 64, status=Status.PENDING, config={"device": "cuda"})
    if stored is not None:
        paths.root.mkdir(parents=True)
        earlier = RunRecord(name="one", signature="0" * 64, status=Status(stored), config={"device": "cuda"})
        paths.record.write_bytes(encode_record(earlier))

    def run(folder: RunFolder) -> ProgramEnd:
        raise AssertionError("the program must not run")

    assert supervise_cell(CellSpec(paths, pending, lacks="no such device here"), run) is None
    record = read_record(paths)
    assert record.status == expected and (record.message == "no such device here") is (expected == "skipped")
    assert not paths.attempts.exists()
