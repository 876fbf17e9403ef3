"""Notebooks in a real kernel: the example notebook, a live table in a cell, and interrupts."""

import json
import queue
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager

from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import read_record, read_sweep
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.sweep.sweep_record import SweepCommand, plan_cell, write_cells

from .notebook import EXAMPLE, ROOT, execute_example, kernel_environment

DEADLINE_SECONDS = 120
COLOURS = re.compile(r"\x1b\[[\d;]*m")
MAX_BYTES = 300_000


def plain(output: dict[str, Any]) -> str:
    """Return the text of an output without colours."""
    return COLOURS.sub("", output.get("data", {}).get("text/plain", output.get("text", "")))


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> nbformat.NotebookNode:
    return execute_example(tmp_path_factory.mktemp("example"))


def test_example_notebook_runs_and_shows_its_live_table_once(example: nbformat.NotebookNode) -> None:
    code = [cell for cell in example.cells if cell.cell_type == "code"]
    assert not [output for cell in code for output in cell.outputs if output.output_type in ("error", "stream")]
    (table,) = code[0].outputs
    lines = plain(table).splitlines()
    assert lines[0].startswith("$ runmanager sweep ") and " lr=" in lines[0] and lines[1] == "outputs/example: 8 cells"
    assert sum(line.startswith("✓ lr=") for line in lines) == 8
    assert re.fullmatch(r"8 finished · over after [\d.]+s", lines[-1])
    assert "✓" in table.data["text/plain"] and "\x1b[32m" in table.data["text/plain"]


def test_example_notebook_shows_answers_tables_and_figures(example: nbformat.NotebookNode) -> None:
    outputs = [output for cell in example.cells for output in cell.get("outputs", ())]
    kinds = [output.get("data", {}).keys() for output in outputs]
    shown = "\n".join(map(plain, outputs))
    assert sum("text/html" in each for each in kinds) >= 4, "the sweep and its frames"
    assert sum("image/png" in each for each in kinds) == 2, "figures are shown without an import of pyplot"
    assert "8 runs: 8 finished." in shown
    assert "verdict" in shown and "samples_per_second_std" in shown


def test_stored_example_is_up_to_date_and_small(example: nbformat.NotebookNode) -> None:
    stored = nbformat.read(EXAMPLE, as_version=4)
    nbformat.validate(stored)
    assert [cell.source for cell in stored.cells] == [cell.source for cell in example.cells]
    counts = [cell.execution_count for cell in stored.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1)), "python -m tests.notebook updates the outputs"
    assert all(cell.outputs for cell in stored.cells if cell.cell_type == "code")
    assert EXAMPLE.stat().st_size < MAX_BYTES
    text = json.dumps([cell.get("outputs", []) for cell in stored.cells])
    assert not re.findall(rf"{re.escape(str(ROOT))}|/tmp/|/home/|/root/", text)


@dataclass
class CellResult:
    """Result of a cell: its reply and all outputs, in order."""

    reply: dict[str, Any] = field(default_factory=dict)
    outputs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def first(self) -> list[dict[str, Any]]:
        """The outputs that appear in the notebook, without updates of other outputs."""
        return [each for each in self.outputs if each["type"] != "update_display_data"]

    @property
    def last(self) -> str:
        """The final text of the updated output."""
        return plain([each for each in self.outputs if "display" in each["type"]][-1])


class Kernel:
    """A notebook kernel that executes cells."""

    def __init__(self, folder: Path) -> None:
        settings = folder / "settings"
        settings.mkdir()
        with kernel_environment(settings):
            self.manager = KernelManager(kernel_name="python3")
            self.manager.start_kernel(cwd=str(folder))
        self.client = self.manager.client()
        self.client.start_channels()
        try:
            self.client.wait_for_ready(timeout=DEADLINE_SECONDS)
        except BaseException:
            self.close()
            raise

    def execute(self, code: str, when_shown: Callable[[str], object] = lambda text: None) -> CellResult:
        """Execute a cell to its end; `when_shown` is called with the text of each output as it arrives."""
        message_id = self.client.execute(code)
        done = CellResult()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                message = None
            if message is None or time.monotonic() > deadline:  # a live table keeps sending messages
                self.manager.interrupt_kernel()  # the next test uses the same kernel
                pytest.fail(f"the cell did not end: {done.outputs[-3:]}")
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != message_id:
                continue
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind in ("display_data", "update_display_data", "execute_result", "stream"):
                done.outputs.append({"type": kind, **content})
                when_shown(plain(content))
        reply = self.client.get_shell_msg(timeout=DEADLINE_SECONDS)
        while reply["parent_header"].get("msg_id") != message_id:  # of a request that asked whether it is ready
            reply = self.client.get_shell_msg(timeout=DEADLINE_SECONDS)
        done.reply = reply["content"]
        return done

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    started = Kernel(tmp_path_factory.mktemp("kernel"))
    yield started
    started.close()


