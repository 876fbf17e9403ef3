"""Every stored structure: any valid one is read from its file as it was written, by older and newer versions too."""

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from runmanager.launching.job_registry import locked_job_registry, read_job_registry
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.gpus import DevicePeaks, read_device_peaks
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import Beat, read_beat, write_beat
from runmanager.records.run.program_report import ProgramReport
from runmanager.records.run.run_record import EpochRecord, RunRecord, Turn, read_turns
from runmanager.records.storage.labels import SweepLabels, read_labels
from runmanager.records.storage.reader import read_epochs, read_record, read_report
from runmanager.records.storage.versioned_file import SharedParts, encode_record
from runmanager.records.sweep.sweep_record import SweepRecord, read_sweep_record
from runmanager.results.load.run_summary import LoggedNames, LoggedNamesTable
from runmanager.results.load.summary_cache import CachedRun, read_cache, write_cache

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
WHOLE = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
TIMES = st.datetimes(timezones=st.just(datetime.UTC)).map(datetime.datetime.isoformat)
# Fields whose values obey more than their type.
SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("started_at", "resumed_at", "ended_at"), TIMES),
    "schema_version": st.just(1),
    "run": st.text("abc=,.1", min_size=1, max_size=5).filter(lambda name: not name.startswith(".")),
}


def values_of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Return all values of a type, as msgspec sees it."""
    match kind:
        case inspect.StructType():
            return structs(kind.cls)
        case inspect.UnionType():
            return st.one_of(*map(values_of, kind.types))
        case inspect.DictType():
            return st.dictionaries(TEXT, values_of(kind.value_type), max_size=2)
        case inspect.ListType():
            return st.lists(values_of(kind.item_type), max_size=2)
        case inspect.VarTupleType():
            return st.lists(values_of(kind.item_type), max_size=2).map(tuple)
        case inspect.TupleType():
            return st.tuples(*map(values_of, kind.item_types))
        case inspect.EnumType():
            return st.sampled_from(kind.cls)
        case inspect.CustomType():
            raise AssertionError(kind)
    simple = {
        inspect.AnyType: ANYTHING,
        inspect.NoneType: st.none(),
        inspect.BoolType: st.booleans(),
        inspect.IntType: WHOLE,
        inspect.FloatType: FINITE,
        inspect.StrType: TEXT,
    }
    return simple[type(kind)]


def structs(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Return all valid structs of a class; a field that may be left out is now and then."""
    found = inspect.type_info(cls)
    assert isinstance(found, inspect.StructType)
    required = {field.name: _field(field) for field in found.fields if field.required}
    optional = {field.name: _field(field) for field in found.fields if not field.required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: cls(**given))


def _field(field: inspect.Field) -> st.SearchStrategy[Any]:
    if field.name in SPECIAL:
        return SPECIAL[field.name]
    return values_of(field.type)


def _written(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def lines(structures: Sequence[msgspec.Struct]) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in structures)


@dataclass(frozen=True)
class Stored:
    """A structure with its file in a sweep of one run, and its reader."""

    cls: type[Any]
    file: Callable[[RunPaths], Path]
    read: Callable[[RunPaths], Any]
    is_lines: bool = False


STORED = (
    Stored(RunRecord, lambda run: run.record, read_record),
    Stored(RunRecord, lambda run: run.record, lambda run: read_record(run, shared=SharedParts())),
    Stored(ProgramReport, lambda run: run.reported, read_report),
    Stored(SweepRecord, lambda run: run.sweep.record, lambda run: read_sweep_record(run.sweep)),
    Stored(SweepLabels, lambda run: run.sweep.labels, lambda run: read_labels(run.sweep)),
    Stored(EpochRecord, lambda run: run.epochs, read_epochs, is_lines=True),
    Stored(Turn, lambda run: run.turns, read_turns, is_lines=True),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    return SweepPaths(tmp_path_factory.mktemp("stored")).run("a")


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.cls.__name__)
@settings(max_examples=40)
@given(data=st.data())
def test_a_structure_is_read_as_written(run: RunPaths, stored: Stored, data: st.DataObject) -> None:
    several = data.draw(st.lists(structs(stored.cls), min_size=1, max_size=2 if stored.is_lines else 1))
    _written(stored.file(run), lines(several) if stored.is_lines else encode_record(several[0]))
    assert stored.read(run) == (several if stored.is_lines else several[0])


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.cls.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_unknown_fields_are_ignored_and_missing_ones_have_their_defaults(
    run: RunPaths, stored: Stored, data: st.DataObject
) -> None:
    """As a newer and an older version of the same schema write it."""
    whole = data.draw(structs(stored.cls))
    found = inspect.type_info(stored.cls)
    assert isinstance(found, inspect.StructType)
    optional = [field.name for field in found.fields if not field.required]
    left_out = set(data.draw(st.lists(st.sampled_from(optional))) if optional else [])
    content = {name: each for name, each in json.loads(msgspec.json.encode(whole)).items() if name not in left_out}
    newer = _with_unknown(content, data.draw(ANYTHING))
    _written(stored.file(run), json.dumps(newer).encode() + b"\n")
    kept = {name: getattr(whole, name) for name in stored.cls.__struct_fields__ if name not in left_out}
    expected = stored.cls(**kept)
    assert stored.read(run) == ([expected] if stored.is_lines else expected)


def _with_unknown(content: dict[str, Any], unknown: Any) -> dict[str, Any]:
    """Add a field that no version has to a structure and to those directly in it."""
    inner = {
        name: {**value, "of tomorrow": unknown} if name in ("environment", "measurements", "owner") and value else value
        for name, value in content.items()
    }
    return {**inner, "of tomorrow": unknown}


@given(peaks=st.lists(structs(DevicePeaks), max_size=2))
def test_peaks_of_devices_are_read_as_written(run: RunPaths, peaks: list[DevicePeaks]) -> None:
    _written(run.root / "ceilings.json", msgspec.json.encode(peaks))
    assert read_device_peaks(run.root / "ceilings.json") == peaks


@given(owner=structs(ProcessIdentity))
def test_an_owner_is_read_as_written(owner: ProcessIdentity) -> None:
    assert msgspec.json.decode(msgspec.json.encode(owner), type=ProcessIdentity) == owner


@given(numbers=st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 10**11)))
def test_a_heartbeat_is_read_as_written(run: RunPaths, numbers: tuple[int, int, int]) -> None:
    run.root.mkdir(parents=True, exist_ok=True)
    write_beat(run.heartbeat, Beat(*numbers))
    assert read_beat(run.heartbeat) == Beat(*numbers)


@settings(max_examples=20)
@given(jobs=st.dictionaries(TEXT, TEXT, max_size=3))
def test_jobs_are_read_as_written(run: RunPaths, jobs: dict[str, str]) -> None:
    with locked_job_registry(run.sweep) as registry:
        registry.clear()
        registry.update(jobs)
    assert read_job_registry(run.sweep) == jobs


@settings(max_examples=30)
@given(data=st.data())
def test_cached_summaries_are_read_as_written(run: RunPaths, data: st.DataObject) -> None:
    cached = data.draw(st.lists(structs(CachedRun), max_size=2, unique_by=lambda each: each.summary.folder))
    names = LoggedNamesTable(data.draw(st.lists(structs(LoggedNames), max_size=2)))
    run.sweep.root.mkdir(parents=True, exist_ok=True)
    run.sweep.summaries.unlink(missing_ok=True)
    write_cache(run.sweep, cached, names, num_new=1, even_few=True)
    found, found_names = read_cache(run.sweep)
    assert found == {each.summary.folder: each for each in cached}
    assert found_names.names == names.names
