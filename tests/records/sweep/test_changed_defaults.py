"""Defaults that have changed: which ones a named sweep keeps for a later command."""

from pathlib import Path
from typing import Any

import pytest

from runmanager.app.programs.built_in_job import (
    defaults_now,
    kept_defaults,
    kept_defaults_note,
)
from runmanager.records.files.paths import SweepPaths
from runmanager.records.settings.signature import CHANGED_DEFAULTS, signature
from runmanager.records.sweep.sweep_record import SweepCommand, plan_cell, write_cells
from runmanager.training.options.job import TrainingOptions

JOB = {"dataset": {"name": "mnist"}, "model": {"name": "cnn"}, "optimizer": {"name": "adam"}}
THEN = {"channels_last": False, "micro_batch": None}
NOW = {"channels_last": "auto", "micro_batch": "auto"}


def test_the_list_has_the_present_defaults() -> None:
    assert {name: getattr(TrainingOptions(), name) for name in CHANGED_DEFAULTS} == defaults_now()


@pytest.mark.parametrize(
    ("stored", "records", "given", "composed", "kept"),
    [
        ([THEN], False, (), NOW, THEN),
        ([{}], False, (), NOW, THEN),  # of a version without these settings
        ([THEN, {**THEN, "micro_batch": 8}], False, (), NOW, THEN),
        ([THEN], False, ("micro_batch",), NOW, {"channels_last": False}),
        ([THEN], False, (), {**NOW, "channels_last": True}, {"micro_batch": None}),  # by a preset
        ([{**THEN, "micro_batch": "auto"}], False, (), NOW, {"channels_last": False}),
        ([{**THEN, "micro_batch": 8}], False, (), NOW, {"channels_last": False}),
        ([NOW], True, (), NOW, {}),
        ([THEN], True, (), NOW, {}),  # these values were given, as the sweep began with the present defaults
    ],
)
def test_a_sweep_keeps_the_defaults_with_which_it_began(
    tmp_path: Path,
    stored: list[dict[str, Any]],
    records: bool,
    given: tuple[str, ...],
    composed: dict[str, Any],
    kept: dict[str, Any],
) -> None:
    configs = [{**JOB, "lr": number, **settings} for number, settings in enumerate(stored)]
    cells = [plan_cell(signature(each), f"run-{each['lr']}", each) for each in configs]
    paths = SweepPaths(tmp_path)
    write_cells(paths, cells[:1], SweepCommand((), axes={}, defaults=defaults_now() if records else None))
    record = write_cells(paths, cells, SweepCommand((), axes={}, defaults=defaults_now()))
    assert kept_defaults(record, [{**JOB, "lr": 7, **composed}] * 2, given=given) == kept


def test_the_note_says_what_is_kept() -> None:
    assert kept_defaults_note(THEN) == (
        "This sweep began when channels_last=false micro_batch=null was the default, and keeps it; the default of a "
        "new sweep is channels_last=auto micro_batch=auto."
    )
