"""Loops without epochs: intervals of steps become records, whose times and values are those of their steps."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from runmanager import EarlyStopOptions, RunManager, RunOptions, Sweep
from runmanager.errors import UsageError
from runmanager.records.run.run_record import PHASES, EpochRecord
from runmanager.records.storage.reader import StoredRun
from runmanager.tracking import run as run_module
from runmanager.tracking.inactive_run import InactiveRun
from runmanager.tracking.run import ActiveRun

from .conftest import Timeline

OnlyRun = Callable[[], StoredRun]
EVERY_TEN = RunOptions(record_every=10)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Timeline:
    """The clock of the runs of a test."""
    timeline = Timeline()
    monkeypatch.setattr(run_module, "clock_for", lambda device: timeline)
    return timeline


def begin(folder: Path, **options: Any) -> ActiveRun | InactiveRun:
    return RunManager(folder / "sweep", console=False).run({"lr": 1}, nn.Linear(2, 2), **options)


def by_hand(run: Any, clock: Timeline, *, num_steps: int) -> None:
    """Steps of 1 s; after each tenth one an evaluation of 5 s and 0.5 s of something else."""
    for step in range(1, num_steps + 1):
        clock.now += 1
        run.track(float(step), samples=2, tokens=3, metrics={"grad_norm": 2.0 * step})
        if step % 10 == 0:
            clock.now += 0.5
            with run.evaluating():
                clock.now += 5
                run.track_eval(float(-step), samples=4)
            run.log(val_f1=step / 100)


def slow(clock: Timeline, num_batches: int) -> Iterator[dict[str, Any]]:
    """Batches without a length that take 0.25 s each."""
    for number in range(num_batches):
        clock.now += 0.25
        yield {"inputs": torch.full((2, 2), float(number)), "more": [torch.zeros(2), "text"]}


def with_batches(run: Any, clock: Timeline, *, num_steps: int) -> None:
    """The same steps, of two batches each, from loaders of 14."""
    step = batches = 0
    while True:
        for _ in run.batches(slow(clock, 14)):
            clock.now += 0.25
            batches += 1
            if batches % 2:
                continue
            step += 1
            run.track(float(step), samples=2, tokens=3, metrics={"grad_norm": 2.0 * step})
            if step % 10 == 0:
                with run.evaluating():
                    for _ in run.batches(slow(clock, 20)):
                        run.track_eval(float(-step), samples=1)
                run.log(val_f1=step / 100)
            if step == num_steps:
                return


def expected(epoch: EpochRecord, first: int, last: int) -> None:
    steps = range(first, last + 1)
    assert (epoch.epoch, epoch.samples, epoch.units) == (last, 2 * len(steps), {"tokens": 3 * len(steps)})
    assert epoch.loss == pytest.approx(sum(steps) / len(steps))
    assert epoch.val_loss == (-last if last % 10 == 0 else None)
    metrics: dict[str, float | None] = {"grad_norm": pytest.approx(2 * sum(steps) / len(steps))}  # type: ignore[dict-item]
    assert epoch.metrics == metrics | ({"val_f1": last / 100} if last % 10 == 0 else {})
    assert epoch.epoch_seconds == pytest.approx(len(steps))
    assert epoch.eval_seconds == (pytest.approx(5) if last % 10 == 0 else None)


@pytest.mark.parametrize("loop", [by_hand, with_batches])
def test_each_record_has_the_steps_and_the_evaluation_of_its_interval(
    tmp_path: Path, clock: Timeline, only_run: OnlyRun, capsys: pytest.CaptureFixture[str], loop: Any
) -> None:
    manager = RunManager(tmp_path / "sweep")
    with manager.run({"lr": 1}, nn.Linear(2, 2), options=EVERY_TEN) as run:
        loop(run, clock, num_steps=25)
        assert [epoch.epoch for epoch in run.history] == [10, 20]
    stored = only_run()
    assert (stored.status, stored.record.interval, stored.record.epochs_planned) == ("finished", "steps", None)
    for epoch, (first, last) in zip(stored.epochs, [(1, 10), (11, 20), (21, 25)], strict=True):
        expected(epoch, first, last)
    assert [epoch.warmup for epoch in stored.epochs] == [True, False, False]
    assert clock.num_waits <= 8, "the device is waited for once a record"
    wall = sum(epoch.wall_seconds or 0 for epoch in stored.epochs)
    assert wall == pytest.approx(clock.now), "no time is lost between records"
    unclaimed = 0.5 if loop is by_hand else 0.0  # before the evaluation
    for epoch in stored.epochs[:2]:
        phases = [getattr(epoch, f"{name}_seconds") or 0 for name in PHASES[3:]]
        assert epoch.wall_seconds == pytest.approx((epoch.epoch_seconds or 0) + sum(phases) + unclaimed)
    if loop is with_batches:
        assert stored.epochs[0].data_seconds == pytest.approx(5) and stored.epochs[0].compute_seconds == pytest.approx(
            5
        )

    assert "  steps 1 to 10  loss 5.5000" in capsys.readouterr().out
    events = EventAccumulator(str(stored.paths.root))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("val/loss")] == [(10, -10.0), (20, -20.0)]
    assert [event.step for event in events.Scalars("throughput/tokens_per_second")] == [10, 20, 25]
    (row,) = Sweep(tmp_path / "sweep").runs.to_dict("records")
    assert (row["epochs"], row["loss"], row["val_loss"], row["val_f1"]) == (3, 23.0, -20.0, 0.2)
    assert row["samples_per_second"] == pytest.approx(2.0) and row["tokens_per_second"] == pytest.approx(3.0)


def test_an_interval_takes_about_a_second_by_default(
    tmp_path: Path, only_run: OnlyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("runmanager.tracking.step_interval.time.perf_counter", lambda: now)
    with begin(tmp_path) as run:
        for _ in range(10):
            now += 0.3
            run.track(1.0, samples=1)
        for _ in range(2):
            now += 7.0
            run.track(1.0, samples=1)
    assert [epoch.samples for epoch in only_run().epochs] == [4, 4, 2, 1, 1]


def test_intervals_become_longer_where_recording_one_takes_long(
    tmp_path: Path, only_run: OnlyRun, clock: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow:
        def state_dict(self) -> dict[str, Any]:
            clock.now += 0.05  # 1% of 5 s
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    monkeypatch.setattr("runmanager.tracking.step_interval.time.perf_counter", lambda: clock.now)
    with begin(tmp_path, state={"slow": Slow()}) as run:
        for _ in run.batches(range(120)):
            clock.now += 0.1
            run.track(1.0, samples=1)
    steps = [epoch.samples for epoch in only_run().epochs]
    assert all(each < 12 for each in steps[:3]) and all(45 < each < 55 for each in steps[3:-1]) and len(steps) >= 5


def test_a_loop_has_epochs_or_steps(tmp_path: Path, only_run: OnlyRun) -> None:
    with begin(tmp_path) as run:
        run.track(1.0, samples=1)
        with pytest.raises(UsageError, match=r"begin_epoch\(\) must be called in a run with epochs, got one that has"):
            next(iter(run.epochs(2)))
    assert [epoch.epoch for epoch in only_run().epochs] == [1]
    with RunManager(tmp_path / "other", console=False).run({}, nn.Linear(1, 1)) as run:
        for epoch in run.epochs(2):
            epoch.track(1.0, samples=1)
            for call in (lambda: run.track(1.0, samples=1), run.evaluating, lambda: run.batches([])):
                with pytest.raises(UsageError, match="must be called in a run without epochs, got one with"):
                    call()
        with pytest.raises(UsageError, match=r"run\.track\(\) must be called in a run without epochs"):
            run.track(1.0, samples=1)
        assert len(run.history) == 2


def test_a_step_belongs_to_the_thread_of_its_run(tmp_path: Path, only_run: OnlyRun) -> None:
    refused: list[str] = []

    def track() -> None:
        try:
            run.track(2.0, samples=1)
        except UsageError as error:
            refused.append(str(error))

    with begin(tmp_path) as run:
        run.track(1.0, samples=1)
        (thread := threading.Thread(target=track)).start()
        thread.join()
    assert "must be called by the thread that began" in refused[0]
    assert [epoch.samples for epoch in only_run().epochs] == [1]


def test_a_loop_that_breaks_off_keeps_its_steps(tmp_path: Path, only_run: OnlyRun) -> None:
    with pytest.raises(RuntimeError, match="broken"), begin(tmp_path, options=EVERY_TEN) as run:
        for number, _ in enumerate(run.batches([torch.zeros(1)] * 20), start=1):
            run.track(float(number), samples=1)
            if number == 13:
                raise RuntimeError("broken")
    stored = only_run()
    assert (stored.status, [(epoch.epoch, epoch.samples) for epoch in stored.epochs]) == ("failed", [(10, 10), (13, 3)])


@pytest.mark.parametrize(("loss", "outcome"), [(float("nan"), "failed"), (1.0, "finished")])
def test_should_stop_after_divergence_and_without_improvement(
    tmp_path: Path, only_run: OnlyRun, loss: float, outcome: str
) -> None:
    options = RunOptions(record_every=2, early_stop=EarlyStopOptions(metric="val_f1", patience=2))
    with begin(tmp_path, options=options) as run:
        for _ in range(100):
            if run.should_stop:
                break
            run.track(loss, samples=1)
            run.log(val_f1=0.5)
    stored = only_run()
    assert stored.record.message in ("loss is nan in step 2; try a smaller lr", "val_f1 was best in step 2 (0.5)")
    assert stored.status == outcome and len(stored.epochs) == (2 if outcome == "failed" else 4)


def test_an_evaluation_without_training_is_the_summary(tmp_path: Path, only_run: OnlyRun) -> None:
    with begin(tmp_path) as run, run.evaluating():
        for batch in run.batches([torch.ones(2)] * 3):
            run.track_eval(batch.sum(), samples=2, metrics={"val_iou": 0.5})
    stored = only_run()
    assert (stored.status, stored.epochs) == ("finished", [])
    assert stored.record.summary == {"val_loss": 2.0, "val_iou": 0.5}
    (row,) = Sweep(tmp_path / "sweep").runs.to_dict("records")
    assert (row["val_loss"], row["val_iou"]) == (2.0, 0.5)


def test_a_kept_run_takes_every_call_and_changes_nothing(tmp_path: Path, clock: Timeline, only_run: OnlyRun) -> None:
    with begin(tmp_path, options=EVERY_TEN) as run:
        by_hand(run, clock, num_steps=12)
        run.summary["result"] = 1.0
    before = json.loads(only_run().paths.record.read_text())
    with begin(tmp_path, options=EVERY_TEN) as kept:
        assert kept.should_stop and dict(kept.summary) == {"result": 1.0} and list(kept.batches([1, 2])) == []
        by_hand(kept, clock, num_steps=12)
        kept.summary["result"] = 2.0
        kept.log_text("name", "text")
        (kept.dir / "weights").write_text("another run's")
    assert json.loads(only_run().paths.record.read_text()) == before and not only_run().paths.files.exists()
