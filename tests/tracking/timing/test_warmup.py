"""Warm-up detection: the first epochs, and those after them that were slower than the settled run."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from benchmarks.warmup_truth import SHAPES, Shape, warm_epochs
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.storage.reader import read_epochs
from runmanager.tracking.lifecycle.run_epochs import Warmup, has_settled, is_still_warming
from runmanager.tracking.manager import RunManager
from runmanager.tracking.options import Progress

STEADY = [1.0] * 40
GETTING_FASTER = [2.0] * 20 + [1.0] * 20


@pytest.mark.parametrize(
    ("steps", "settled"),
    [
        (STEADY, True),
        (GETTING_FASTER, False),
        ([1.0] * 20 + [2.0] * 20, True),  # steps that get slower are not warm-up
        ([1.25] * 20 + [1.0] * 20, True),
        ([1.26] * 20 + [1.0] * 20, False),
        ([9.0] * 9 + [1.0] * 31, True),  # medians: a few slow steps do not make a trend
        ([2.0] * 9 + [1.0] * 10, True),  # too few steps
        ([], True),
    ],
)
def test_has_settled(steps: list[float], settled: bool) -> None:
    assert has_settled(steps) is settled


def num_warmup_epochs(levels: Sequence[float], *, least: int = 1, first_half: float = 1.0) -> list[int]:
    """Return the number of warm-up epochs after each epoch, given the seconds per step of each."""
    warmup, counts = Warmup(least), []
    for number, level in enumerate(levels, start=1):
        warmup.judge(EpochRecord(number, samples=40), [first_half * level] * 20 + [level] * 20)
        counts.append(len(warmup.epochs))
    return counts


def test_a_slow_start_is_detected_once_it_is_over() -> None:
    # Without more evidence the second epoch counts; three settled epochs show that it is warm-up.
    assert num_warmup_epochs([2.0] * 3 + [1.0] * 5) == [1, 1, 1, 1, 1, 3, 3, 3]
    assert num_warmup_epochs([3.0, 2.0, 1.4, *[1.0] * 7])[-1] == 3


@pytest.mark.parametrize("least", [1, 3])
def test_a_steady_run_has_only_the_least_number_of_warmup_epochs(least: int) -> None:
    assert num_warmup_epochs([1.5] + [1.0] * 7, least=least) == [min(number, least) for number in range(1, 9)]


@pytest.mark.parametrize(
    "levels",
    [
        [0.9**at for at in range(12)],  # work that shrinks until the end
        [1.0] * 4 + [2.0] * 3 + [1.0] * 5,  # load of others for a while
        [1.0] * 8 + [2.0] * 4,
        [1.1**at for at in range(12)],
        [1.0] * 40 + [0.5] * 40,  # a change so late is not warm-up
    ],
)
def test_other_changes_are_not_warmup(levels: Sequence[float]) -> None:
    assert num_warmup_epochs(levels)[-1] == 1


def test_epochs_whose_steps_get_faster_count_if_that_never_ends() -> None:
    assert num_warmup_epochs([0.9**at for at in range(8)], first_half=1.5) == [1, 2, 3, 4, 5, 1, 1, 1]
    assert num_warmup_epochs([4.0, 2.0, *[1.0] * 6], first_half=1.3)[-1] == 3  # the steps of the third show it


def test_longer_epochs_of_equal_steps_are_not_slower() -> None:
    warmup = Warmup(1)
    for number in range(1, 9):
        warmup.judge(EpochRecord(number, samples=100 * number), [1.0] * (10 * number))
    assert list(warmup.epochs) == [1]


def test_epoch_numbers_need_not_be_consecutive() -> None:
    """Warm-up depends on the order of epochs, not on their numbers."""
    warmup, history = Warmup(1), []
    for number, level in enumerate([2.0] * 3 + [1.0] * 5):
        record = EpochRecord(10 * number + 1, samples=40)
        is_warmup = warmup.judge(record, [level] * 40)
        warmup.revise(history)
        history.append(msgspec.structs.replace(record, warmup=is_warmup))
    assert [each.epoch for each in history if each.warmup] == [1, 11, 21] == list(warmup.epochs)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_simulated_runs_lose_few_epochs_and_keep_little_warmup(shape: Shape) -> None:
    generator = np.random.default_rng(5)
    found = [warm_epochs(shape, generator) for _ in range(100)]
    kept = sum(max(0, shape.warmup - each) for each in found) / (100 * shape.warmup)
    dropped = sum(max(0, each - shape.warmup) for each in found) / (100 * (len(shape.levels) - shape.warmup))
    assert kept <= 0.05 and dropped <= 0.05


def test_stored_epochs_have_the_final_marks(tmp_path: Path, let_pass: Callable[[float], None]) -> None:
    """The marks are stored in the run's files alone, so all readers see the same."""
    manager = RunManager(tmp_path / "sweep", console=False)
    batches = [(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))] * 5
    seen = []
    with manager.run({"lr": 0.1}, torch.nn.Linear(2, 2), batches) as run:
        for epoch in run.epochs(8):
            for images, labels in epoch.batches(batches):
                let_pass(200.0 if epoch.number <= 3 else 100.0)
                epoch.track(torch.nn.functional.cross_entropy(run_model(images), labels), run_model(images), labels)
            seen.append([each.warmup for each in read_epochs(run.paths)])
        seen.append([each.warmup for each in read_epochs(run.paths)])
    assert seen[5] == [True] + [False] * 4
    assert seen[6] == [True] * 3 + [False] * 3
    assert seen[-1] == [True] * 3 + [False] * 5
    (row,) = rows(tmp_path / "sweep" / "results.csv")
    assert float(row["epoch_seconds"]) == pytest.approx(500.0, rel=1e-3)
    assert [each["warmup"] for each in rows(tmp_path / "sweep" / "epochs.csv")] == ["True"] * 3 + ["False"] * 5


