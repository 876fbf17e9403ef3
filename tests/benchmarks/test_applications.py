"""The applications whose cells return at once do run: a benchmark of what fails would be fast."""

from pathlib import Path

import pytest

from benchmarks.processes import run_python
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_sweep

BASIC = ("hydra/launcher=basic", "hydra.sweep.dir=outputs/some")


@pytest.mark.parametrize("args", [("name=some",), ("hydra/sweeper=basic", *BASIC)], ids=["ours", "basic"])
def test_our_applications_cells_leave_their_records(tmp_path: Path, args: tuple[str, ...]) -> None:
    done = run_python("-m", "benchmarks.instant_application", "-m", "seed=1,2", "device=cpu", *args, folder=tmp_path)
    runs = read_sweep(SweepPaths(tmp_path / "outputs" / "some")).runs
    assert [run.record.status for run in runs] == [Status.FINISHED] * 2, done.output
    owners = {run.record.owner.pid for run in runs if run.record.owner is not None}
    assert len(owners) == (2 if "name=some" in args else 1)
    assert done.seconds > 0
    assert done.peak_bytes > 10e6


def test_a_command_that_fails_is_not_timed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"status 3:\nsaid"):
        run_python("-c", "print('said'); raise SystemExit(3)", folder=tmp_path)
