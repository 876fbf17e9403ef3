"""Tests of `runmanager reproduce`."""

import json
from collections.abc import Callable

from runmanager.records.files.paths import SweepPaths


def test_reproduce_of_a_custom_loop_shows_its_command_and_the_changed_hardware(
    command: Callable, sweep: SweepPaths
) -> None:
    done = command("reproduce", "batch_size=100,device=cpu")
    assert done.status == 0
    assert "a custom loop" in done.out
    hardware = done.out.partition("Hardware\n")[2]
    assert "then" in hardware
    assert "today" in hardware
    assert "  Host " in hardware


def test_a_stored_target_is_printed_only_with_trust(command: Callable, example: SweepPaths) -> None:
    for path in example.runs.glob("*/run.json"):
        record = json.loads(path.read_bytes())
        record["config"]["model"] = {"name": "custom", "_target_": "own.Net"}
        path.write_text(json.dumps(record))
    refused = "A stored `_target_` is data and must name a class of torch.nn.Module below "
    run = "digits/batch_size=100,lr=0.01,seed=1"
    done = command("reproduce", run)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"error: {refused}")
    assert "got own.Net as model._target_; " in done.err
    assert "--trust" in done.err
    assert "model._target_=own.Net" in command("reproduce", run, "--trust").out
    best = command("best", "digits")
    assert best.out.startswith("digits: the best val_accuracy is")
    assert refused in " ".join(best.out.split())
    assert "model._target_=" not in best.out
    trusted = command("best", "digits", "--trust").out
    assert "model._target_=own.Net" in trusted
    assert "best=True, trust=True)" in trusted
    plain = command("best", "digits", "--format", "json")
    assert json.loads(plain.out)["command"] is None
    assert refused in plain.err
    assert (
        "model._target_=own.Net" in json.loads(command("best", "digits", "--trust", "--format", "json").out)["command"]
    )


def test_reproduce_of_a_built_in_model_reports_no_user_code(command: Callable, example: SweepPaths) -> None:
    run = "digits/batch_size=100,lr=0.01,seed=1"
    assert "It ran no code of your own.\n" in command("reproduce", run).out
    assert "  Own code                    none\n" in command("show", run, "--all").out
    for path in example.runs.glob("*/run.json"):
        record = json.loads(path.read_bytes())
        del record["environment"]["code"]
        path.write_text(json.dumps(record))
    assert "Whether its code is the same is not known: the run did not record it.\n" in command("reproduce", run).out
    assert "Own code" not in command("show", run, "--all").out
