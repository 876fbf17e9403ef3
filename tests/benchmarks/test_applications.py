"""The applications with immediate tasks do run their cells; failing cells would look fast."""

from pathlib import Path

import pytest

from benchmarks.processes import run_python
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_sweep

BASIC = ("hydra/launcher=basic", "hydra.sweep.dir=outputs/some")


@pytest.mark.parametrize("args", [("name=some",), ("hydra/sweeper=basic", *BASIC)], ids=["ours", "basic"])
def test_cells_of_our_application_write_their_records(tmp_path: Path, args: tuple[str, ...]) -> None:
    done = run_python("-m", "benchmarks.instant_application", "-m", "seed=1,2", "device=cpu", *args, folder=tmp_path)
    runs = read_sweep(SweepPaths(tmp_path / "outputs" / "some")).runs
    assert [run.record.status for run in runs] == [Status.FINISHED] * 2, done.output
    owners = {run.record.owner.pid for run in runs if run.record.owner is not None}
    assert len(owners) == (2 if "name=some" in args else 1)
    assert done.seconds > 0
    assert done.peak_bytes > 10e6


def test_failed_command_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"status 3:\noutput"):
        run_python("-c", "print('output'); raise SystemExit(3)", folder=tmp_path)


def test_cells_of_another_application_write_their_records(tmp_path: Path) -> None:
    done = run_python(
        "-m", "benchmarks.small_application", "-m", "hydra/sweeper=runmanager", "seed=1,2", folder=tmp_path
    )
    (sweep,) = (tmp_path / "outputs").iterdir()
    runs = read_sweep(SweepPaths(sweep)).runs
    assert [run.record.summary for run in runs] == [{"objective": 0.1}] * 2, done.output
