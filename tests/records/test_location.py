"""Tests of finding the sweep that a command names."""

from pathlib import Path

import pytest

from runmanager.errors import UsageError
from runmanager.records.location import find_sweep
from runmanager.records.paths import SweepPaths


def test_folder_and_bare_name_find_the_same_sweep(sweep: SweepPaths) -> None:
    for name in (str(sweep.root), "outputs/grid", "outputs/grid/", "grid"):
        assert find_sweep(name).root.resolve() == sweep.root


def test_folder_here_that_is_no_sweep_does_not_hide_the_one_under_outputs(sweep: SweepPaths, tmp_path: Path) -> None:
    (tmp_path / "grid").mkdir()
    assert find_sweep("grid").root.resolve() == sweep.root


def test_unknown_name_is_refused_with_the_nearest(sweep: SweepPaths) -> None:
    with pytest.raises(UsageError, match=r"'grib' must be a sweep's folder.*Did you mean grid\?"):
        find_sweep("grib")


def test_folder_without_a_sweep_is_refused(sweep: SweepPaths, tmp_path: Path) -> None:
    (tmp_path / "outputs" / "empty").mkdir()
    for name in ("empty", "outputs/empty"):
        with pytest.raises(UsageError, match="got a folder without them"):
            find_sweep(name)
