"""sweep.json: cells, axes, commands and drivers, also of several commands under one name."""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.errors import RecordError, UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import RunRecord
from runmanager.records.settings.grid import expand_grid
from runmanager.records.settings.signature import LATER, signature
from runmanager.records.storage.ownership import claim_run
from runmanager.records.sweep.sweep_record import (
    PlannedCell,
    SweepCommand,
    SweepRecord,
    fresh_sweep_folder,
    leave_sweep,
    mark_removed,
    open_sweep,
    plan_cell,
    read_sweep_record,
    write_cells,
)


def planned(*configs: dict[str, Any]) -> list[PlannedCell]:
    return [plan_cell(signature(config), f"run-{signature(config)[:8]}", config) for config in configs]


def write(folder: Path, configs: list[dict[str, Any]], **axes: list[Any]) -> SweepRecord:
    return write_cells(SweepPaths(folder), planned(*configs), SweepCommand(("runmanager", "sweep", "lr=…"), axes=axes))


def all_settings(record: SweepRecord) -> list[dict[str, Any]]:
    return [{**record.settings, **cell.settings} for cell in record.planned]


def test_record_is_read_as_written(tmp_path: Path) -> None:
    configs = [{"lr": lr, "model": {"name": "cnn"}, "name": "grid"} for lr in (0.1, 0.01)]
    record = write(tmp_path / "grid", configs, lr=[0.1, 0.01])
    assert read_sweep_record(SweepPaths(tmp_path / "grid")) == record
    assert record.command == ("runmanager", "sweep", "lr=…")
    assert record.axes == {"lr": [0.1, 0.01]}
    assert record.cells == tuple(signature(config) for config in configs)
    assert record.settings == {"model.name": "cnn"}  # stored once, and without the unsigned `name`
    assert [cell.settings for cell in record.planned] == [{"lr": 0.1}, {"lr": 0.01}]
    assert datetime.datetime.fromisoformat(record.created).tzinfo is not None
    assert read_sweep_record(SweepPaths(tmp_path / "nothing")) is None


def test_file_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    write(tmp_path, [{"lr": 0.1}], lr=[0.1])
    data = msgspec.json.decode(SweepPaths(tmp_path).record.read_bytes())
    assert {"schema_version", "command", "axes", "commands", "cells", "created", "host"} <= set(data)


def test_commands_are_kept_in_order_with_the_cells_that_they_added(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path)

    def give(word: str, *rates: float) -> SweepRecord:
        cells = planned(*({"lr": lr} for lr in rates))
        return write_cells(paths, cells, SweepCommand(("runmanager", "sweep", word), axes={"lr": list(rates)}))

    first, second, third = (("runmanager", "sweep", word) for word in ("a", "b", "c"))
    give("a", 1.0, 2.0)
    give("b", 1.0)
    give("b", 1.0)  # repeated, as by a loop that writes its plan run by run
    record = give("c", 3.0, 1.0)
    assert (record.commands, record.command) == ((first, second, third), third)
    assert [record.commands_by_run()[cell.run] for cell in record.planned] == [first, first, third]
    assert read_sweep_record(paths) == record
    assert give("a", 2.0).commands == (first, second, third, first)


def test_older_record_without_a_list_of_commands_is_read(tmp_path: Path) -> None:
    record = write(tmp_path, [{"lr": 0.1}, {"lr": 0.2}])
    file = SweepPaths(tmp_path).record
    data = msgspec.json.decode(file.read_bytes())
    del data["commands"], data["cells_after"]
    file.write_bytes(msgspec.json.encode(data))
    assert read_sweep_record(SweepPaths(tmp_path)) == record
    assert record.commands == (record.command,)
    assert set(record.commands_by_run().values()) == {record.command}
    assert write(tmp_path, [{"lr": 0.3}]).commands == (record.command,)


