"""The sides of the tracking benchmark do the same work in the same parts and leave no run active."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import tracking_overhead
from benchmarks.command_line import Settings
from benchmarks.interleaving import StoppingRule, run_parts_interleaved
from benchmarks.tracking_overhead import (
    RunOverheads,
    Trainer,
    Work,
    background_cpu_seconds,
    tracked_parts,
    untracked_parts,
)
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep
from runmanager.tracking.options import TensorBoardOptions

CPU = torch.device("cpu")
BATCHES = [(torch.rand(4, 1, 28, 28), torch.tensor([0, 1, 2, 3])) for _ in range(3)]


def test_both_sides_train_alike_in_equal_parts_and_no_run_stays_active(tmp_path: Path) -> None:
    tracked, untracked = Trainer(CPU), Trainer(CPU)
    work, overheads = Work(BATCHES, BATCHES[:2]), RunOverheads()
    pauses: dict[str, list[bool]] = {"untracked": [], "tracked": []}

    def recorded(name: str, parts: Callable[[], Iterator[bool]]) -> Callable[[], Iterator[bool]]:
        def record() -> Iterator[bool]:
            for counts in parts():
                pauses[name].append(counts)
                yield counts

        return record

    def tracking() -> Iterator[bool]:
        return tracked_parts(
            *(tracked, work, tmp_path),
            epochs=2,
            tensorboard=TensorBoardOptions(),
            overheads=overheads,
            num_metrics=3,
        )

    sides = {
        "untracked": recorded("untracked", lambda: untracked_parts(untracked, work, epochs=2)),
        "tracked": recorded("tracked", tracking),
    }
    seconds = run_parts_interleaved(sides, stopping_rule=StoppingRule(min_rounds=1, max_rounds=1))
    assert all(each > 0 for (each,) in seconds.values())
    assert pauses["tracked"] == pauses["untracked"] == [False, *[True] * 11] * 2  # 2 epochs of 5 steps, and their end
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("runmanager")]
    for one, other in zip(tracked.network.parameters(), untracked.network.parameters(), strict=True):
        assert torch.equal(one, other)
    assert len(overheads.starts) == len(overheads.counts) == len(overheads.ends) == 2
    for sweep in (SweepPaths(tmp_path / name) for name in ("0", "1")):
        (run,) = read_sweep(sweep).runs
        first, *counted = run.epochs  # the first one is not timed
        assert [each.val_accuracy is not None for each in counted] == [True, True]
        assert sweep.results("csv").exists()
        logged = {f"{part}_metric_{number}": number for part in ("step", "epoch") for number in range(3)}
        assert [each.metrics for each in counted] == [logged, logged]
        assert first.samples == 12 and first.metrics == {name: logged[name] for name in logged if "step" in name}
        assert b"confusion_matrix" in run.paths.events.read_bytes()


@pytest.mark.parametrize(("least_seconds", "budget"), [(0.0, "at most 1.01"), (1e9, "-")])
def test_short_steps_with_metrics_have_no_budget(
    monkeypatch: pytest.MonkeyPatch, least_seconds: float, budget: str
) -> None:
    monkeypatch.setattr(tracking_overhead, "_NUM_SAMPLES_ON_CPU", 8)
    monkeypatch.setattr(tracking_overhead, "_MIN_STEP_SECONDS", least_seconds)
    settings = Settings(StoppingRule(min_rounds=1, max_rounds=1), 0, False, "the command")
    comparison = replace(tracking_overhead._LOGGED, batch_size=4)
    row = tracking_overhead._row(settings, CPU, comparison, RunOverheads())
    assert "10 metrics a step and 10 an epoch" in row.what
    assert row.budget == budget


def test_background_work_is_a_share_of_the_time(tmp_path: Path) -> None:
    assert background_cpu_seconds(Trainer(CPU), Work(BATCHES), tmp_path, seconds=0.01) >= 0
