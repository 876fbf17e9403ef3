"""Reading runs and sweeps: damage is reported and affects no other run."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import Beat, write_beat
from runmanager.records.run.run_record import SCHEMA_VERSION, EpochRecord, RunRecord, Turn
from runmanager.records.run.status import Status
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import read_run, read_sweep
from runmanager.records.storage.versioned_file import encode_record

from ..run_folders import left_by

MakeRecord = Callable[..., RunRecord]


def test_torn_last_line_is_dropped_and_a_damaged_one_reported(tmp_path: Path, record: MakeRecord) -> None:
    folder = left_by(RunPaths(tmp_path / "a"), record())
    whole = folder.paths.epochs.read_bytes()
    folder.paths.epochs.write_bytes(whole + whole[:10])
    assert [epoch.epoch for epoch in read_run(folder.paths).epochs] == [1]
    folder.paths.epochs.write_bytes(whole[:10] + b"\n" + whole)
    with pytest.raises(RecordError, match=r"epochs\.jsonl is damaged"):
        read_run(folder.paths)


def test_epoch_of_a_newer_version_is_read(tmp_path: Path, record: MakeRecord) -> None:
    folder = claim_run(RunPaths(tmp_path / "a"), record())
    folder.paths.epochs.write_bytes(b'{"epoch":1,"loss":0.5,"perplexity":{"of":3}}\n')
    assert read_run(folder.paths).epochs == [EpochRecord(epoch=1, loss=0.5)]


def sweep_of_five(folder: Path, record: MakeRecord, dead: ProcessIdentity) -> SweepPaths:
    sweep = SweepPaths(folder)
    for number in range(5):
        started = None if number == 0 else f"2026-11-21T12:00:0{9 - number}+00:00"
        left_by(sweep.run(f"run-{number}"), record(name=f"run-{number}", owner=dead, started_at=started))
    return sweep


def test_sweep_is_read_in_order_of_start(tmp_path: Path, record: MakeRecord, dead: ProcessIdentity) -> None:
    sweep = sweep_of_five(tmp_path / "s", record, dead)
    (sweep.runs / ".new-being-claimed").mkdir()
    (sweep.runs / "notes.txt").write_text("not a run")
    contents = read_sweep(sweep)
    assert [run.record.name for run in contents.runs] == ["run-4", "run-3", "run-2", "run-1", "run-0"]
    assert {run.record.status for run in contents.runs} == {Status.CRASHED}
    assert contents.damaged == []
    assert read_sweep(SweepPaths(tmp_path / "nothing")).runs == []


def test_invalid_time_is_damage(tmp_path: Path, record: MakeRecord) -> None:
    sweep = sweep_of_five(tmp_path / "s", record, ProcessIdentity.current())
    path = sweep.run("run-1").record
    path.write_bytes(encode_record(record(started_at="yesterday")))
    contents = read_sweep(sweep)
    assert len(contents.runs) == 4
    assert [damage.path.name for damage in contents.damaged] == ["run-1"]
    assert "got 'yesterday'" in contents.damaged[0].message


@pytest.mark.parametrize("name", ["run.json", "epochs.jsonl", "heartbeat"])
def test_pipe_or_device_instead_of_a_file_is_damage_and_does_not_block(
    tmp_path: Path, record: MakeRecord, name: str
) -> None:
    sweep = SweepPaths(tmp_path)
    for number, put in enumerate((None, os.mkfifo, lambda path: path.symlink_to("/dev/zero"))):
        folder = claim_run(sweep.run(f"run-{number}"), record(status=Status.RUNNING))
        folder.append(EpochRecord(epoch=1))
        folder.leave()
        if put is not None:
            path = {"heartbeat": folder.paths.heartbeat}.get(name, folder.paths.root / name)
            path.unlink(missing_ok=True)
            put(path)
    contents = read_sweep(sweep)
    damaged = [damage.path.name for damage in contents.damaged]
    assert damaged == ([] if name == "heartbeat" else ["run-1", "run-2"])
    assert all("must be a regular file" in damage.message for damage in contents.damaged)
    assert [len(run.epochs) for run in contents.runs if run.folder == "run-0"] == [1]


def test_damage_is_reported_and_drops_no_other_run(tmp_path: Path, record: MakeRecord, dead: ProcessIdentity) -> None:
    sweep = sweep_of_five(tmp_path / "s", record, dead)
    sweep.run("run-1").record.write_bytes(b'{"name": "run-1", ')
    sweep.run("run-2").epochs.write_bytes(b"nonsense\n")
    sweep.run("run-3").record.write_bytes(
        encode_record(record()).replace(b'"schema_version": 1', b'"schema_version": 2')
    )
    sweep.run("run-4").record.unlink()
    sweep.run("run-5").root.mkdir()  # as Hydra does, just before the run begins
    contents = read_sweep(sweep)
    assert {run.record.name: len(run.epochs) for run in contents.runs} == {"run-0": 1, "run-2": 0}
    messages = {damage.path.name: damage.message for damage in contents.damaged}
    assert set(messages) == {"run-1", "run-2", "run-3", "run-4"}
    assert "run.json is damaged" in messages["run-1"] and "epochs.jsonl is damaged" in messages["run-2"]
    assert f"at most {SCHEMA_VERSION}, got 2" in messages["run-3"] and "got nothing there" in messages["run-4"]


DAMAGE = st.one_of(
    st.binary(max_size=60),
    st.just(b"\0" * 300),
    st.just(b"[" * 100_000),
    st.sampled_from([b"null", b"{}", b"[]", b'{"schema_version": "x"}', b'{"schema_version": 1e999}', b"\xff\xfe{}"]),
)


@settings(max_examples=40)
@given(damage=DAMAGE, name=st.sampled_from(["run.json", "epochs.jsonl"]))
def test_no_damage_stops_the_reader(
    tmp_path_factory: pytest.TempPathFactory, record: MakeRecord, damage: bytes, name: str
) -> None:
    root = tmp_path_factory.mktemp("damage", numbered=True)
    sweep = SweepPaths(root)
    for run in ("good", "bad"):
        left_by(sweep.run(run), record(name=run))
    (sweep.run("bad").root / name).write_bytes(damage)
    contents = read_sweep(sweep)
    assert "good" in {run.record.name for run in contents.runs}
    assert len(contents.runs) + len(contents.damaged) >= 2
    shutil.rmtree(root)


TURN = Turn(session="s", round=1, place=1, steps=1, samples=1, seconds=1.0)


@settings(max_examples=150)
@given(
    name=st.sampled_from(["run.json", "epochs.jsonl", "turns.jsonl", "heartbeat"]),
    byte=st.one_of(st.sampled_from([0xFF, 0x80, 0xC3]), st.integers(0, 255)),
    data=st.data(),
)
def test_one_damaged_byte_costs_at_most_its_file(
    tmp_path_factory: pytest.TempPathFactory, record: MakeRecord, name: str, byte: int, data: st.DataObject
) -> None:
    sweep = SweepPaths(tmp_path_factory.mktemp("byte", numbered=True))
    for run in ("good", "bad"):
        paths = left_by(sweep.run(run), record(name=run, session="s", config={"model": {"name": "cnn"}})).paths
        paths.turns.write_bytes(msgspec.json.encode(TURN) + b"\n")
        write_beat(paths.heartbeat, Beat(1, 2, 3))
    path = sweep.run("bad").root / name
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = byte
    path.write_bytes(content)
    contents = read_sweep(sweep)
    good = next(run for run in contents.runs if run.folder == "good")
    assert (good.record.name, len(good.epochs), good.turns) == ("good", 1, [TURN])
    assert {damage.path.name for damage in contents.damaged} <= {"bad"}
    shutil.rmtree(sweep.root)


@pytest.mark.parametrize("name", ["run.json", "turns.jsonl"])
def test_text_that_is_not_utf_8_is_damage(tmp_path: Path, record: MakeRecord, name: str) -> None:
    sweep = SweepPaths(tmp_path)
    paths = left_by(sweep.run("a"), record(session="s")).paths
    paths.turns.write_bytes(msgspec.json.encode(TURN) + b"\n")
    path = paths.root / name
    path.write_bytes(re.sub(rb'": ?"', b'":"\xe9', path.read_bytes(), count=1))
    assert [each.message for each in read_sweep(sweep).damaged] == [
        f"{path} is damaged: its text must be UTF-8, got the byte 0xe9"
    ]
    with pytest.raises(RecordError, match="must be UTF-8"):
        read_run(paths)


def test_unnameable_folders_and_circular_links_do_not_stop_the_reader(tmp_path: Path, record: MakeRecord) -> None:
    sweep = SweepPaths(tmp_path)
    left_by(sweep.run("good"), record())
    left_by(sweep.run("odd"), record())
    try:
        os.rename(os.fsencode(sweep.runs / "odd"), os.fsencode(sweep.runs) + b"/caf\xe9")
    except OSError:
        pytest.skip("this file system accepts only UTF-8 names")
    (sweep.runs / "circle").symlink_to("circle")
    contents = read_sweep(sweep)
    assert [run.folder for run in contents.runs] == ["good"]
    circle, damage = contents.damaged
    assert circle.message == f"{sweep.runs}/circle must be a folder, got a link, which is not followed."
    assert damage.message == rf"{sweep.runs}/caf\udce9 must have a name in UTF-8, got another one; rename the folder."


def test_folder_instead_of_a_file_is_damage(tmp_path: Path, record: MakeRecord) -> None:
    sweep = SweepPaths(tmp_path)
    left_by(sweep.run("a"), record())
    sweep.run("a").epochs.unlink()
    sweep.run("a").epochs.mkdir()
    contents = read_sweep(sweep)
    assert len(contents.runs) == len(contents.damaged) == 1