class Killed(KeyboardInterrupt):
    """Stands for a kill of the process."""


class KilledAfterSaving:
    """A checkpointer that is killed after it has saved epoch 6."""

    def observe(self, record: EpochRecord) -> None:
        pass

    def is_due(self, epoch: int) -> bool:
        return True

    def save(self, path: Path, progress: Progress) -> None:
        self.saved = progress
        path.touch()
        if progress.record.epoch == 6:
            raise Killed

    def load(self, path: Path) -> Progress:
        return self.saved

    def epoch_begins(self) -> None:
        pass


def test_a_resumed_run_keeps_the_marks_of_its_earlier_epochs(tmp_path: Path, let_pass: Callable[[float], None]) -> None:
    """The resuming process judges only its own epochs."""
    checkpointer = KilledAfterSaving()
    run = RunManager(tmp_path / "sweep", sinks=[]).run({"lr": 0.1}, can_resume=True)
    run.begin(torch.nn.Linear(2, 2), None, checkpointer=checkpointer)
    with pytest.raises(Killed):
        for epoch in run.epochs(8):
            for _ in range(5):
                let_pass(200.0 if epoch.number <= 3 else 100.0)
                epoch.track(1.0, samples=4)
    assert [each.warmup for each in read_epochs(run.paths)] == [True] * 3 + [False] * 2
    run.end(Killed())
    resumed = RunManager(tmp_path / "sweep", sinks=[]).run({"lr": 0.1}, can_resume=True)
    resumed.begin(torch.nn.Linear(2, 2), None, checkpointer=checkpointer)
    resumed.end()
    assert [each.warmup for each in read_epochs(run.paths)] == [True] * 3 + [False] * 3


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def run_model(images: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(images), 2, requires_grad=True)


SLOWER_FIRST_HALF = [2.0] * 20 + [1.0] * 20


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ([4.0] * 20 + [2.0] * 20, True),  # twice as fast as the epoch before
        (SLOWER_FIRST_HALF, False),  # the same again: its batches differ, but it does not warm up
        ([1.02 * seconds for seconds in SLOWER_FIRST_HALF], False),  # noise
        ([1.0] * 40, False),
        ([9.0] * 5, True),  # too few steps to compare with
    ],
)
def test_steps_that_differ_alike_in_every_epoch_are_not_warmup(earlier: list[float], expected: bool) -> None:
    assert is_still_warming(SLOWER_FIRST_HALF, earlier=earlier) is expected
