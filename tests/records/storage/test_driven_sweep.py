"""A run of a driver makes nothing where its sweep was before that was deleted or moved."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runmanager.errors import RecordError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.ownership import DRIVEN_VARIABLE, claim_run


def test_a_run_does_not_begin_in_a_sweep_that_is_gone(
    tmp_path: Path, record: Callable[..., RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = SweepPaths(Path("outputs/sweep"))
    sweep.runs.mkdir(parents=True)
    monkeypatch.setenv(DRIVEN_VARIABLE, str(tmp_path / "outputs" / "sweep"))
    claim_run(sweep.run("a"), record()).leave()
    sweep.root.rename(tmp_path / "moved")
    with pytest.raises(RecordError, match=r"outputs/sweep must exist while its runs run, got it deleted or moved\.$"):
        claim_run(sweep.run("b"), record())
    assert not sweep.root.exists()
    claim_run(SweepPaths(tmp_path / "outputs" / "another").run("a"), record()).leave()
