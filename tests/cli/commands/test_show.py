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


def test_a_run_is_named_by_its_sweep_and_settings(command: Callable, sweep: SweepPaths) -> None:
    whole = command("show", "grid/batch_size=100,device=cpu").out
    for words in (["grid", "device=cpu", "batch_size=100"], ["grid/device=cpu,batch_size=100"]):
        assert command("show", *words).out == whole
    several = command("show", "grid", "device=cpu")
    assert (several.status, several.err.count("\n")) == (2, 1)
    assert "'grid/device=cpu' must name one run, got 2: batch_size=" in several.err and "add a setting" in several.err
    assert command("show", "kill", "lr=0.1").err == (
        "error: 'kill/lr=0.1' must be a run's folder or SWEEP/RUN, got nothing there. There is grid in outputs/.\n"
    )
    assert command("show", "grid", "kill").err == (
        "error: A run must be named as RUN, SWEEP/RUN or SWEEP NAME=VALUE, got 'kill' after 'grid'; write grid/kill.\n"
    )


def test_every_fact_is_shown_on_request(command: Callable, sweep: SweepPaths) -> None:
    run = next(path for path in sweep.runs.iterdir() if "batch_size=100,device=cpu" in path.name)
    record = msgspec.json.decode((run / "run.json").read_bytes(), type=RunRecord)
    environment = msgspec.structs.replace(
        record.environment, command=["runmanager", "sweep", "batch_size=100"], host="here", torch_threads=2
    )
    (run / "run.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(record, environment=environment)))
    short = command("show", "batch_size=100,device=cpu").out
    whole = command("show", "batch_size=100,device=cpu", "--all").out
    assert "  batch_size  100\n" in short and "  device " not in short and "  device " in whole
    assert "Host" in short and "Torch threads" not in short and "Torch threads" in whole
