"""A named sweep that began when other values were the default: its runs are kept, and it is continued like that."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runmanager.app.programs.built_in_job import defaults_now
from runmanager.records.sweep.sweep_record import read_sweep_record
from runmanager.results.gate.sweep_pairs import read_two_sweeps

SAID = "This sweep began when channels_last=false micro_batch=null was the default, and keeps it;"


def test_a_sweep_of_an_earlier_version_is_recognised(
    tmp_path: Path, command: Callable[..., Any], sweep: Callable[..., Any], tiny: tuple[str, ...]
) -> None:
    then = ("channels_last=false", "micro_batch=null")
    first = command("-m", "lr=0.1", *tiny, *then, "name=old")
    assert (first.status, SAID in first.out) == (0, False), first.err
    _forget_defaults(tmp_path / "outputs" / "old" / "sweep.json")
    again = command("-m", "lr=0.1,0.2", *tiny, "name=old")
    assert (again.status, again.out.count(SAID)) == (0, 1), again.err
    old = sweep("old")
    assert [(each.attempt, each.config["channels_last"], each.config["micro_batch"]) for each in old.records] == [
        (1, False, None)
    ] * 2
    dry = command("-m", "lr=0.1,0.2", *tiny, "channels_last=auto", "name=old", "--dry-run")
    assert "micro_batch=null was the default" in dry.out and "channels_last=false" not in dry.out

    new = command("-m", "lr=0.1,0.2", *tiny, "name=new")
    assert (new.status, "began when" in new.out) == (0, False), new.err
    plan = read_sweep_record(sweep("new").paths)
    assert plan is not None and plan.defaults == defaults_now()
    (record,) = (each for each in sweep("new").records if each.config["lr"] == 0.1)
    assert record.config["micro_batch"] == "auto"
    assert record.measurements.chosen == {"channels_last": False, "micro_batch": None}
    table = read_two_sweeps(old.paths, sweep("new").paths).compare()
    assert len(table.rows) == 2
    (note,) = (note for note in table.notes if "whose default has changed" in note)
    assert "channels_last=false (old) and channels_last=auto (new)" in note


def _forget_defaults(path: Path) -> None:
    """Turn a sweep's record into one of a version that did not store its defaults."""
    record = json.loads(path.read_text())
    del record["defaults"]
    path.write_text(json.dumps(record))
