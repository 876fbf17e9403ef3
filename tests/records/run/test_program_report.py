"""What a program reports is merged into its run's record, by readers while it runs and by the process that ends it."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.program_report import ProgramReport, with_report
from runmanager.records.run.run_record import Environment, Measurements, RunRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import read_record, read_report, read_run, read_sweep
from runmanager.records.storage.run_end import end_gone_run, end_silent_run, find_end
from runmanager.records.storage.versioned_file import encode_record

from ..run_folders import Reader

MakeRecord = Callable[..., RunRecord]
CRASHED = Outcome(Status.CRASHED, Reason.VANISHED, "gone")
REPORT = ProgramReport(
    outcome=Outcome(Status.FINISHED),
    num_parameters=7,
    interval="steps",
    environment=Environment(device_name="a device"),
    measurements=Measurements(precision="fp32"),
    notes=("one", "two"),
    better={"fid": "min"},
    summary={"fid": 3.5, "worst": None},
)


def _reported(paths: RunPaths, report: ProgramReport = REPORT) -> RunPaths:
    paths.reported.write_bytes(encode_record(report))
    return paths


def test_report_fills_what_the_record_lacks_and_replaces_what_it_reports(record: MakeRecord) -> None:
    stored = record(
        notes=("zero", "one"),
        environment=Environment(host="here", device_name="another"),
        measurements=Measurements(steps_per_epoch=3),
        summary={"printed": 1.0, "fid": 9.0},
        origins={"printed": "printed"},
    )
    merged = with_report(stored, REPORT)
    assert (merged.num_parameters, merged.interval, merged.better) == (7, "steps", {"fid": "min"})
    assert merged.environment == Environment(host="here", device_name="a device")
    assert merged.measurements == Measurements(steps_per_epoch=3, precision="fp32")
    assert merged.notes == ("zero", "one", "two")
    assert list((merged.summary or {}).items()) == [("printed", 1.0), ("fid", 3.5), ("worst", None)]
    assert (merged.status, merged.origins) == (Status.RUNNING, {"printed": "printed"}), "its outcome is not the run's"


def test_report_that_is_missing_empty_or_of_another_attempt_changes_nothing(record: MakeRecord) -> None:
    stored = record()
    assert with_report(stored, None) is stored
    assert with_report(stored, msgspec.structs.replace(REPORT, attempt=2)) is stored
    assert encode_record(with_report(stored, ProgramReport())) == encode_record(stored)
    assert not {b"interval", b"summary", b"origins"} & set(encode_record(stored).replace(b'"', b" ").split())


def test_readers_merge_the_report_of_a_running_run_only(tmp_path: Path, record: MakeRecord) -> None:
    folder = claim_run(SweepPaths(tmp_path).run("a"), record())
    paths = _reported(folder.paths)
    assert read_report(paths) == REPORT
    assert read_run(paths).record.summary == read_sweep(SweepPaths(tmp_path)).runs[0].record.summary == REPORT.summary
    folder.write(status=Status.FINISHED)
    assert read_run(paths).record.summary is msgspec.UNSET, "run.json of an ended run has all of it"


def test_damaged_report_is_reported_and_hides_no_run(tmp_path: Path, record: MakeRecord) -> None:
    paths = claim_run(SweepPaths(tmp_path).run("a"), record()).paths
    paths.reported.write_text('{"summary": 3}')
    contents = read_sweep(SweepPaths(tmp_path))
    assert [run.status for run in contents.runs] == ["running"]
    assert "reported.json is damaged" in contents.damaged[0].message
    with pytest.raises(RecordError, match=r"reported\.json is damaged"):
        read_run(paths)
    end_gone_run(paths, CRASHED, pending=record())
    assert read_record(paths).status is Status.CRASHED


def test_end_of_a_dead_run_keeps_its_report(tmp_path: Path, record: MakeRecord, far: ProcessIdentity) -> None:
    def left(name: str, owner: ProcessIdentity) -> RunPaths:
        return _reported(claim_run(RunPaths(tmp_path / "runs" / name), record(owner=owner)).paths)

    here = ProcessIdentity.current()
    gone, found, silent = left("gone", here), left("found", here), left("silent", far)
    end_gone_run(gone, CRASHED, pending=record())
    end = find_end(found, here.pid, CRASHED, pending=record(), has_returned=False).to_write
    reader = Reader()
    assert end_silent_run(silent, reader.observer) is None
    reader.observer.wait(61)
    ends = (read_record(gone), end, end_silent_run(silent, reader.observer))
    assert [(each and each.status, each and each.summary) for each in ends] == [(Status.CRASHED, REPORT.summary)] * 3


def test_next_attempt_of_a_run_whose_supervisor_vanished_keeps_its_report(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity
) -> None:
    paths = _reported(claim_run(SweepPaths(tmp_path).run("a"), record(owner=dead)).paths)
    kept = claim_run(paths, record()).record
    assert (kept.attempt, kept.summary, kept.environment.device_name) == (2, REPORT.summary, "a device")
