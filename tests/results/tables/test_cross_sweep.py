"""Tests of the table of several sweeps."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runmanager.errors import UsageError
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.results.findings.best import find_best
from runmanager.results.load.loader import read_summary
from runmanager.results.load.several_sweeps import cells_of_sweeps, read_sweeps
from runmanager.results.tables.query import TableQuery

from ..conftest import SweepMaker, timed_epochs


def logging(**metrics: float) -> list[Any]:
    return [msgspec.structs.replace(epoch, metrics=metrics) for epoch in timed_epochs([9.0, 2.0])]


@pytest.fixture
def sweeps(make_sweep: Callable[[str], SweepMaker]) -> tuple[SweepMaker, SweepMaker]:
    """Two sweeps of one program; only the second has the setting `width`, and `epochs` differs between the two."""
    one, other = make_sweep("one"), make_sweep("other")
    for lr in (0.1, 0.2):
        one.run({"lr": lr, "epochs": 3, "same": "x", "seed": 0}, logging(f1=lr))
    other.run({"lr": 0.1, "epochs": 6, "same": "x", "seed": 0, "width": 8}, logging(f1=0.4, sweep=7.0))
    return one, other


def table(*makers: SweepMaker, collapses: bool = False, **options: Any) -> Any:
    return TableQuery.parse(**options).of_sweeps(read_sweeps([each.paths for each in makers]), collapses=collapses)


def test_rows_have_their_sweep_and_every_setting_that_differs(sweeps: tuple[SweepMaker, SweepMaker]) -> None:
    found = table(*sweeps)
    assert found.columns[:4] == ["run", "sweep", "status", "reason"]
    shown = ("sweep", "lr", "settings.epochs", "width")
    assert found.shown[: len(shown)] == shown
    assert sorted(tuple(map(str, (row[name] for name in shown))) for row in found.rows) == [
        ("one", "0.1", "3", "None"),
        ("one", "0.2", "3", "None"),
        ("other", "0.1", "6", "8"),
    ]
    (other,) = (row for row in found.rows if row["sweep"] == "other")
    assert Path(other["run_dir"], "run.json").exists()
    assert other["metrics.sweep"] == 7.0
    assert [row["metrics.sweep"] for row in found.rows if row is not other] == [None, None]
    assert {len(row.values.keys() & {*found.columns}) for row in found.rows} == {len(found.columns)}
    widths = [row.absent_settings for row in found.rows if row["width"] is None]
    assert all("width" in absent for absent in widths)


def test_queries_take_the_sweep_and_settings_of_any_sweep(sweeps: tuple[SweepMaker, SweepMaker]) -> None:
    assert [row["sweep"] for row in table(*sweeps, where="width==8").rows] == ["other"]
    assert [row["lr"] for row in table(*sweeps, where="sweep==one and same==x", sort="lr").rows] == [0.1, 0.2]
    assert [row["sweep"] for row in table(*sweeps, sort="f1").rows] == ["other", "one", "one"]
    pivoted = table(*sweeps, pivot="sweep:lr:f1")
    assert [row.values["sweep"] for row in pivoted.rows] == ["one", "other"]
    with pytest.raises(UsageError, match="did you mean 'width'"):
        table(*sweeps, where="widht==8")


def test_seeds_of_two_sweeps_are_never_one_row(make_sweep: Callable[[str], SweepMaker]) -> None:
    makers = make_sweep("one"), make_sweep("other")
    for maker in makers:
        for seed in (0, 1):
            maker.run({"lr": 0.1, "seed": seed})
    found = table(*makers, collapses=True)
    assert [(row["sweep"], row["seeds"]) for row in found.rows] == [("one", 2), ("other", 2)]


def test_sweeps_of_one_name_are_told_by_their_folders_and_count_once(tmp_path: Path) -> None:
    makers = []
    for root in ("a", "b"):
        (tmp_path / root).mkdir()
        makers.append(SweepMaker(tmp_path / root / "same"))
        makers[-1].run({"lr": 0.1})
    found = table(*makers, makers[0])
    assert sorted(row["sweep"] for row in found.rows) == [str(tmp_path / root / "same") for root in ("a", "b")]


def test_a_setting_of_the_name_sweep_keeps_its_values(make_sweep: Callable[[str], SweepMaker]) -> None:
    one, other = make_sweep("one"), make_sweep("other")
    for maker in (one, other):
        for value in (1, 2):
            maker.run({"sweep": value})
    found = table(one, other)
    assert sorted((row["sweep"], row["settings.sweep"]) for row in found.rows) == [
        ("one", 1),
        ("one", 2),
        ("other", 1),
        ("other", 2),
    ]


def test_opposite_directions_of_two_sweeps_are_said_and_asked_for(make_sweep: Callable[[str], SweepMaker]) -> None:
    one, other = make_sweep("one"), make_sweep("other")
    one.run({"lr": 0.1}, logging(fid=1.0), better={"fid": "min"})
    other.run({"lr": 0.1}, logging(fid=2.0), better={"fid": "max"})
    assert "The runs declare different directions of fid: min (one/lr=0.1" in " ".join(table(one, other).notes)
    with pytest.raises(UsageError, match="`--better` must be max or min for 'fid'"):
        table(one, other, sort="fid")
    assert [row["fid"] for row in table(one, other, sort="fid", better="max").rows] == [2.0, 1.0]


def test_the_best_cell_of_several_sweeps_names_its_sweep(sweeps: tuple[SweepMaker, SweepMaker]) -> None:
    paths = [each.paths for each in sweeps]
    cells, runs, damaged = cells_of_sweeps(paths)
    assert all(isinstance(run, StoredRun) for run in runs) and damaged == []
    found = find_best(SweepContents(paths[0], runs), None, metric="f1", cells=cells)
    assert found.settings == {"sweep": "other", "lr": 0.1, "epochs": 6, "width": 8}
    assert found.num_cells == 3  # equal settings in two sweeps are two cells


def test_small_sweeps_among_many_are_cached_too(sweeps: tuple[SweepMaker, SweepMaker]) -> None:
    one, _ = sweeps
    later = time.time_ns() + 10**10
    read_summary(one.paths, clock=lambda: later)
    assert not one.paths.summaries.exists()
    read_summary(one.paths, clock=lambda: later, is_one_of_many=True)
    assert one.paths.summaries.exists()
    assert [row["f1"] for row in table(one, sort="f1").rows] == [0.2, 0.1]  # from the cache
