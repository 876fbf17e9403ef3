"""Settings of the local launcher: each fault is one line."""

import dataclasses
from typing import Any

import pytest

from runmanager.app.request.sweep_request import options
from runmanager.launching.launchers import LAUNCHERS
from runmanager.launching.options import LocalOptions
from runmanager.records.run.status import Reason


def test_valid_settings_have_no_fault() -> None:
    assert LocalOptions().faults() == []
    assert (
        LocalOptions(gpus=["0", "GPU-1f"], timeout=0.5, retries=3, retry_on=["exception"], on_error="stop").faults()
        == []
    )
    assert LocalOptions(gpus=[], gpus_per_run=0).faults() == []
    assert LocalOptions(workers=2, runs_per_gpu=2, timeout=60, stall_timeout=59).faults() == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "`hydra.launcher.workers` must be at least 1, got 0."),
        (
            {"gpus": ["0", "1", "0"]},
            "must list each GPU once, as CUDA_VISIBLE_DEVICES names it (like [0,1]), got [0,1,0].",
        ),
        ({"gpus": ["cuda:1"]}, "as CUDA_VISIBLE_DEVICES names it (like [0,1]), got [cuda:1]."),
        ({"gpus_per_run": -1}, "`hydra.launcher.gpus_per_run` must be at least 0, got -1."),
        ({"runs_per_gpu": 0}, "`hydra.launcher.runs_per_gpu` must be at least 1, got 0."),
        ({"timeout": 0.0}, "`hydra.launcher.timeout` must be above 0 and finite, got 0.0; null sets no limit."),
        (
            {"timeout": float("inf")},
            "`hydra.launcher.timeout` must be above 0 and finite, got inf;",
        ),
        ({"stall_timeout": float("nan")}, "`hydra.launcher.stall_timeout` must be above 0 and finite"),
        ({"retries": -1}, "`hydra.launcher.retries` must be at least 0, got -1."),
        ({"retry_on": ["signal", "bad luck"]}, "`hydra.launcher.retry_on` must hold only exception, exit,"),
        ({"retry_on": ["early_stopped"]}, "got early_stopped."),
        (
            {"retry_on": ["exception"]},
            "`hydra.launcher.retry_on` must be given with `hydra.launcher.retries` of at least 1, got [exception].",
        ),
        (
            {"retries": 1, "retry_on": []},
            "`hydra.launcher.retry_on` must hold at least one reason with `hydra.launcher.retries`, got [].",
        ),
        (
            {"runs_per_gpu": 2},
            "`hydra.launcher.runs_per_gpu` must be at most `hydra.launcher.workers`=1, the runs at a time, got 2.",
        ),
        (
            {"timeout": 60.0, "stall_timeout": 60.0},
            "`hydra.launcher.stall_timeout` must be below `hydra.launcher.timeout`=60, got 60.0.",
        ),
        ({"on_error": "panic"}, "`hydra.launcher.on_error` must be one of continue, stop, got panic."),
    ],
)
def test_each_fault_is_reported(settings: dict[str, Any], message: str) -> None:
    (line,) = LocalOptions(**settings).faults()
    assert message in line


def test_all_faults_are_reported_together() -> None:
    assert len(LocalOptions(workers=0, runs_per_gpu=0, retries=-1, on_error="panic").faults()) == 4


def test_each_reason_but_a_good_end_and_a_missing_device_may_be_retried() -> None:
    once = (Reason.EARLY_STOPPED, Reason.PRUNED, Reason.DEVICE_UNAVAILABLE)
    assert LocalOptions(retries=1, retry_on=[each for each in Reason if each not in once]).faults() == []
    for reason in once:
        (fault,) = LocalOptions(retries=1, retry_on=[reason]).faults()
        assert "must hold only exception, exit, out_of_memory, diverged, signal, timeout, stalled, interrupted" in fault


def test_launchers_are_those_of_a_command() -> None:
    assert options()["launcher"].choices.split(", ") == list(LAUNCHERS)
    for each in LAUNCHERS.values():
        settings = {field.name for field in dataclasses.fields(each.options)}
        assert each.takes.keys() <= options().keys() and set(each.takes.values()) <= settings
