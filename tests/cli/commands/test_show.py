"""Tests of `runmanager show`."""

from collections.abc import Callable

import msgspec

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status


def test_show_finds_a_run_by_any_part_of_its_name(command: Callable, sweep: SweepPaths) -> None:
    name = next(path.name for path in sweep.runs.iterdir() if "batch_size=100,device=cpu" in path.name)
    texts = {
        command("show", name_part).out for name_part in ("batch_size=100,device=cpu", name.rpartition("-")[2], name)
    }
    assert len(texts) == 1
    (text,) = texts
    assert text.startswith(f"{name}: finished\n")
    assert "  batch_size   100\n" in text
    several = command("show", "batch_size=100,")
    assert (several.status, several.out) == (2, "")
    assert several.err.count("\n") == 1
    assert several.err.count("grid/batch_size=100,device=") == 2


def test_control_characters_of_a_run_are_escaped(command: Callable, sweep: SweepPaths) -> None:
    run = next(path for path in sweep.runs.iterdir() if "batch_size=100,device=cpu" in path.name)
    (run / "error.txt").write_text("Error: \x1b]0;a title\x07\x1b[2J\n")
    record = msgspec.json.decode((run / "run.json").read_bytes(), type=RunRecord)
    failed = msgspec.structs.replace(record, status=Status.FAILED, message="\x1b[31m")
    (run / "run.json").write_bytes(msgspec.json.encode(failed))
    shown = command("show", "batch_size=100,device=cpu").out
    assert r"  Error: \x1b]0;a title\x07\x1b[2J" in shown
    assert r": failed: \x1b[31m" in shown
    watched = command("watch", "grid", "--once").out
    assert r"\x1b[31m" in watched
    assert "\x1b" not in shown + watched
    assert "\x1b" in (run / "error.txt").read_text()
