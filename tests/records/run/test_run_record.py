"""Records are read as written, also by newer and older versions."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import PHASES, SCHEMA_VERSION, Environment, EpochRecord, RunRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.versioned_file import encode_record

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
MAYBE = st.none() | FINITE
EPOCHS = st.builds(EpochRecord, epoch=st.integers(0, 10**6), loss=MAYBE, accuracy=MAYBE, epoch_seconds=MAYBE)
RECORDS = st.builds(
    RunRecord,
    name=TEXT,
    signature=TEXT,
    status=st.sampled_from(Status),
    reason=st.none() | st.sampled_from(Reason),
    message=TEXT,
    config=st.dictionaries(TEXT, VALUES, max_size=4),
    attempt=st.integers(1, 1000),
    started_at=st.none() | TEXT,
    run_seconds=MAYBE,
    peak_memory_bytes=st.none() | st.integers(0, 2**60),
    owner=st.none() | st.builds(ProcessIdentity, st.integers(1, 2**22), st.integers(0, 2**60), TEXT, TEXT),
    environment=st.builds(Environment, host=TEXT, libraries=st.dictionaries(TEXT, TEXT, max_size=2), load_at_end=MAYBE),
    notes=st.lists(TEXT, max_size=2).map(tuple),
)


@given(RECORDS)
def test_record_is_read_as_written(record: RunRecord) -> None:
    assert msgspec.json.decode(encode_record(record), type=RunRecord) == record


@given(EPOCHS)
def test_epoch_is_one_line_and_read_as_written(epoch: EpochRecord) -> None:
    line = msgspec.json.encode(epoch)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=EpochRecord) == epoch


def stored(folder: Path, data: dict[str, object]) -> RunPaths:
    paths = RunPaths(folder / "some-run")
    paths.root.mkdir()
    paths.record.write_bytes(msgspec.json.encode(data))
    return paths


def test_unknown_field_is_ignored(tmp_path: Path, record: Callable[..., RunRecord]) -> None:
    data = msgspec.to_builtins(record())
    data["colour"] = {"of": "tomorrow"}
    data["environment"]["moon"] = "full"
    assert read_record(stored(tmp_path, data)) == record()


def test_newer_schema_is_rejected(tmp_path: Path, record: Callable[..., RunRecord]) -> None:
    # Its other fields may be of other types.
    paths = stored(tmp_path, {"schema_version": SCHEMA_VERSION + 1, "status": {"is": "something new"}})
    message = f"run.json must have a schema_version of at most {SCHEMA_VERSION}, got {SCHEMA_VERSION + 1}; .*upgrade"
    with pytest.raises(RecordError, match=message):
        read_record(paths)


def test_settings_are_flat_and_without_unsigned_ones(record: Callable[..., RunRecord]) -> None:
    config = {"lr": 0.1, "name": "grid", "model": {"name": "cnn", "depth": 8}, "checkpoint": {"every": 2}}
    assert record(config=config).settings == {"lr": 0.1, "model.name": "cnn", "model.depth": 8}


def test_later_settings_have_their_neutral_value(record: Callable[..., RunRecord]) -> None:
    groups = {"dataset": "mnist", "model": "cnn", "optimizer": "adam", "loader": "dataloader"}
    older = {"lr": 0.1, **{group: {"name": name} for group, name in groups.items()}}
    newer = {**older, "optimizer": {"name": "adam", "fused": True}, "on_oom": "halve"}
    settings = record(config=older).settings
    assert settings["precision"] == "fp32" and settings["optimizer.fused"] is None
    assert settings["loader.prefetch_to_device"] is False
    assert "loader.prefetch_to_device" not in record(config={**older, "loader": {"name": "resident"}}).settings
    assert record(config=newer).settings == {**settings, "on_oom": "halve", "optimizer.fused": True}
    assert record(config={"lr": 0.1}).settings == {"lr": 0.1}, "settings of a custom loop are unchanged"


def test_run_whose_process_is_gone_reads_crashed(
    record: Callable[..., RunRecord], dead: ProcessIdentity, tmp_path: Path
) -> None:
    seen = record(owner=dead).observed()
    assert (seen.status, seen.reason) == (Status.CRASHED, Reason.VANISHED)
    assert str(dead.pid) in seen.message
    for unchanged in (
        record(),
        record(owner=None),
        record(owner=msgspec.structs.replace(dead, host="elsewhere")),
        record(owner=dead, status=Status.FINISHED),
    ):
        assert unchanged.observed() is unchanged
    # Observing does not write.
    folder = claim_run(RunPaths(tmp_path / "run"), record(owner=dead))
    assert read_record(folder.paths).status is Status.RUNNING


@pytest.mark.parametrize(
    ("status", "reason", "message", "is_resumable"),
    [
        (Status.KILLED, Reason.SIGNAL, "", True),
        (Status.CRASHED, Reason.VANISHED, "", True),
        (Status.FAILED, Reason.EXCEPTION, "ValueError: no", False),
        (Status.FAILED, Reason.EXCEPTION, "OSError: [Errno 28] No space left on device", True),
        (Status.FAILED, Reason.DIVERGED, "OSError: [Errno 28] No space left on device", False),
        (Status.FINISHED, None, "", False),
        (Status.RUNNING, None, "", False),
    ],
)
def test_a_run_that_was_broken_off_is_resumable(
    record: Callable[..., RunRecord], status: Status, reason: Reason | None, message: str, is_resumable: bool
) -> None:
    assert record(status=status, reason=reason, message=message).is_resumable is is_resumable


def test_ended_sets_outcome_and_time(record: Callable[..., RunRecord]) -> None:
    ended = record().ended(Outcome(Status.FAILED, Reason.DIVERGED, "loss is NaN"), at="2026-11-21T12:00:00+00:00")
    assert ended.outcome == Outcome(Status.FAILED, Reason.DIVERGED, "loss is NaN")
    assert ended.ended_at == "2026-11-21T12:00:00+00:00"


def test_throughput_counts_trained_samples() -> None:
    assert EpochRecord(epoch=1, samples=300, epoch_seconds=2.0).samples_per_second == 150
    assert EpochRecord(epoch=0).samples_per_second is None
    assert EpochRecord(epoch=1, samples=0, epoch_seconds=2.0).samples_per_second is None
    assert EpochRecord(epoch=1, samples=300, epoch_seconds=0.0).samples_per_second is None


def test_epoch_columns_are_those_of_the_contract() -> None:
    metrics = ["epoch", "loss", "accuracy", "val_loss", "val_accuracy"]
    measures = ["epoch_seconds", "wall_seconds", "run_seconds", "samples", "warmup"]
    phases = [f"{phase}_seconds" for phase in PHASES]
    assert list(EpochRecord.__struct_fields__) == [*metrics, *measures, *phases, "metrics", "units", "readings"]
