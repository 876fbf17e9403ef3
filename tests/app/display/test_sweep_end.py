"""A sweep's end: the message of --notify, else the terminal's bell and title."""

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from runmanager.app.display.final_summary import announce_end, notification_faults, ring
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status

from ...standin_apprise import write_standin

SWEEP = SweepPaths(Path("outputs/first"))


def records(*statuses: Status) -> list[RunRecord]:
    return [RunRecord(name="a", signature="b", status=status, config={}) for status in statuses]


def test_a_message_says_how_many_cells_ended_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(write_standin(tmp_path))
    monkeypatch.setenv("SENT", str(tmp_path / "sent"))
    monkeypatch.delitem(sys.modules, "apprise", raising=False)
    runs = [*records(Status.FINISHED, Status.FINISHED, Status.FAILED), None]
    announce_end("json://here", SWEEP, runs, interrupted=True)
    urls, title, body = json.loads((tmp_path / "sent").read_text())
    assert urls == ["json://here"]
    assert title == "first: 2 finished, 1 failed, 1 not run"
    assert body.startswith(str(SWEEP.root.absolute())) and body.endswith("interrupted")
    announce_end("json://user:secret@broken", SWEEP, runs, interrupted=False)
    assert capsys.readouterr().err == "warning: the notification could not be sent to json://….\n"

    def faults(url: str | None, **more: bool) -> list[str]:
        return notification_faults(url, option="--notify", **{"is_detached": False, **more})

    assert faults(None) == faults("json://here") == []
    (unknown,) = faults("jsn://secret@here")
    assert "apprise knows, got jsn://…" in unknown and "secret" not in unknown
    assert "does not wait" in faults("json://here", is_detached=True)[0]
    monkeypatch.setitem(sys.modules, "apprise", None)
    assert "pip install 'torch-runmanager[notify]'" in faults("json://here")[0]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_bell_rings_in_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, _environ={"TERM": "xterm"})
    ring(console, SWEEP, records(Status.FINISHED))
    assert output.getvalue() == ("\a\x1b]0;first: 1 finished\a" if is_terminal else "")
