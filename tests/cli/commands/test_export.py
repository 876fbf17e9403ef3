"""Tests of `runmanager export`."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

from runmanager.records.files.paths import SweepPaths


def test_export_prints_what_it_wrote_or_the_missing_extra(command: Callable, sweep: SweepPaths, tmp_path: Path) -> None:
    done = command("export", "grid", "--to", "parquet", "--folder", str(tmp_path / "out"))
    if importlib.util.find_spec("pyarrow") is None:
        assert done.status == 2
        assert "pip install 'torch-runmanager[parquet]'" in done.err
    else:
        assert done.out.startswith("4 runs written to ")
        assert (tmp_path / "out" / "runs.parquet").exists()
