"""Programs that start runs: where they find the package, and the cell that they may run in."""

from pathlib import Path

import pytest

from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.run_folder import RunFolder

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("RUNMANAGER_RUN", raising=False)


@pytest.fixture
def cell(tmp_path: Path) -> RunFolder:
    """The run folder of a cell, claimed by this process as its supervisor."""
    record = RunRecord(
        name="lr=0.1",
        signature="0" * 64,
        status=Status.RUNNING,
        config={"lr": 0.1, "seed": 3},
        started_at="2026-11-21T12:00:00+00:00",
        owner=ProcessIdentity.current(),
        notes=("a note of the supervisor",),
    )
    return claim_run(RunPaths(tmp_path / "sweep" / "runs" / "lr=0.1"), record)
