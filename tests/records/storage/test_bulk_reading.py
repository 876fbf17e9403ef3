"""Reading many records: shared parts change nothing, and garbage collection is only paused."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.run_record import Environment, RunRecord
from runmanager.records.storage.reader import read_record, read_sweep
from runmanager.records.storage.versioned_file import SharedParts, encode_record, gc_paused

MakeRecord = Callable[..., RunRecord]


@pytest.fixture
def sweep(tmp_path: Path, record: MakeRecord) -> SweepPaths:
    """Three runs that differ in one setting; one was made with other libraries and without code."""
    paths = SweepPaths(tmp_path)
    for lr in (0.1, 0.2, 0.3):
        config = {
            "lr": lr,
            "epochs": 3,
            "flag": True,
            "none": None,
            "text": "3",
            "model": {"name": "cnn", "hidden": [3]},
        }
        environment = Environment(
            host="anvil",
            load_at_start=lr,
            libraries={"torch": "2.15.0" if lr < 0.3 else "2.9.0"},
            command=("a", "b"),
            code={"own.py": "0a"} if lr < 0.3 else None,
        )
        run = paths.run(f"lr={lr}")
        run.root.mkdir(parents=True)
        run.record.write_bytes(encode_record(record(name=run.name, config=config, environment=environment)))
    return paths


def test_shared_parts_are_equal_to_those_read_alone(sweep: SweepPaths) -> None:
    runs = [run.record for run in read_sweep(sweep).runs]
    assert runs == [read_record(sweep.run(run.name)).observed() for run in runs]
    assert [type(value) for value in runs[0].config.values()] == [float, int, bool, type(None), str, dict]
    first, second, third = runs
    assert first.config["model"] is second.config["model"] is third.config["model"]
    assert first.environment.libraries is second.environment.libraries
    assert first.environment.host is second.environment.host is third.environment.host
    assert third.environment.libraries == {"torch": "2.9.0"}
    assert first.environment.code is second.environment.code
    assert first.environment.code == {"own.py": "0a"}
    assert [run.environment.load_at_start for run in runs] == [0.1, 0.2, 0.3]


def test_empty_parts_of_different_types_are_not_shared(sweep: SweepPaths, record: MakeRecord) -> None:
    paths = sweep.run("lr=0.1")
    paths.record.write_bytes(encode_record(record(environment=Environment())))
    assert read_record(paths, shared=SharedParts()) == read_record(paths)


@pytest.mark.parametrize("part", [b"1e999", b'"\\ud800"', b"[1,]", b"nonsense"])
def test_damaged_part_is_reported(sweep: SweepPaths, part: bytes) -> None:
    paths: RunPaths = sweep.run("lr=0.1")
    paths.record.write_bytes(paths.record.read_bytes().replace(b'"cnn"', part))
    with pytest.raises(RecordError, match="is damaged"):
        read_record(paths, shared=SharedParts())
    assert [damage.path.name for damage in read_sweep(sweep).damaged] == ["lr=0.1"]


def test_gc_is_enabled_again_afterwards() -> None:
    assert gc.isenabled()
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), gc_paused():
        raise KeyError
    assert gc.isenabled()


def test_gc_stays_disabled_if_it_was() -> None:
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