def test_new_grid_under_an_old_name_adds_cells(tmp_path: Path) -> None:
    base = {"batch_size": 100, "device": "cpu"}
    first = write(tmp_path, [{**base, "lr": lr} for lr in (0.1, 0.01)], lr=[0.1, 0.01])
    wider = [{**base, "lr": lr, "device": device} for lr in (0.01, 0.5) for device in ("cpu", "cuda")]
    second = write(tmp_path, wider, lr=[0.01, 0.5], device=["cpu", "cuda"])
    assert second.axes == {"lr": [0.1, 0.01, 0.5], "device": ["cpu", "cuda"]}
    assert second.cells == (*first.cells, *(signature(config) for config in (wider[1], *wider[2:])))
    assert (second.created, second.host) == (first.created, first.host)
    # `device` is not shared any more: the old cells must have their own.
    assert second.settings == {"batch_size": 100}
    assert all_settings(second)[:2] == [{**base, "lr": 0.1}, {**base, "lr": 0.01}]


SETTINGS = st.fixed_dictionaries(
    {"lr": st.sampled_from([0.1, 1.0, 1])}, optional={"depth": st.integers(0, 1), "flag": st.sampled_from([True, 1])}
)


@given(first=st.lists(SETTINGS, max_size=4), second=st.lists(SETTINGS, max_size=4))
def test_adding_cells_loses_duplicates_and_changes_none(
    tmp_path_factory: pytest.TempPathFactory, first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("merge", numbered=True)
    write(folder, first)
    record = write(folder, second)
    expected = {signature(config): config for config in [*first, *second]}
    assert record.cells == tuple(expected) == tuple(cell.signature for cell in record.planned)
    assert [signature(settings) for settings in all_settings(record)] == list(expected)  # 1, 1.0 and True stay apart


def test_repeating_a_grid_changes_only_the_command(tmp_path: Path) -> None:
    configs = [dict(cell) for cell in expand_grid(lr=[0.1, 0.01], seed=[0, 1])]
    assert write(tmp_path, configs, lr=[0.1, 0.01]) == write(tmp_path, configs, lr=[0.1, 0.01])


def test_damaged_or_newer_sweep_record_is_rejected_and_kept(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path)
    for content, message in ((b"{", "is damaged"), (b'{"schema_version": 99}', "at most 1, got 99")):
        paths.record.write_bytes(content)
        with pytest.raises(RecordError, match=message):
            write(tmp_path, [{"lr": 0.1}])
        assert paths.record.read_bytes() == content


MERGE = """
import os
from pathlib import Path
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.sweep.sweep_record import SweepCommand, plan_cell, write_cells

def take(number):
    cell = plan_cell(f"{os.getpid()}-{number}", "run", {"lr": number})
    write_cells(SweepPaths(Path("grid")), [cell], SweepCommand((), axes={"pid": [os.getpid()]}))
    return cell.signature
"""


NO_FOLDERS = ["../../elsewhere", "/elsewhere", "..", ".", "", "a/b", ".hidden", "x\x1b[2J", "x\x00", "ä" * 128]


@pytest.mark.parametrize("name", NO_FOLDERS)
def test_stored_run_name_that_leads_out_of_the_sweep_is_damage(tmp_path: Path, name: str) -> None:
    """The next driver would create the run's folder there."""
    write(tmp_path, [{"lr": 0.1}])
    sweep = SweepPaths(tmp_path)
    record = msgspec.json.decode(sweep.record.read_bytes())
    record["planned"][0]["run"] = name
    sweep.record.write_bytes(msgspec.json.encode(record))
    with pytest.raises(RecordError, match=r"sweep\.json is damaged: .*the name of one folder"):
        read_sweep_record(sweep)


def test_concurrent_grids_under_one_name_are_all_kept(race: Callable[..., list[list[str]]], tmp_path: Path) -> None:
    answers = race(MERGE, num_processes=4, rounds=10)
    record = read_sweep_record(SweepPaths(tmp_path / "grid"))
    assert record is not None
    assert sorted(record.cells) == sorted(signature for words in answers for signature in words)
    assert len(record.axes["pid"]) == 4


FRESH = """
import datetime
from pathlib import Path
from runmanager.records.sweep.sweep_record import fresh_sweep_folder

def take(number):
    return fresh_sweep_folder(Path("outputs"), now=datetime.datetime(2026, 11, 21, 12, 0, number)).root.name
"""


def test_fresh_folder_is_never_shared(race: Callable[..., list[list[str]]], tmp_path: Path) -> None:
    answers = race(FRESH, rounds=10)
    names = [name for words in answers for name in words]
    assert len(set(names)) == len(names) == 80
    assert {path.name for path in (tmp_path / "outputs").iterdir()} == set(names)
    assert {"2026-11-21_12-00-00", "2026-11-21_12-00-00_8"} <= set(names)


def test_fresh_folder_is_dated_today_by_default(tmp_path: Path) -> None:
    before = datetime.datetime.now().replace(microsecond=0)
    name = fresh_sweep_folder(tmp_path / "a" / "b").root.name
    assert before <= datetime.datetime.strptime(name, "%Y-%m-%d_%H-%M-%S") <= datetime.datetime.now()


def test_fresh_folders_of_one_second_are_numbered(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 11, 21, 12)
    folders = [fresh_sweep_folder(tmp_path, now=moment).root for _ in range(3)]
    assert [folder.name.removeprefix("2026-11-21_12-00-00") for folder in folders] == ["", "_2", "_3"]
    assert sorted(tmp_path.iterdir()) == folders


def test_a_removed_cell_is_a_cell_again_where_a_command_adds_it(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path)
    configs = [{"lr": 1.0}, {"lr": 2.0}]
    first, second = (signature(config) for config in configs)
    write(tmp_path, configs)
    for each in (first, second, first, "0" * 64):
        mark_removed(paths, each)
    record = read_sweep_record(paths)
    assert record is not None and record.removed == (first, second)
    record = write(tmp_path, [configs[1]])
    assert (record.removed, record.cells) == ((first,), (first, second))


def test_axes_that_were_not_planned_are_the_settings_in_which_cells_differ(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path)
    for config in ({"lr": 1.0, "seed": 0}, {"lr": 2.0, "seed": 0}, {"lr": 1.0, "seed": 0}):
        record = write_cells(paths, planned(config), SweepCommand(("python", "train.py")))
    assert record.axes == {"lr": [1.0, 2.0]}
    assert write_cells(paths, planned({"lr": 3.0}), SweepCommand(("x",), axes={})).axes == {"lr": [1.0, 2.0]}


def test_sweep_is_opened_by_its_folder(tmp_path: Path, record: Callable[..., RunRecord]) -> None:
    write(tmp_path / "a", [{"lr": 0.1}])
    assert open_sweep(tmp_path / "a") == SweepPaths(tmp_path / "a")
    # A folder of runs without sweep.json is a sweep, and so is one with a damaged sweep.json.
    claim_run(SweepPaths(tmp_path / "b").run("x"), record())
    assert open_sweep(tmp_path / "b").root == tmp_path / "b"
    SweepPaths(tmp_path / "b").record.write_bytes(b"{")
    assert open_sweep(tmp_path / "b").root == tmp_path / "b"


def test_folder_that_is_not_a_sweep_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="got a folder without them"):
        open_sweep(tmp_path)
    with pytest.raises(UsageError, match="got nothing there"):
        open_sweep(tmp_path / "nothing")
    SweepPaths(tmp_path).record.write_bytes(b"{")
    with pytest.raises(RecordError, match="damaged"):
        open_sweep(tmp_path)


