"""`start_run` and `log` in real programs: by themselves, in a cell of a sweep, and however they end."""

import csv
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

import runmanager
from runmanager.errors import UsageError
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun, read_report, read_run
from runmanager.records.storage.run_folder import RunFolder

from ..conftest import stored_runs
from .programs import TRAIN, run_program


def rows(sweep: Path) -> list[dict[str, str]]:
    with (sweep / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def only_run(sweep: Path) -> StoredRun:
    (run,) = stored_runs(sweep)
    return read_run(run.paths)


def test_a_program_by_itself_is_a_sweep_of_one_that_a_rerun_keeps(tmp_path: Path) -> None:
    done = run_program(tmp_path, TRAIN + "main(workers=1)", "--lr=0.1", "--amp")
    run = only_run(tmp_path / "sweep")
    assert (run.status, run.record.config) == ("finished", {"lr": 0.1, "amp": True}), done.stdout
    assert [(epoch.samples, epoch.metrics and list(epoch.metrics)) for epoch in run.epochs] == [
        (20, ["step_loss", "val/f1"])
    ] * 2
    for epoch in run.epochs:  # two steps of equal size: the mean of their losses is the epoch's
        assert epoch.metrics and epoch.metrics["step_loss"] == pytest.approx(epoch.loss)
    assert run.record.summary == {"test_f1": 0.75} and run.record.num_parameters == 10
    assert (run.paths.files / "own.txt").read_text() == "kept"
    (row,) = rows(tmp_path / "sweep")
    assert (row["lr"], row["val/f1"], row["test_f1"]) == ("0.1", "1.0", "0.75")
    assert "in_worker" not in row

    events = EventAccumulator(str(run.paths.root))
    events.Reload()
    assert [event.step for event in events.Scalars("step/step_loss")] == [1, 2, 3, 4]
    assert [event.value for event in events.Scalars("metrics/test_f1")] == [0.75]
    assert events.Graph()

    before = {path: path.read_bytes() for path in run.paths.root.rglob("*") if path.is_file()}
    assert "finished already, kept" in run_program(tmp_path, TRAIN + "main(workers=0)", "--lr=0.1", "--amp").stdout
    assert {path: path.read_bytes() for path in run.paths.root.rglob("*") if path.is_file()} == before


LOG_ONLY = """
import os, sys, runmanager
for number in range(4):
    runmanager.log(loss=1 / (number + 1))
runmanager.log({"worst": number, "unit/total": 2.0}, reduce="sum")
"""


ENDINGS: dict[str, tuple[int, str, str | None, str | None]] = {
    "": (0, "finished", None, ""),
    "raise ValueError('no data')": (1, "failed", "exception", "ValueError: no data"),
    "sys.exit(3)": (3, "failed", "exit", "sys.exit(3)"),
    "exit(3)": (3, "failed", "exit", "sys.exit(3)"),
    "quit(3)": (3, "failed", "exit", "sys.exit(3)"),
    "raise KeyboardInterrupt": (130, "killed", "interrupted", "interrupted"),
    "os._exit(5)": (5, "crashed", "vanished", None),
}


def test_a_program_that_only_logs_ends_as_its_process_does(tmp_path: Path) -> None:
    """Each ending in a process of its own, all at the same time."""
    children = []
    for at, ending in enumerate(ENDINGS):
        (folder := tmp_path / str(at)).mkdir()
        (folder / "train.py").write_text(LOG_ONLY + ending)
        children.append(subprocess.Popen([sys.executable, "train.py"], cwd=folder, stderr=subprocess.PIPE, text=True))
    for at, (child, (status, state, reason, message)) in enumerate(zip(children, ENDINGS.values(), strict=True)):
        error = child.communicate(timeout=300)[1]
        assert child.returncode in ((1, 130, -2) if status == 130 else (status,)), error
        (sweep,) = (tmp_path / str(at) / "outputs").iterdir()
        run = only_run(sweep)
        assert (run.record.status, run.record.reason) == (state, reason)
        assert message is None or run.record.message == message
        assert run.paths.error.exists() == (reason in ("exception", "exit", "interrupted"))
        if state == "crashed":  # within a second: what was logged first is there
            assert run.record.summary == {"loss": 1.0}
            continue
        assert run.record.summary == {"loss": 0.25, "worst": 3.0, "unit/total": 2.0}
        (row,) = rows(sweep)
        assert (row["loss"], row["worst"], row["unit/total"]) == ("0.25", "3.0", "2.0")


def test_in_a_cell_the_program_reports_and_its_supervisor_writes_the_record(tmp_path: Path, cell: RunFolder) -> None:
    variables = {"RUNMANAGER_RUN": str(cell.paths.root), "RUNMANAGER_ATTEMPT": "1"}
    stored = cell.paths.record.read_bytes()
    code = TRAIN.replace('root="sweep"', 'root="other", params={"lr": 0.2, "seed": "3", "epochs": 2}')
    ranks = {"RANK": "1", "WORLD_SIZE": "2"}
    assert run_program(tmp_path, code + "main(workers=0)", **variables, **ranks).stdout == "steps 4 recorded\n"
    assert not cell.paths.reported.exists() and not cell.paths.epochs.exists(), "another rank records nothing"
    run_program(tmp_path, code + "main(workers=2)", **variables)
    assert cell.paths.record.read_bytes() == stored, "one writer"
    assert not (tmp_path / "other").exists() and not (tmp_path / "outputs").exists()

    run, report = read_run(cell.paths), read_report(cell.paths)
    assert report is not None and report.outcome is not None and report.outcome.status is Status.FINISHED
    assert (run.status, run.record.config) == ("running", {"lr": 0.1, "seed": 3})
    assert (run.record.summary, run.record.epochs_planned, run.record.num_parameters) == ({"test_f1": 0.75}, 2, 10)
    assert run.record.deviations == ("lr is 0.2 in the program, 0.1 in the cell",)
    assert (
        run.record.notes[0] == "a note of the supervisor"
        and "further settings of the program: epochs=2" in run.record.notes
    )
    assert [epoch.epoch for epoch in run.epochs] == [1, 2] and run.record.environment.device_name
    assert (cell.paths.files / "own.txt").exists() and cell.paths.events is not None

    refused = run_program(tmp_path, LOG_ONLY, status=1, **variables)
    assert refused.stderr.splitlines()[-1].endswith("for lr=0.1; start it in one process, and log everything there."), (
        "a second process of the cell"
    )
    assert [epoch.epoch for epoch in read_run(cell.paths).epochs] == [1, 2]

    cell.write(status=Status.CRASHED, attempt=2)
    cell.write(status=Status.RUNNING)
    run_program(tmp_path, LOG_ONLY, **variables)
    again = read_run(cell.paths)
    assert again.epochs == [] and (again.record.summary or {})["loss"] == 0.25, "the next attempt begins from the start"
    assert (cell.paths.attempts / "1" / "epochs.jsonl").exists()


def test_a_cell_that_has_ended_takes_no_program(tmp_path: Path, cell: RunFolder) -> None:
    cell.write(status=Status.FINISHED)
    done = run_program(tmp_path, LOG_ONLY, status=1, RUNMANAGER_RUN=str(cell.paths.root))
    assert "RUNMANAGER_RUN must name a run that is running" in done.stderr.splitlines()[-1]


def test_a_sweep_that_a_cell_starts_is_not_in_that_cell(tmp_path: Path, cell: RunFolder) -> None:
    from runmanager.tracking.environment.environment import environment_for_children

    os.environ["RUNMANAGER_RUN"] = str(cell.paths.root)
    try:
        with environment_for_children(["train.py"]):
            assert "RUNMANAGER_RUN" not in os.environ
        assert os.environ["RUNMANAGER_RUN"] == str(cell.paths.root)
    finally:
        del os.environ["RUNMANAGER_RUN"]


@pytest.mark.parametrize("root", [None, "sweep"])
def test_a_program_may_change_its_folder_during_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with runmanager.start_run(params={"lr": 0.1}, root=root, record_every=1) as run:
        monkeypatch.chdir("elsewhere")
        (Path(run.dir) / "mine.txt").touch()
        run.track(torch.tensor(0.5), samples=1)
        run.summary["score"] = 1
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (sweep,) = (tmp_path / "outputs").iterdir() if root is None else [tmp_path / root]
    stored = only_run(sweep)
    assert stored.status == "finished" and stored.record.summary == {"score": 1.0}
    assert len(stored.epochs) == 1 and len(rows(sweep)) == 1


def test_one_run_of_a_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with runmanager.start_run(params={"lr": 0.1}, root="sweep"):
        hook, leave = sys.excepthook, sys.exit
        runmanager.log(first=1)
        for start in (runmanager.start_run, lambda: runmanager.start_run(params={})):
            with pytest.raises(UsageError, match=r"must come after the end of the run before, got lr=0\.1"):
                start()
        with runmanager.RunManager("other", console=False).run({"lr": 1}, nn.Linear(1, 1)) as inner:
            runmanager.log(inner=1)  # the run that this thread began last
            inner.stop_early("enough")
        refusals: list[BaseException] = []

        def elsewhere() -> None:
            for call in (lambda: runmanager.log(second=1), lambda: runmanager.start_run(params={})):
                try:
                    call()
                except UsageError as error:
                    refusals.append(error)

        (thread := threading.Thread(target=elsewhere)).start()
        thread.join()
        assert "by the thread that began the run" in str(refusals[0])
        assert "must come after the end of the run before" in str(refusals[1])
    assert only_run(tmp_path / "sweep").record.summary == {"first": 1.0}
    assert only_run(tmp_path / "other").record.summary == {"inner": 1.0}
    with pytest.raises(UsageError, match="must be called while a run is open, got a call after the end of lr="):
        runmanager.log(late=1)
    with runmanager.start_run(params={"lr": 0.2}, root="sweep"):
        assert (sys.excepthook, sys.exit) == (hook, leave), "hooks are set once"
    assert len(stored_runs(tmp_path / "sweep")) == 2


def test_a_run_that_the_program_has_dropped_is_not_in_the_way_of_the_next(tmp_path: Path) -> None:
    gc.disable()
    try:
        run = runmanager.RunManager(tmp_path / "dropped", console=False).run({"lr": 1}, nn.Linear(1, 1))
        kept = [run]
        kept.append(kept)  # a circle, as an exception's traceback is with its frames
        del run, kept
        with runmanager.start_run(params={"lr": 0.1}, root=tmp_path / "sweep"):
            runmanager.log(value=1)
    finally:
        gc.enable()
    assert only_run(tmp_path / "sweep").record.summary == {"value": 1.0}


def test_settings_in_the_place_of_the_model_are_refused_with_the_way_to_give_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`model` must be a module, got a dict; settings are given as `params=`"):
        runmanager.start_run({"lr": 0.1}, root=tmp_path / "sweep")  # type: ignore[arg-type]
    assert not (tmp_path / "sweep").exists()


def test_a_fork_is_refused_in_one_line(tmp_path: Path) -> None:
    code = """
import os, runmanager
run = runmanager.start_run(params={}, root="sweep")
runmanager.log(first=1)
if os.fork() == 0:
    for call in (lambda: runmanager.log(second=2), lambda: run.track(1.0, samples=1), lambda: run.log_text("a", "b")):
        try:
            call()
        except runmanager.UsageError as error:
            print("refused:", error, flush=True)
    os._exit(0)
os.wait()
"""
    lines = run_program(tmp_path, code).stdout.splitlines()
    assert sum(line.startswith("refused: Run ") and "begin another run there" in line for line in lines) == 3
    run = only_run(tmp_path / "sweep")
    assert (run.status, run.record.summary) == ("finished", {"first": 1.0})


@pytest.mark.parametrize(
    ("ending", "end"), [("", ("finished", "")), ("raise ValueError('later')", ("failed", "ValueError: later"))]
)
def test_a_caught_exit_does_not_hide_a_later_end(tmp_path: Path, ending: str, end: tuple[str, str]) -> None:
    code = f"""
import sys, runmanager
run = runmanager.start_run(params={{}}, root="sweep")
try:
    sys.exit(3)
except SystemExit:
    for epoch in run.epochs(1):
        epoch.track(1.0, samples=1)
{ending}
"""
    run_program(tmp_path, code, status=int(bool(ending)))
    record = only_run(tmp_path / "sweep").record
    assert (record.status, record.message) == end


def test_processes_of_multiprocessing_each_have_a_run(tmp_path: Path) -> None:
    code = """
import multiprocessing, sys, runmanager

def train(method, number):
    run = runmanager.start_run(params={"method": method, "number": number}, root="sweep")
    runmanager.log(number=number)
    if number == 2:
        raise ValueError("two")
    if number == 3:
        sys.exit(3)

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        children = [multiprocessing.get_context(method).Process(target=train, args=(method, n)) for n in (1, 2, 3)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        print([child.exitcode for child in children])
"""
    assert run_program(tmp_path, code).stdout.count("[0, 1, 3]") == 3
    ends = {1: ("finished", ""), 2: ("failed", "ValueError: two"), 3: ("failed", "sys.exit(3)")}
    runs = [run.record for run in stored_runs(tmp_path / "sweep")]
    assert {(run.config["method"], run.config["number"]): (run.status, run.message) for run in runs} == {
        (method, number): end for method in ("fork", "spawn", "forkserver") for number, end in ends.items()
    }


def test_a_model_is_moved_where_its_settings_say_and_nowhere_else(tmp_path: Path) -> None:
    class Moved(nn.Linear):
        moves: tuple[Any, ...] = ()

        def to(self, *places: Any, **_: Any) -> "Moved":  # type: ignore[override]
            self.moves += places
            return self

    for params, moves in (({}, ()), ({"device": "cpu"}, (torch.device("cpu"),))):
        with runmanager.start_run(model := Moved(2, 2).double(), params=params, root=tmp_path) as run:
            model.moves = model.moves if params else ()
            for batch in run.batches([{"inputs": torch.zeros(3, 2, dtype=torch.double), "name": "a"}]):
                run.track(model(batch["inputs"]).sum(), samples=3)
        assert model.moves == moves and run.device == torch.device("cpu")
    assert [("device" in run.record.config, run.status) for run in stored_runs(tmp_path)] == [
        (False, "finished"),
        (True, "finished"),
    ]


@pytest.mark.parametrize("number", [0, -1, 1.5, True])
def test_an_interval_has_at_least_one_step(tmp_path: Path, number: Any) -> None:
    with pytest.raises(UsageError, match=r"`record_every` must be (at least 1|a whole number), got"):
        runmanager.start_run(params={}, root=tmp_path / "sweep", record_every=number)
    assert not (tmp_path / "sweep").exists()
