"""Declared directions: checked, stored in the runs that they hold for, and required where they matter."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import runmanager
from runmanager import EarlyStopOptions, RunManager, RunOptions, UsageError, define_metric
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.metric_names import is_larger_better
from runmanager.tracking.options import larger_is_better

pytestmark = pytest.mark.usefixtures("own_directions")


def stored_directions(paths: RunPaths) -> Any:
    return json.loads(paths.record.read_text()).get("better")


def begin(folder: Path, **settings: Any) -> Any:
    run = RunManager(folder, sinks=[]).run(settings)
    run.begin(nn.Linear(2, 2), None)
    return run


def one_epoch(run: Any) -> None:
    epoch = run.begin_epoch()
    epoch.track(1.0, samples=1)
    run.end_epoch(epoch)


@pytest.mark.parametrize(("better", "stored"), [("min", "min"), ("max", "max"), ("smaller", "min"), ("larger", "max")])
def test_a_declaration_is_stored_by_active_and_later_runs(tmp_path: Path, better: str, stored: str) -> None:
    ended = begin(tmp_path, number=1)
    one_epoch(ended)
    ended.end()
    active = begin(tmp_path, number=2)
    assert stored_directions(active.paths) is None, "left out without a declaration"
    define_metric("val/fid", better=better)
    later = begin(tmp_path, number=3)
    for run in (active, later):
        assert stored_directions(run.paths) == {"val/fid": stored} == run.record.better
        one_epoch(run)
        run.end()
        assert stored_directions(run.paths) == {"val/fid": stored}
    assert stored_directions(ended.paths) is None


@pytest.mark.parametrize("ends_epoch", [True, False])
def test_a_declaration_of_another_thread_is_stored_when_the_run_next_writes(tmp_path: Path, ends_epoch: bool) -> None:
    run = begin(tmp_path)
    thread = threading.Thread(target=define_metric, args=("fid",), kwargs={"better": "min"})
    thread.start()
    thread.join()
    assert stored_directions(run.paths) is None
    if ends_epoch:
        one_epoch(run)
    else:
        run.end()
    assert stored_directions(run.paths) == {"fid": "min"}
    run.end()


def test_the_last_declaration_counts_and_others_stay(tmp_path: Path) -> None:
    define_metric("fid", better="max")
    run = begin(tmp_path)
    define_metric("fid", better="min")
    define_metric("quux", better="max")
    assert stored_directions(run.paths) == {"fid": "min", "quux": "max"}
    run.end()


@pytest.mark.parametrize("better", ["up", "", "MIN", None, 1, ["min"]])
def test_another_direction_is_refused(better: Any) -> None:
    with pytest.raises(UsageError, match="`better` must be min or max"):
        define_metric("fid", better=better)


@pytest.mark.parametrize("name", ["", " ", None, 3])
def test_a_name_that_cannot_be_logged_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="name must be text of one line, and not blank, got"):
        define_metric(name, better="min")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lo\u200bss", r"U\+200B \(ZERO WIDTH SPACE\) as character 3"),
        ("two\nlines", r"U\+000A as character 4"),
        ("\ud800", r"U\+D800 as character 1"),
    ],
)
def test_a_character_that_is_not_to_be_seen_is_named(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=rf"name must be of visible characters, got .* with {said}; leave it out"):
        define_metric(name, better="min")


@pytest.mark.parametrize("name", ["a`b", " f1", "f1 "])
def test_a_name_that_no_condition_can_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="name must be without backticks and outer spaces, got"):
        define_metric(name, better="min")


@pytest.mark.parametrize(
    ("name", "expected"), [("val_f1", True), ("val/ppl", False), ("quux", None), ("mine", True), ("accuracy", False)]
)
def test_a_direction_is_declared_or_in_the_name(name: str, expected: bool | None) -> None:
    assert is_larger_better(name, {"mine": "max", "accuracy": "min"}) is expected


def test_early_stopping_asks_for_an_unknown_direction_before_anything_is_written(
    tmp_path: Path, only_run: Callable[[], Any]
) -> None:
    options = RunOptions(early_stop=EarlyStopOptions(metric="quux", patience=1))
    manager = RunManager(tmp_path / "sweep", sinks=[])
    with pytest.raises(UsageError, match=r"got 'quux', .*define_metric\('quux', better=…\) with min or max first"):
        manager.run({}, options=options)
    assert not list((tmp_path / "sweep").glob("runs/*/run.json"))
    define_metric("quux", better="min")
    with manager.run({}, nn.Linear(2, 2), options=options) as run:
        for epoch in run.epochs(9):
            epoch.track(torch.tensor(1.0), samples=1)
            epoch.log(quux=[3.0, 2.0, 2.5][epoch.number - 1])
    record = only_run().record
    assert (record.reason, record.message) == ("early_stopped", "quux was best in epoch 2 (2)")
    assert record.better == {"quux": "min"}


def test_an_unknown_direction_is_an_error_that_says_what_to_declare() -> None:
    assert larger_is_better("val_accuracy") and not larger_is_better("loss")
    with pytest.raises(UsageError, match=r"better=…"):
        larger_is_better("quux")


def test_the_errors_and_options_are_public() -> None:
    assert issubclass(runmanager.RunBusyError, runmanager.RunManagerError)
    assert runmanager.TensorBoardOptions().enabled
    assert runmanager.define_metric is define_metric
