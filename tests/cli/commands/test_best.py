"""Tests of `runmanager best`."""

import json
from collections.abc import Callable

from runmanager.records.files.paths import SweepPaths

from ..conftest import shown_in_terminal, write_sweep


def test_best_is_printed_with_uncertainty_command_and_weights(command: Callable, sweep: SweepPaths) -> None:
    text = command("best", "grid").out
    assert text.startswith("grid: the best val_accuracy is 0.8800 (n=1) with batch_size=100, device=cpu.")
    assert "not known: too few runs" in text
    assert "none were kept" in text
    plain = json.loads(command("best", "grid", "--where", "batch_size>100", "--format", "json").out)
    assert plain["best"]["settings"] == {"batch_size": 1000, "device": "cpu"}
    assert plain["runner_up"] is None
    next(sweep.runs.iterdir()).joinpath("run.json").write_text("{")
    assert "warning: not read: " in command("best", "grid").err


def test_all_sentences_of_best_are_wrapped_in_a_terminal(command: Callable, sweep: SweepPaths) -> None:
    whole = command("best", "grid").out.splitlines()
    lines = shown_in_terminal("best", "grid", columns=60)
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(whole).split())
    assert len(lines) > len(whole)
    about_command = lines[lines.index("Command") + 1 :]
    assert len(about_command) > len(whole[whole.index("Command") + 1 :])
    assert all(line.startswith("  ") and len(line) <= 60 for line in about_command)


def test_how_to_get_a_metric_is_said_only_where_its_lack_is_the_cause(command: Callable, sweep: SweepPaths) -> None:
    bare = write_sweep(sweep.root.parent / "bare", num_epochs=0)
    for words, is_cause in (
        ([], True),
        (["--metric", "val_accuracy"], True),
        (["--where", "batch_size>5000"], False),
        (["--metric", "zzz"], False),
        (["--better", "max"], False),
    ):
        refused = command("best", "bare", *words)
        assert refused.status == 2 and ("No metric was found" in refused.err) == is_cause, words
    assert "No metric was found" in command("compare", "bare").out
    for record in bare.runs.glob("*/run.json"):
        record.write_text(json.dumps(json.loads(record.read_text()) | {"run_seconds": 5.0}))
    assert "No metric was found" not in command("compare", "bare", "--metric", "run_seconds").out


def test_the_best_of_several_sweeps_names_its_sweep(command: Callable, sweep: SweepPaths) -> None:
    write_sweep(sweep.root.parent / "other", batch_sizes=(10,))
    done = command("best", "grid", "other")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("grid, other: the best val_accuracy is 0.8890 (n=1) with sweep=other, batch_size=10, ")
    only = command("best", "grid", "other", "--where", "sweep==grid")
    assert "0.8800 (n=1) with sweep=grid, batch_size=100" in only.out
    none = command("best", "grid", "other", "--where", "batch_size==7")
    assert (none.status, none.out) == (2, "")
    assert "`--where` must hold for a run of these sweeps, got none: 0 of 6 runs match" in none.err
