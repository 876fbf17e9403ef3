"""Files that several runs wrote are named where it is certain, or possible, and not where a file is one run's own."""

import datetime
from pathlib import Path

from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import OutsideFiles, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun
from runmanager.results.findings.answer_sentences import shared_file_lines


def run(
    lr: float, start: int, end: int, command: tuple[str, ...] = (), attempt: int = 1, **files: tuple[float, ...]
) -> StoredRun:
    """A run that lived from second `start` to `end` of 1970, and saw files change at these times."""
    began, ended = (datetime.datetime.fromtimestamp(each, datetime.UTC).isoformat() for each in (start, end))
    seen = {name.replace("__", "."): times for name, times in files.items()}
    record = RunRecord(
        name=f"lr={lr}",
        signature=str(lr),
        status=Status.FINISHED,
        config={"lr": lr},
        attempt=attempt,
        started_at=began,
        ended_at=ended,
        cell_command=("runmanager", "run", *command, "train.py"),
        outside=OutsideFiles(folder="/work", files=seen),
    )
    return StoredRun(RunPaths(Path("sweep/runs", record.name)), record)


def test_changes_at_which_no_single_run_lived_are_of_several() -> None:
    runs = [run(0.1, 0, 10, a__pt=(9.0,)), run(0.2, 8, 20, a__pt=(9.0, 19.0), b__pt=(12.0,)), run(0.3, 15, 30)]
    assert shared_file_lines([*runs[:1], run(0.2, 11, 20, a__pt=(19.0,))])[0].startswith(
        "Several runs wrote a.pt in /work: one may have read what another left. With `--chdir`, in a new sweep,"
    )
    (line,) = shared_file_lines(runs[:2])
    assert line.startswith("Runs that ran together may all have written a.pt in /work.")
    assert shared_file_lines(runs[:1]) == [] and shared_file_lines([runs[1], runs[2]]) == []


def test_a_change_while_no_run_lived_is_of_none() -> None:
    assert shared_file_lines([run(0.1, 10, 20, a__pt=(9.99,)), run(0.2, 21, 30, a__pt=(25.0,))]) == []
    assert shared_file_lines([run(0.1, 10, 20, a__pt=(9.99,)), run(0.2, 10, 30, a__pt=(9.99,))]) == []


def test_one_run_that_lived_at_all_changes_may_have_made_them_though_it_recorded_nothing() -> None:
    runs = [run(0.1, 0, 10, a__pt=(9.0,)), run(0.2, 11, 20, a__pt=(19.0,))]
    (line,) = shared_file_lines([*runs, run(0.3, 0, 30)])
    assert line.startswith("Runs that ran together may")


def test_a_run_that_began_again_may_have_made_what_changed_before() -> None:
    """Of an attempt that was killed and begun again nothing is recorded, not even when it lived."""
    runs = [
        run(0.1, 0, 10, lr0__2__pt=(9.0,), a__pt=(9.0,)),
        run(0.2, 11, 20, attempt=2, lr0__2__pt=(19.0,), a__pt=(19.0,)),
    ]
    (line,) = shared_file_lines(runs)
    assert line.startswith("Runs that ran together may all have written a.pt in /work.")


def test_files_named_after_their_run_are_its_own() -> None:
    times = (5.0, 6.0)
    files = {"lr0__1__pt": times, "lr0__2__pt": times, "job7__txt": times, "job8__txt": times, "same__txt": times}
    (line,) = shared_file_lines([run(0.1, 0, 10, **files), run(0.2, 1, 11, **files)])
    assert "same.txt in /work" in line


def test_fewer_numbered_files_than_runs_are_not_one_of_each() -> None:
    first, second = {"version_0__ckpt": (5.0,)}, {"version_1__ckpt": (25.0,)}
    runs = [run(0.1, 0, 10, **first), run(0.2, 1, 11, **first), run(0.3, 20, 30, **second), run(0.4, 21, 31, **second)]
    (line,) = shared_file_lines(runs)
    assert line.startswith("Runs that ran together may all have written version_0.ckpt, version_1.ckpt in /work.")
    first |= {"version_2__ckpt": (5.0,)}
    second |= {"version_3__ckpt": (25.0,)}
    runs = [run(0.1, 0, 10, **first), run(0.2, 1, 11, **first), run(0.3, 20, 30, **second), run(0.4, 21, 31, **second)]
    assert shared_file_lines(runs) == []


def test_a_run_sees_its_own_files_and_the_way_out_fits_its_command() -> None:
    both = [run(0.1, 0, 10, ("--chdir",), a__pt=(5.0,), b__pt=(5.0,)), run(0.2, 11, 20, ("--chdir",), a__pt=(15.0,))]
    (line,) = shared_file_lines(both, of=both[1])
    assert line.startswith("Several runs wrote a.pt in")
    assert line.endswith("With paths that hold `{run_dir}`, in a new sweep, each writes into its run folder.")
    assert shared_file_lines(both, of=run(0.3, 0, 1, c__pt=(0.5,))) == []
