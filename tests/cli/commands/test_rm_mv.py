"""Tests of `runmanager rm` and `runmanager mv`: what is moved, what is asked, and what is left alone."""

import io
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.versioned_file import encode_record
from runmanager.records.sweep.sweep_record import read_sweep_record

from ..conftest import rows_of, write_sweep

ELSEWHERE = ProcessIdentity(pid=1, start_ticks=1, boot_id="there", host="another-host")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def trashed(sweep: SweepPaths, name: str) -> Path:
    (found,) = (sweep.root.parent / ".trash").rglob(name)
    return found


def change(run: RunPaths, **fields: object) -> None:
    record: RunRecord = msgspec.structs.replace(read_record(run), **fields)
    run.record.write_bytes(encode_record(record))


def set_drivers(sweep: SweepPaths, *drivers: ProcessIdentity) -> None:
    plan = read_sweep_record(sweep)
    assert plan is not None
    sweep.record.write_bytes(encode_record(msgspec.structs.replace(plan, drivers=drivers)))


def test_a_sweep_goes_to_the_trash_whole_and_the_trash_is_emptied_on_request(
    command: Callable, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(sweep.root)
    for answer in ("n\n", "", "\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        asked = command("rm", "grid")
        assert (asked.status, asked.err) == (2, "error: Nothing was removed; `--yes` does not ask.\n")
        assert asked.out.startswith("Move outputs/grid with 4 runs into the trash? [y/N]")
    assert files_of(sweep.root) == before
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert command("rm", "grid").status == 0
    assert not sweep.root.exists()
    assert files_of(trashed(sweep, "grid")) == before
    assert rows_of(command("ls", "--format", "csv").out) == []
    monkeypatch.setattr(sys, "stdin", io.StringIO("no\n"))
    assert command("rm", "--empty-trash").status == 2
    assert files_of(trashed(sweep, "grid")) == before
    assert command("rm", "--empty-trash", "--yes").out == "outputs/.trash is deleted.\n"
    assert not (sweep.root.parent / ".trash").exists()
    assert command("rm", "--empty-trash", "--yes").out == "There is nothing in outputs/.trash.\n"


def test_a_removed_run_is_marked_and_in_no_table(command: Callable, sweep: SweepPaths) -> None:
    command("report", "grid")
    (cpu,) = sweep.runs.glob("batch_size=100,device=cpu*")
    before, signature = files_of(cpu), read_record(RunPaths(cpu)).signature
    done = command("rm", f"grid/{cpu.name}", "--yes")
    assert (done.status, done.err) == (0, "")
    assert files_of(trashed(sweep, cpu.name)) == before
    stored = json.loads(sweep.record.read_text())
    assert stored["removed"] == [signature]
    assert signature in stored["cells"]
    rows = rows_of(command("table", "grid", "--format", "csv").out)
    assert (len(rows), {row["status"] for row in rows}) == (3, {"finished", "skipped"})
    assert len(rows_of(sweep.results("csv").read_text())) == 3
    assert "1 cell was removed" in command("table", "grid").out
    assert "3 cells" in command("watch", "grid", "--once").out
    (listed,) = rows_of(command("ls", "--format", "csv").out)
    assert (listed["removed"], listed["pending"], listed["cells"]) == ("1", "0", "3")


def test_a_removed_copy_of_a_run_leaves_its_cell(command: Callable, sweep: SweepPaths) -> None:
    import shutil

    (cpu,) = sweep.runs.glob("batch_size=100,device=cpu*")
    shutil.copytree(cpu, cpu.with_name("copy"))
    assert command("rm", "grid/copy", "--yes").status == 0
    assert json.loads(sweep.record.read_text())["removed"] == []
    assert len(rows_of(command("table", "grid", "--format", "csv").out)) == 4


@pytest.mark.parametrize("words", [["rm", "grid", "--yes"], ["mv", "grid", "other"], ["rm", "RUN", "--yes"]])
def test_nothing_that_may_be_alive_is_touched(command: Callable, sweep: SweepPaths, words: list[str]) -> None:
    (cpu,) = sweep.runs.glob("batch_size=100,device=cpu*")
    run = RunPaths(cpu)
    words = [str(cpu) if word == "RUN" else word for word in words]

    def refused() -> str:
        before = files_of(sweep.root.parent)
        done = command(*words)
        assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
        assert files_of(sweep.root.parent) == before
        return str(done.err)

    me = ProcessIdentity.current()
    change(run, status=Status.RUNNING, ended_at=None, owner=me)
    assert f"a run that is alive: process {me.pid} on {socket.gethostname()}" in refused()
    change(run, owner=ELSEWHERE)
    assert "a run that may be alive: process 1 on another-host" in refused()
    change(run, status=Status.FINISHED)
    set_drivers(sweep, me)
    assert f"process {me.pid} on {socket.gethostname()}, which is at work on it" in refused()
    set_drivers(sweep, ELSEWHERE)
    assert "process 1 on another-host, which may be at work on it" in refused()
    set_drivers(sweep, ProcessIdentity(pid=me.pid, start_ticks=1, boot_id=me.boot_id, host=me.host))  # it is gone
    jobs = sweep.root / "slurm" / "jobs.json"
    jobs.parent.mkdir()
    jobs.write_text(json.dumps({cpu.name: "7_0"}))
    assert command(*words).status == 0  # its cell has ended


def test_a_link_is_not_moved_for_what_it_leads_to(command: Callable, sweep: SweepPaths) -> None:
    link = sweep.root.with_name("link")
    link.symlink_to(sweep.root, target_is_directory=True)
    for words in (["rm", "link", "--yes"], ["mv", "link", "other"]):
        done = command(*words)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert "must be a folder, got a link" in done.err
    assert link.is_symlink()


def test_a_renamed_sweep_reads_as_before(command: Callable, sweep: SweepPaths) -> None:
    command("report", "grid")
    command("tag", "grid", "paper")
    before, tables = files_of(sweep.runs), command("table", "grid", "--format", "csv").out
    write_sweep(sweep.root.with_name("taken"))
    assert "outputs/taken exists" in command("mv", "grid", "taken").err
    done = command("mv", "grid", "renamed")
    assert (done.status, done.out.partition("; ")[0]) == (0, "outputs/grid is now outputs/renamed")
    renamed = SweepPaths(sweep.root.with_name("renamed"))
    assert not sweep.root.exists()
    assert files_of(renamed.runs) == before
    assert command("table", "renamed", "--format", "csv").out == tables
    assert "<title>renamed</title>" in renamed.report.read_text()
    assert json.loads(renamed.labels.read_text())["tags"] == ["paper"]


GROUPS = {key: {"name": "one"} for key in ("dataset", "model", "optimizer", "scheduler", "loader", "measure")}
SCRIPT = {"cell_command": ("runmanager", "run", "train.py", "lr=0.1")}
APPLICATION = ("python", "train.py", "-m", "hydra/sweeper=runmanager", "lr=0.1")


@pytest.mark.parametrize(
    ("fields", "continued", "restored"),
    [
        ({"config": GROUPS}, "with name=new", "is given --restore"),
        (SCRIPT, "with --name new", "is given --restore"),
        ({"cell_command": APPLICATION}, "with hydra.sweeper.name=new", "is given hydra.sweeper.restore=true"),
        ({}, "`start_run` is given the folder outputs/new", "unless `RunManager` is given `overwrite=True`"),
        ({"adopted": "logs/first"}, "", ""),
    ],
)
def test_the_way_back_is_that_of_the_kind_of_program(
    command: Callable, sweep: SweepPaths, fields: dict[str, Any], continued: str, restored: str
) -> None:
    for run in sweep.runs.iterdir():
        change(RunPaths(run), **fields)
    moved = command("mv", "grid", "new").out
    removed = command("rm", f"new/{run.name}", "--yes").out
    for said, way in ((moved, continued), (removed, restored)):
        assert said.endswith(f"{way}.\n") and ("; " in said) == bool(way)
    table = " ".join(command("table", "new").out.split())
    assert ("1 cell was removed: " if restored else "1 cell was removed.") in table and f"{restored}." in table


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"config": GROUPS}, {"bad 2": "'name=\"bad 2\"'", "a,b": "'name=\"a,b\"'"}),
        (SCRIPT, {"bad 2": "--name 'bad 2'", "a,b": "--name a,b"}),
        ({"cell_command": APPLICATION}, {"bad 2": "'hydra.sweeper.name=\"bad 2\"'"}),
    ],
)
def test_the_new_name_is_quoted_as_the_shell_needs_it(
    command: Callable, sweep: SweepPaths, fields: dict[str, Any], words: dict[str, str]
) -> None:
    for run in sweep.runs.iterdir():
        change(RunPaths(run), **fields)
    earlier = "grid"
    for name, way in words.items():
        assert command("mv", earlier, name).out.endswith(f" {way}.\n")
        earlier = name


def test_a_sweep_of_several_kinds_of_program_has_several_ways(command: Callable, sweep: SweepPaths) -> None:
    _, script, application, adopted = sorted(sweep.runs.iterdir())
    change(RunPaths(script), **SCRIPT)
    change(RunPaths(application), cell_command=APPLICATION)
    change(RunPaths(adopted), adopted="logs/first")
    assert command("mv", "grid", "new").out.endswith(
        "; its command continues it with --name new or hydra.sweeper.name=new, and its program continues it where "
        "`RunManager` or `start_run` is given the folder outputs/new.\n"
    )
    for run, way in (
        (adopted, f"/new/runs/{adopted.name}"),
        (application, "a rerun of the sweep leaves its cell out unless it is given hydra.sweeper.restore=true"),
    ):
        assert command("rm", f"new/{run.name}", "--yes").out.endswith(f"{way}.\n")
    table = " ".join(command("table", "new").out.split())
    assert (
        "2 cells were removed: a rerun of the sweep leaves them out unless it is given --restore, and its program "
        "leaves them out unless `RunManager` is given `overwrite=True`."
    ) in table
