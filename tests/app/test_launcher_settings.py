"""Tests of the local launcher's settings in whole sweeps."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runmanager.launching.local.jobs import LimitWatch

from ..processes import time_since

OWN = ("model=custom", "model._target_=hurt.Net", "epochs=3")

# A model that fails in the first step of its second epoch (batches of 32 of 64 samples: two steps an epoch).
HURT = """
import os, signal
from pathlib import Path
import torch

class Net(torch.nn.Module):
    def __init__(self, in_shape, num_classes, way="fine", times=0):
        super().__init__()
        self.linear = torch.nn.Linear(in_shape[0] * in_shape[1] * in_shape[2], num_classes)
        self.way, self.times, self.steps = way, times, 0
        if way == "looks":
            seen = os.environ.get("CUDA_VISIBLE_DEVICES")
            Path(f"seen-{os.getpid()}").write_text(repr(seen))

    def forward(self, images):
        if self.training:
            self.steps += 1
            if self.steps == 3:
                getattr(self, "_" + self.way)()
        return self.linear(images.flatten(1))

    def _fine(self): pass
    def _looks(self): pass
    def _fails(self): raise ValueError("it hurts")

    def _dies(self):
        with open("tries", "a") as tries:
            tries.write("tried\\n")
        if len(Path("tries").read_text().splitlines()) <= self.times:
            os.kill(os.getpid(), signal.SIGKILL)

    def _stalls(self):
        (folder,) = Path("outputs/still/runs").iterdir()
        Path("beating").write_text(str((folder / "heartbeat").exists()))
        signal.alarm(100)  # ends after 100 s at the latest
        signal.pause()
