"""Finalizers of runs that are dropped."""

import shutil
from pathlib import Path

from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.ownership import claim_run
from runmanager.tracking.lifecycle.finalizers import end_run_when_dropped
from runmanager.tracking.monitoring.heartbeat_writer import Heartbeat


def test_a_dropped_run_whose_folder_was_moved_away_writes_and_raises_nothing(tmp_path: Path) -> None:
    me = ProcessIdentity.current()
    record = RunRecord(name="a", signature="s", status=Status.RUNNING, config={}, owner=me)
    folder = claim_run(RunPaths(tmp_path / "runs" / "a"), record)
    heartbeat = Heartbeat(folder.heartbeat).start()
    shutil.move(tmp_path / "runs", tmp_path / "moved")
    end_run_when_dropped(None, folder, heartbeat)()
    assert not (tmp_path / "runs").exists()
