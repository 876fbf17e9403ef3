"""A contender trains in turns, and its loader's workers stand still between them."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psutil
import pytest
import torch

from runmanager.records.run.run_record import Grant
from runmanager.training import speed_race
from runmanager.training.options.dataset import FakeOptions
from runmanager.training.options.groups import (
    CnnOptions,
    TorchvisionModelOptions,
)
from runmanager.training.speed_race import train_contender

from ..job_options import job_options

DEADLINE_SECONDS = 30
JOB = job_options(dataset=FakeOptions(size=200, val_size=20), batch_size=20, micro_batch=None, channels_last=False)


def state_of(pid: int | None) -> str:
    """The state of a process; a signal to stop takes effect a moment after it was sent."""
    until = time.monotonic() + DEADLINE_SECONDS
    while (state := psutil.Process(pid).status()) != psutil.STATUS_STOPPED and time.monotonic() < until:
        os.sched_yield()
    return str(state)


class Watched:
    """Grants turns, and notes what each measured and the state of the workers while it is asked for the next."""

    session = ""
    again = False
    family = None

    def __init__(self, turns: int) -> None:
        self.left = turns
        self.samples: list[int] = []
        self.states: list[list[str]] = []
        self._others = multiprocessing.active_children()  # of other tests in this process

    def ask(
        self, *, is_measured: bool, samples: int = 0, seconds: float = 0.0, is_cancelled: Callable[[], bool]
    ) -> Grant | None:
        assert is_measured
        self.samples.append(samples)
        workers = [each for each in multiprocessing.active_children() if each not in self._others]
        self.states.append([state_of(each.pid) for each in workers])
        self.left -= 1
        return Grant() if self.left >= 0 else None


def test_it_trains_in_turns_and_says_what_it_saw() -> None:
    watched = Watched(4)
    seen = train_contender(JOB, watched)
    assert watched.samples[:2] == [0, 20] and all(watched.samples[1:])
    assert seen["device"] == "cpu" and seen["splits"]
    assert 0 < seen["step_seconds"] < 60 and seen["epoch_steps"] == 10
    assert set(seen["shares"]) >= {"data", "compute"} and sum(seen["shares"].values()) == pytest.approx(1)


@pytest.mark.parametrize(("batch_size", "samples"), [(20, 40), (100, 200)])
def test_workers_stand_still_between_turns_that_have_whole_bursts(batch_size: int, samples: int) -> None:
    watched = Watched(3)
    train_contender(replace(JOB, num_workers=1, batch_size=batch_size), watched)
    assert watched.states[0] == []  # before the first turn there are none
    assert all(states == [psutil.STATUS_STOPPED] for states in watched.states[1:])
    assert watched.samples[1] == samples  # two batches of the worker, or the whole epoch


def test_its_device_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[torch.device] = []
    monkeypatch.setattr(speed_race, "made_current", lambda device: _noted(device, current))

    class Seeing(Watched):
        def ask(self, **options: Any) -> Grant | None:
            assert current == [torch.device("cpu")]
            return super().ask(**options)

    train_contender(JOB, Seeing(1))
    assert not current


@contextmanager
def _noted(device: torch.device, current: list[torch.device]) -> Iterator[None]:
    current.append(device)
    yield
    current.pop()


def test_a_batch_that_cannot_be_split_is_named() -> None:
    whole = replace(JOB, model=TorchvisionModelOptions(input_size=32), batch_size=4)
    assert not train_contender(whole, Watched(1))["splits"]
    drops = replace(JOB, model=TorchvisionModelOptions(architecture="alexnet", input_size=64), batch_size=4)
    assert not train_contender(drops, Watched(1))["splits"]  # its dropout would draw other numbers
    assert train_contender(replace(JOB, model=CnnOptions()), Watched(1))["splits"]