"""


@pytest.fixture
def hurt(tmp_path: Path) -> Path:
    (tmp_path / "hurt.py").write_text(HURT)
    return tmp_path


def test_a_killed_run_is_retried_and_resumed(
    hurt: Path, command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    words = ("-m", *tiny, *OWN, "lr=0.1", "+model.way=dies", "+model.times=2")
    retries = ("hydra.launcher.retries=2", "hydra.launcher.retry_on=[signal]")
    done = command(*words, *retries, "name=again")
    assert done.status == 0, done.out + done.err
    (record,) = sweep("again").records
    assert (record.status, record.attempt) == ("finished", 3)
    assert (hurt / "tries").read_text().splitlines() == ["tried"] * 2  # the third attempt resumes after the first epoch
    assert "killed (signal): SIGKILL; retried (2 of 3)" in done.out
    assert [row["status"] for row in sweep("again").rows()] == ["finished"]
    epochs = sweep("again").numbers()[record.name]
    assert [each["epoch"] for each in epochs] == [1, 2, 3]
    (hurt / "tries").write_text("tried\n" * 2)
    assert command(*words, "name=undisturbed").status == 0
    assert list(sweep("undisturbed").numbers().values()) == [epochs]


def test_under_resume_never_a_retry_resumes_within_the_command(
    hurt: Path, command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    words = ("-m", *tiny, *OWN, "lr=0.1", "+model.way=dies", "+model.times=3", "name=again")
    (hurt / "tries").write_text("tried\n" * 2)
    assert command(*words).status == 1
    (hurt / "tries").write_text("tried\n" * 2)
    done = command(*words, "resume=never", "hydra.launcher.retries=1")
    assert done.status == 0, done.out + done.err
    (record,) = sweep("again").records
    assert (record.status, record.attempt) == ("finished", 3)
    assert [each.name for each in sweep("again").paths.run(record.name).attempts.iterdir()] == ["1"]


def test_on_error_stop_leaves_the_rest_pending(
    hurt: Path, command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    words = ("-m", *tiny, *OWN, "lr=0.1", "+model.way=fine,fails,looks", "name=stop")
    done = command(*words, "hydra.launcher.on_error=stop")
    assert done.status == 1
    rows = {row["run"].partition("way=")[2].rpartition("-")[0]: row["status"] for row in sweep("stop").rows()}
    assert rows == {"fine": "finished", "fails": "failed", "looks": "pending"}
    assert "on_error=stop: no further run is started." in done.out


def test_the_error_is_printed_when_it_happens(
    hurt: Path, command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    done = command("-m", *tiny, *OWN, "lr=0.1", "+model.way=fails,fine", "name=shown", "--quiet")
    lines = done.out.splitlines()
    (failed,) = (each for each in sweep("shown").records if each.status == "failed")
    error = sweep("shown").paths.run(failed.name).error
    end = lines.index(f"  the whole error: {error.relative_to(hurt)}")
    told = [line.strip() for line in error.read_text().splitlines()]
    assert told[-1] == lines[end - 1].strip() == "ValueError: it hurts"
    shown = [line.strip() for line in lines[1:end]]
    assert shown == told if len(told) <= 20 else shown == ["…", *told[-20:]]
    # Nothing else is printed with --quiet.
    assert lines[0].startswith("✗ 1/2  model.way=fails  failed (exception)  ")
    assert "  ValueError: it hurts" in lines[0]
    assert end == len(lines) - 1


def test_a_run_without_steps_is_stalled(
    hurt: Path,
    command: Callable[..., Any],
    sweep: Callable[[str], Any],
    tiny: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = partial(LimitWatch, clock=time_since(hurt / "beating"))
    monkeypatch.setattr("runmanager.launching.local.engine.LimitWatch", watch)
    done = command("-m", *tiny, *OWN, "lr=0.1", "+model.way=stalls", "name=still", "hydra.launcher.stall_timeout=5")
    assert done.status == 1
    (record,) = sweep("still").records
    assert (record.status, record.reason) == ("killed", "stalled")
    assert record.message == "no step for stall_timeout=5 s"
    assert (hurt / "beating").read_text() == "True"
    assert not sweep("still").paths.run(record.name).heartbeat.exists()


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (("gpus=[3]",), {"auto": "'3'", "cpu": "''"}),
        (("gpus=[3,4]", "gpus_per_run=2"), {"auto": "'3,4'"}),
        (("gpus=[3]", "gpus_per_run=0"), {"auto": "''"}),
    ],
)
def test_a_run_sees_its_own_gpus(
    hurt: Path, command: Callable[..., Any], tiny: tuple[str, ...], given: tuple[str, ...], seen: dict[str, str]
) -> None:
    words = ("+model.way=looks", f"device={','.join(seen)}", "epochs=1", "name=seen")
    done = command("-m", *tiny, *OWN, *words, *(f"hydra.launcher.{word}" for word in given))
    assert done.status == 0, done.out + done.err
    assert sorted(told.read_text() for told in hurt.glob("seen-*")) == sorted(seen.values())


@pytest.mark.parametrize(
    ("words", "faults"),
    [
        (("workers=0", "retries=-1"), ["`hydra.launcher.workers` must be at least 1", "`hydra.launcher.retries` must"]),
        (("gpus=[0]", "gpus_per_run=2"), ["`hydra.launcher.gpus_per_run` must be at most the number of GPUs here (0)"]),
        (("gpus_per_run=1",), ["`hydra.launcher.gpus_per_run` must be at most 0, as this machine has no GPU, got 1."]),
        (("retry_on=[luck]",), ["`hydra.launcher.retry_on` must hold only exception, exit, out_of_memory,"]),
        (
            ("processes_per_run=2",),
            ["`hydra.launcher.processes_per_run` must be 1 for the built-in job, which runs"],
        ),
        (("on_error=cry",), ["`hydra.launcher.on_error` must be one of continue, stop, got cry."]),
        (("timeout=-1",), ["`hydra.launcher.timeout` must be above 0 and finite, got -1.0; null sets no limit."]),
        (
            ("gpus=[0]", "gpus_per_run=0"),
            ["`hydra.launcher.gpus_per_run` must be at least 1 where a cell has device=cuda, got 0."],
        ),
    ],
)
def test_invalid_settings_are_rejected_before_anything_runs(
    command: Callable[..., Any], tmp_path: Path, tiny: tuple[str, ...], words: tuple[str, ...], faults: list[str]
) -> None:
    done = command("-m", *tiny, "device=cpu,cuda", "name=no", *(f"hydra.launcher.{word}" for word in words))
    assert done.status == 2
    assert len(done.faults) == len(faults)
    for line, fault in zip(done.faults, faults, strict=True):
        assert line.startswith(f"error: {fault}")
    assert not (tmp_path / "outputs").exists()
