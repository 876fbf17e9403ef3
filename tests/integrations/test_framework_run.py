"""What all bridges share: the run of a cell, and the error of a framework that is not installed."""

import sys
from pathlib import Path

import msgspec
import pytest
from accelerate import Accelerator

from runmanager.errors import UsageError
from runmanager.integrations.accelerate import RunManagerTracker
from runmanager.integrations.lightning import RunManagerLogger
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.signature import signature
from runmanager.records.storage.versioned_file import encode_record
from runmanager.tracking.program.current_run import end_current_run


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """The folder of a cell that a supervisor has started."""
    paths, settings = RunPaths(tmp_path / "sweep" / "runs" / "lr=0.1"), {"lr": 0.1}
    paths.root.mkdir(parents=True)
    record = RunRecord(
        name="lr=0.1",
        signature=signature(settings, unsigned=()),
        status=Status.RUNNING,
        config=settings,
        owner=ProcessIdentity.current(),
    )
    paths.record.write_bytes(encode_record(record))
    monkeypatch.setenv("RUNMANAGER_RUN", str(paths.root))
    monkeypatch.setenv("RUNMANAGER_ATTEMPT", "1")
    return paths


def test_bridges_of_a_cell_share_its_run(cell: RunPaths, tmp_path: Path) -> None:
    supervised = cell.record.read_bytes()
    for name in ("first", "second"):
        accelerator = Accelerator(cpu=True, log_with=RunManagerTracker(tmp_path / "elsewhere"))
        accelerator.init_trackers("any", config={"lr": 0.1, "fold": name})
        accelerator.log({f"{name}_accuracy": 0.5})
    assert RunManagerLogger().save_dir == str(cell.root), "Lightning's checkpoints lie in the run's folder"
    end_current_run()
    report = msgspec.json.decode(cell.reported.read_bytes())
    assert report["outcome"]["status"] == "finished"
    assert report["summary"] == {"first_accuracy": 0.5, "second_accuracy": 0.5}
    assert "fold=first" in report["notes"][0]
    assert cell.record.read_bytes() == supervised, "which is the supervisor's"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("framework", ["lightning", "transformers", "accelerate"])
def test_missing_framework_is_one_line_with_its_extra(monkeypatch: pytest.MonkeyPatch, framework: str) -> None:
    absent = (framework, "pytorch_lightning")
    hidden = [name for name in sys.modules if name.partition(".")[0] in absent]
    for name in {*hidden, *absent}:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"runmanager.integrations.{framework}", raising=False)
    with pytest.raises(UsageError, match=rf"pip install 'torch-runmanager\[{framework}\]'") as raised:
        __import__(f"runmanager.integrations.{framework}")
    assert "\n" not in str(raised.value)
