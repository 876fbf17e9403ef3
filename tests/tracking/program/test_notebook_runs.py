"""Runs of a notebook: cells run twice, interrupted cells, runs that are ended by hand, and a kernel that shuts down."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from runmanager.records.storage.reader import read_run

from ...notebook import kernel_environment
from ..conftest import stored_runs

TRAIN = """
import runmanager
with runmanager.start_run(params={"lr": 0.1}, root="first") as run:
    for epoch in run.epochs(2):
        epoch.track(1.0, samples=1)
        if epoch.number == 2 and interrupts:
            raise KeyboardInterrupt
"""
CELLS = [
    "interrupts = True",
    TRAIN,
    "interrupts = False",
    TRAIN,
    "run = runmanager.start_run(root='second')\nrunmanager.log(number=1)",
    "runmanager.start_run(root='second')",
    "run.end()\nrun = runmanager.start_run(params={'again': True}, root='second')\nrun.summary['number'] = 2",
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_each_cell_works_or_is_refused_in_one_line(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    (settings := tmp_path / "settings").mkdir()
    with kernel_environment(settings):
        NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            allow_errors=True,
            resources={"metadata": {"path": str(tmp_path)}},
        ).execute()
    errors = {
        at: (output["ename"], output["evalue"])
        for at, cell in enumerate(notebook.cells)
        for output in cell["outputs"]
        if output["output_type"] == "error"
    }
    assert [(at, name) for at, (name, _) in errors.items()] == [(1, "KeyboardInterrupt"), (5, "UsageError")]
    assert "must come after the end of the run before" in errors[5][1] and "\n" not in errors[5][1]

    (first,) = stored_runs(tmp_path / "first")
    assert (first.status, first.record.attempt) == ("finished", 2), "the interrupted run began again"
    assert [epoch.epoch for epoch in read_run(first.paths).epochs] == [1, 2]
    second = {run.record.config.get("again"): run.record for run in stored_runs(tmp_path / "second")}
    assert {again: (record.status, record.summary) for again, record in second.items()} == {
        None: ("finished", {"number": 1.0}),
        True: ("finished", {"number": 2.0}),
    }
