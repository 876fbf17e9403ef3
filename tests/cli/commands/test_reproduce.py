"""Tests of `runmanager reproduce`."""

import json
from collections.abc import Callable

from runmanager.records.files.paths import SweepPaths


def test_reproduce_of_an_own_loop_shows_what_was_given_and_what_is_another_today(
    command: Callable, sweep: SweepPaths
) -> None:
    done = command("reproduce", "batch_size=100,device=cpu")
    assert done.status == 0
    assert "a loop of its own" in done.out
    hardware = done.out.partition("Hardware\n")[2]
    assert "then" in hardware
    assert "today" in hardware
    assert "  Host " in hardware


def test_a_stored_target_is_in_no_command_unless_it_is_trusted(command: Callable, example: SweepPaths) -> None:
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


def test_reproduce_of_a_built_in_model_speaks_of_no_code_of_its_own(command: Callable, example: SweepPaths) -> None:
    run = "digits/batch_size=100,lr=0.01,seed=1"
    assert "It ran no code of your own.\n" in command("reproduce", run).out
    assert "  Own code                    none\n" in command("show", run).out
    for path in example.runs.glob("*/run.json"):
        record = json.loads(path.read_bytes())
        del record["environment"]["code"]
        path.write_text(json.dumps(record))
    assert "Whether its code is the same is not known: the run did not record it.\n" in command("reproduce", run).out
    assert "Own code" not in command("show", run).out