def test_drivers_are_recorded_while_they_run(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path)
    me = ProcessIdentity.current()
    dead, elsewhere = msgspec.structs.replace(me, start_ticks=1), msgspec.structs.replace(me, host="elsewhere")

    def drivers() -> tuple[ProcessIdentity, ...]:
        record = read_sweep_record(paths)
        assert record is not None
        return record.drivers

    for driver in (dead, elsewhere, me, me):
        write_cells(paths, planned({"lr": 0.1}), SweepCommand((), axes={}), driver=driver)
    assert drivers() == (elsewhere, me), "a dead driver is dropped, one on another host is not"
    write(tmp_path, [{"lr": 0.2}])
    assert drivers() == (elsewhere, me)
    leave_sweep(paths, me)
    leave_sweep(paths, me)
    assert drivers() == (elsewhere,)
    leave_sweep(SweepPaths(tmp_path / "runs"), me)


def test_known_cell_keeps_the_name_of_its_run(tmp_path: Path) -> None:
    (first,) = planned({"lr": 0.1})
    write_cells(SweepPaths(tmp_path), [first], SweepCommand((), axes={}))
    other = msgspec.structs.replace(first, run="another-name")
    record = write_cells(SweepPaths(tmp_path), [other], SweepCommand((), axes={}))
    assert [cell.run for cell in record.planned] == [first.run]


