"""The reimplemented tutorial does the tutorial's work, and ours gives the same numbers."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchmarks import mnist_sides
from benchmarks.mnist_files import MnistFiles
from benchmarks.rows import Row
from benchmarks.side_processes import Turns
from benchmarks.tutorial import TutorialManager, TutorialNetwork, training_set, tutorial_epoch, tutorial_loader
from benchmarks.tutorial_equal import Case, Trained, rows, train_ours, train_tutorial


def test_tutorial_manager_writes_the_files_of_the_tutorial(few_images: MnistFiles, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, loader = TutorialNetwork(), tutorial_loader(training_set(few_images.root), 300)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    manager = TutorialManager(tmp_path, network, loader, lr=0.01)
    for tally in manager.epochs(2):
        tutorial_epoch(network, loader, optimizer, tally)
        assert len(tally.step_losses) == 2
    manager.save(tmp_path / "results")
    events = EventAccumulator(str(tmp_path)).Reload()
    tags = events.Tags()
    assert tags["scalars"] == ["Loss", "Accuracy"]
    assert tags["graph"]
    assert len(tags["histograms"]) == 2 * len(list(network.parameters()))
    (image,) = events.Images("images")
    assert (image.width, image.height) == (8 * 30 + 2, 38 * 30 + 2)  # all 300, eight a row
    assert list(manager.table["epoch"]) == [1, 2]
    assert (tmp_path / "results.csv").exists() and (tmp_path / "results.json").exists()


def test_our_training_equals_the_tutorials(few_images: MnistFiles) -> None:
    case = Case(few_images, "cpu", seed=3, batch_size=200, num_epochs=2, num_samples=500, is_float64=True)
    ours, theirs = train_ours(case), train_tutorial(case)
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-9)
    assert ours.accuracy == theirs.accuracy
    single = replace(case, is_float64=False, num_epochs=1)
    ours, theirs = train_ours(single), train_tutorial(single)
    assert ours.first_loss == pytest.approx(theirs.first_loss, rel=1e-6)
    assert ours.first_loss != pytest.approx(ours.losses[0], rel=1e-6)


def test_rows_show_the_largest_difference() -> None:
    same, other = Trained(2.0, [1.0, 0.5], 0.95), Trained(2.0002, [1.0, 0.5], 0.94)
    first, double, accuracy = rows("images", [(same, same), (same, other)], (same, same), [(same, same)])
    assert (first.ours, first.other, first.rounds, first.met) == ("2", "2.0002", "3", "no")
    assert first.ratio == "differs by at most 0.0001"
    assert (double.ratio, double.rounds, double.met) == ("differs by at most 0", "2", "yes")
    assert accuracy == Row(
        "accuracy on the test images after 3 epochs, mean over seeds, batch size 1,000",
        "95.00%",
        "94.50%",
        "differs by 0.5 points, by at most 1 in one seed",
        "2",
        "at most 0.5 points",
        accuracy.met,
    )


class _TwoTurns:
    """Stand-in for `Turns` with two turns."""

    reported: ClassVar[list[float]] = []

    def wait(self) -> bool:
        return len(self.reported) < 2

    def report(self, seconds: float) -> None:
        self.reported.append(seconds)

    serve = Turns.serve


@pytest.mark.parametrize("side", ["our-epoch", "tutorial-epoch", "our-run", "tutorial-run", "ceiling"])
def test_every_side_reports_its_seconds_in_each_turn(
    few_images: MnistFiles, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    monkeypatch.setattr(_TwoTurns, "reported", [])
    monkeypatch.setattr(mnist_sides, "Turns", _TwoTurns)
    monkeypatch.setattr(sys, "argv", [side, side, "--data", str(few_images.root), "--batch-size", "300"])
    mnist_sides.main()
    assert len(_TwoTurns.reported) == 2
    assert min(_TwoTurns.reported) > 0