@pytest.fixture
def running(tmp_path: Path) -> RunFolder:
    """A sweep of two cells, of which this process runs the first."""
    sweep = SweepPaths(tmp_path / "grid")
    owner = ProcessIdentity.current()
    cells = [plan_cell(f"lr={number}", f"lr={number}-{number:08}", {"lr": number}) for number in (1, 2)]
    write_cells(sweep, cells, SweepCommand(["sweep"], axes={"lr": [1, 2]}), driver=owner)
    record = RunRecord(
        name=cells[0].run,
        signature=cells[0].signature,
        status=Status.RUNNING,
        config={"lr": 1},
        epochs_planned=3,
        started_at="2026-11-01T10:00:00+00:00",
        owner=owner,
    )
    return claim_run(sweep.run(cells[0].run), record)


def test_watched_table_updates_one_output_and_survives_an_interrupt(kernel: Kernel, running: RunFolder) -> None:
    seen = []

    def act(text: str) -> None:
        if "> lr=1" in text and "0/3" in text and not seen:
            seen.append("started")
            running.append(EpochRecord(epoch=1, loss=0.25, epoch_seconds=0.5, samples=10))
            running.close()
        elif "1/3" in text and len(seen) == 1:
            seen.append("advanced")
            kernel.manager.interrupt_kernel()

    sweep = running.paths.root.parent.parent
    done = kernel.execute(f"from runmanager import watch_sweep\nw = watch_sweep({str(sweep)!r})", act)
    assert done.reply["status"] == "ok" and seen == ["started", "advanced"]
    assert [each["type"] for each in done.first] == ["display_data"], "one output, updated in place"
    lines = done.last.splitlines()
    assert len([line for line in lines if "lr=1" in line]) == 1
    assert "1/3" in next(line for line in lines if "lr=1" in line), "the final state"
    assert lines[-1].startswith("No longer watched; the sweep is still running.")
    assert read_record(running.paths).status is Status.RUNNING
    assert "1 running" in plain(kernel.execute("w").outputs[0])


def test_interrupt_stops_a_sweep_run_by_a_cell(kernel: Kernel, tmp_path: Path) -> None:
    settings = '"model=logistic", "batch_size=20", "epochs=99999", "tensorboard.enabled=false"'
    shown: list[str] = []

    def act(text: str) -> None:
        if re.search(r" [1-9]\d*/99999", text) and not shown:
            shown.append(text)
            kernel.manager.interrupt_kernel()

    code = f"from runmanager import run_sweep\nrun_sweep({settings}, name='long', output_root={str(tmp_path)!r})"
    done = kernel.execute(code, act)
    assert done.reply["ename"] == "KeyboardInterrupt"
    lines = done.last.splitlines()
    assert {"The sweep is asked to stop; interrupt again to stop at once.", "Stopping after this epoch."} <= {*lines}
    assert lines[-1] == "Interrupted; the same call resumes the sweep."
    (run,) = read_sweep(SweepPaths(tmp_path / "long")).runs
    assert (run.record.status, run.record.reason) == (Status.KILLED, Reason.INTERRUPTED)


def test_rejected_setting_is_reported_in_one_line(kernel: Kernel, tmp_path: Path) -> None:
    done = kernel.execute(f"run_sweep('lr=fast', name='x', output_root={str(tmp_path)!r})")
    assert done.reply["ename"] == "UsageError"
    assert done.reply["traceback"] == ["UsageError: `lr` must be a number, got 'fast'."]


def test_long_cell_output_keeps_its_first_and_last_lines(kernel: Kernel) -> None:
    code = (
        "from runmanager.app.display.output import CellOutput\ncell = CellOutput()\n"
        "for number in range(1000):\n    cell.console.print(f'line {number}')\ncell.draw()"
    )
    lines = kernel.execute(code).last.splitlines()
    assert lines[0] == "line 0" and lines[-1] == "line 999"
    assert len(lines) == 201 and lines[20] == "… 800 lines …"