def test_cell_of_an_older_version_does_not_differ_in_later_settings(tmp_path: Path) -> None:
    older = {"lr": 0.1, "dataset": {"name": "mnist"}, "model": {"name": "cnn"}, "optimizer": {"name": "adam"}}
    write(tmp_path, [older])
    later = {name: value for name, value in LATER.items() if "." not in name}
    newer = [{**older, **later, "precision": precision} for precision in ("fp32", "bf16")]
    record = write(tmp_path, newer, precision=["fp32", "bf16"])
    assert len(record.planned) == 2 and record.cells[0] == signature(older)
    assert [cell.settings["precision"] for cell in record.planned] == ["fp32", "bf16"]
    assert record.settings["on_oom"] == "fail" and record.cells[0] == signature(newer[0])


def seeded(rates: list[float], seeds: list[int]) -> list[dict[str, Any]]:
    return [{"lr": lr, "split": seed} for lr in rates for seed in seeds]


def starts(record: SweepRecord) -> list[tuple[float, int]]:
    settings = dict(zip(record.cells, all_settings(record), strict=True))
    return [(settings[each]["lr"], settings[each]["split"]) for each in record.starts]


def test_the_order_of_starting_is_stored_beside_the_cells_whose_order_stays(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path)
    configs = seeded([0.1, 0.2, 0.3, 0.4], [0, 1])
    given: dict[str, Any] = {"axes": {}, "words": ("x",), "seed_names": ["split"]}
    record = write_cells(paths, planned(*configs), SweepCommand(**given, order="random"))
    assert read_sweep_record(paths) == record
    assert record.cells == tuple(signature(config) for config in configs)
    assert [seed for _, seed in starts(record)] == [0] * 4 + [1] * 4
    first = starts(record)
    assert first != starts(
        write_cells(SweepPaths(tmp_path / "grid"), planned(*configs), SweepCommand(**given, order="grid"))
    )
    assert starts(write_cells(paths, planned(*configs[2:4]), SweepCommand(**given, order="grid"))) == first, (
        "the stored order stays"
    )
    wider = starts(write_cells(paths, planned(*seeded([0.5], [0, 1, 2])), SweepCommand(**given, order="random")))
    assert wider == [*first[:4], (0.5, 0), *first[4:], (0.5, 1), (0.5, 2)]
    assert starts(write_cells(paths, planned({"lr": 0.6, "split": 0}), SweepCommand(("y",), axes={})))[5] == (0.6, 0)


def test_a_sweep_without_an_order_starts_as_it_was_given(tmp_path: Path) -> None:
    configs = seeded([0.1, 0.2], [0, 1])
    record = write(tmp_path, configs)
    data = msgspec.json.decode(SweepPaths(tmp_path).record.read_bytes())
    assert data.pop("order") == data.pop("seed_names") == []
    SweepPaths(tmp_path).record.write_bytes(msgspec.json.encode(data))
    assert read_sweep_record(SweepPaths(tmp_path)) == record
    assert record.starts == list(record.cells)
    later = write_cells(
        SweepPaths(tmp_path), planned(*seeded([0.3], [1, 0])), SweepCommand((), axes={}, order="random")
    )
    assert [each for each in later.starts if each in record.cells] == list(record.cells)


def test_a_damaged_order_still_has_every_cell(tmp_path: Path) -> None:
    record = write(tmp_path, seeded([0.1], [0, 1, 2]))
    torn = msgspec.structs.replace(record, order=(2, 9, -1, 2))
    assert torn.starts == [record.cells[at] for at in (2, 0, 1)]


def test_names_of_seeds_are_those_of_all_commands(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path)
    for names in (["split"], [], ["fold", "split"]):
        record = write_cells(paths, planned({"lr": 0.1, "split": 0}), SweepCommand(("x",), axes={}, seed_names=names))
    assert record.seed_names == ("split", "fold")
