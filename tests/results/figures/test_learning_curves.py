"""The figure of learning curves."""

import math
import re

import msgspec
import pytest
from torch.utils.tensorboard import SummaryWriter

from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.reader import read_sweep
from runmanager.results.figures.figure import inline_svg
from runmanager.results.program_files.folder_metrics import metrics_by_step
from runmanager.tracking.tensorboard.event_writer import EventWriter

from .drawn_figures import as_fields, figures_in


def test_a_curve_is_the_mean_of_finished_seeds_with_a_band_of_their_range(contents, timed):
    first, second = timed([1.0] * 3), timed([1.0] * 3, samples=10)
    second = [type(epoch)(**{**as_fields(epoch), "val_accuracy": epoch.val_accuracy / 2}) for epoch in second]
    failed = {"status": Status.FAILED, "reason": Reason.DIVERGED}
    runs = [({"lr": 1, "seed": seed}, epochs, {}) for seed, epochs in enumerate((first, second))]
    sweep = contents(*runs, ({"lr": 1, "seed": 2}, timed([1.0]), failed), ({"lr": 2, "seed": 0}, first[:2], {}))
    drawn = figures_in(sweep)["curves"]
    axes, losses = drawn.draw().axes
    by_label = {line.get_label(): line for line in axes.lines}
    assert list(by_label["lr=1"].get_xdata()) == [1, 2, 3]
    titles = [f"{name}: validation, training (dashed)" for name in ("accuracy", "loss")]
    assert [each.get_title("left") for each in (axes, losses)] == titles
    expected = [0.75 * epoch.val_accuracy for epoch in first]
    assert list(by_label["lr=1"].get_ydata()) == pytest.approx(expected)
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((0.125, 0.75))
    assert "with a band from the lowest to the highest seed" in drawn.caption
    best = max(axes.lines, key=lambda line: line.get_linewidth())
    assert best.get_label() == "lr=2"
    assert drawn.description.startswith("The best of 2 curves goes from 0.25 to 0.625")


def test_the_best_curve_is_of_a_finished_cell_that_did_not_diverge(contents, timed):
    killed = {"status": Status.KILLED, "reason": Reason.SIGNAL}
    diverged = [msgspec.structs.replace(epoch, val_accuracy=math.nan) for epoch in timed([2.0] * 3)]
    curves = figures_in(
        contents(
            ({"lr": 0.1}, diverged, {}),
            ({"lr": 0.2}, timed([2.0] * 9), killed),
            ({"lr": 0.3}, timed([2.0] * 3), {}),
            ({"lr": 0.4}, timed([2.0] * 2), {}),
        )
    )["curves"]
    assert re.search(r"best of 4 curves .* at epoch 3: lr=0\.3\.", curves.description)
    assert curves.description.endswith("The worst ends at nan: lr=0.1.")


def test_a_cell_with_a_seed_without_a_last_value_is_not_the_best(contents, timed):
    """As in the tables: the mean of the other seeds is no result of the cell."""

    def epochs(*values):
        taken = zip(timed([2.0] * 3), values, strict=True)
        return [msgspec.structs.replace(epoch, val_accuracy=value) for epoch, value in taken]

    reached = {
        (0.1, 0): (0.8, 0.9, 0.95),
        (0.1, 1): (0.8, 0.9, None),
        (0.2, 0): (0.5, 0.6, 0.7),
        (0.2, 1): (0.5, 0.6, 0.7),
    }
    sweep = contents(*(({"lr": lr, "seed": seed}, epochs(*values), {}) for (lr, seed), values in reached.items()))
    assert re.search(r"The best of 2 curves .* at epoch 3: lr=0\.2\.", figures_in(sweep)["curves"].description)


def test_a_seed_that_stopped_early_does_not_change_the_ranking(contents, timed):
    """Up to epoch 2, where its shortest seed ends, lr=0.1 is not better than lr=0.2; by its final values it is."""
    counts = {(0.1, 1): 2, (0.1, 2): 20, (0.2, 1): 3, (0.2, 2): 3}
    sweep = contents(*(({"lr": lr, "seed": seed}, timed([1.0] * count), {}) for (lr, seed), count in counts.items()))
    curves = figures_in(sweep)["curves"]
    assert re.search(r"The best of 2 curves .* at epoch 2: lr=0\.1\.", curves.description)
    assert "It ends with the shortest seed" in curves.caption
    whole = contents(*(({"lr": 0.1, "seed": seed}, timed([1.0] * 3), {}) for seed in (1, 2)))
    assert "shortest" not in figures_in(whole)["curves"].caption


def test_the_size_of_a_curve_is_limited_for_many_epochs(contents, timed):
    long, very_long = (
        inline_svg(figures_in(contents(({"lr": 0.1}, timed([1.0] * count), {})))["curves"]) for count in (500, 10_000)
    )
    assert len(very_long) < 1.1 * len(long)


def test_curves_of_runs_without_epochs_come_from_their_files(sweep):
    def write(writer, lr, steps):
        for step in steps:
            writer(lr / step, step)

    for lr, origin in ((1, "printed"), (2, "printed"), (3, "event file")):
        known = {"summary": {"loss": lr / 30, "words": 1.0}, "origins": {"loss": origin, "words": "returned"}}
        name = sweep.run({"lr": lr}, [], **known)
        folder = sweep.paths.run(name).root / ("." if lr == 1 else "printed" if lr == 2 else "logs")
        folder.mkdir(exist_ok=True)
        if origin == "printed":
            own = EventWriter(folder)
            write(lambda value, step, own=own: own.scalars({"loss": value}, step), lr, range(1, 31))
            own.close()
        else:
            with SummaryWriter(folder) as foreign:
                write(
                    lambda value, step, foreign=foreign: foreign.add_scalar("loss", value, step), lr, range(10, 31, 10)
                )
                write(lambda value, step, foreign=foreign: foreign.add_scalar("many", value, step), lr, range(1, 9000))
    drawn = figures_in(read_sweep(sweep.paths))["curves"]
    (axes,) = drawn.draw().axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "training loss")
    by_label = {line.get_label(): line for line in axes.lines}
    for lr, steps in ((1, range(1, 31)), (2, range(1, 31)), (3, [10, 20, 30])):
        assert list(by_label[f"lr={lr}"].get_xdata()) == list(steps)
        assert list(by_label[f"lr={lr}"].get_ydata()) == pytest.approx([lr / step for step in steps])
    assert "training loss by step" in drawn.caption
    assert re.search(r"at step 30: lr=1\.", drawn.description)
    last = sweep.paths.run(name)
    many = metrics_by_step(last, {"many": "event file"})["many"]
    assert 500 < len(many) <= 2001 and many[8999] == pytest.approx(3 / 8999)
    assert metrics_by_step(last, {"words": "returned"}) == {}


def test_the_axis_of_intervals_of_steps_is_named_so(contents, timed):
    drawn = figures_in(contents(({"lr": 0.1}, timed([1.0] * 3), {"interval": "steps"})))["curves"].draw()
    assert {axes.get_xlabel() for axes in drawn.axes} == {"step"}


def test_training_and_validation_share_a_panel_and_each_quantity_has_one(contents, timed):
    epochs = [
        msgspec.structs.replace(each, accuracy=None, metrics={"train/f1": 0.1, "val/f1": 0.2, "reward": 1.0})
        for each in timed([1.0] * 3)
    ]
    drawn = figures_in(contents(*(({"lr": lr}, epochs, {}) for lr in (0.1, 0.2))))["curves"].draw()
    panels = {axes.get_title("left"): axes for axes in drawn.axes}
    assert list(panels) == [
        *("validation accuracy (fraction)", "loss: validation, training (dashed)"),
        *("f1: val/f1, train/f1 (dashed)", "reward"),
    ]
    loss = panels["loss: validation, training (dashed)"]
    assert [line.get_linestyle() for line in loss.lines] == ["-", "-", "--", "--"]
    assert list(loss.lines[0].get_ydata()) == [each.val_loss for each in epochs]
    assert list(loss.lines[2].get_ydata()) == [each.loss for each in epochs]


def test_metrics_beyond_the_panels_are_counted(contents, timed):
    metrics = {f"metric_{number}": 1.0 for number in range(9)}
    epochs = [msgspec.structs.replace(each, metrics=metrics) for each in timed([1.0] * 3)]
    drawn = figures_in(contents(({"lr": 0.1}, epochs, {})))["curves"]
    assert len(drawn.draw().axes) == 6
    assert "5 more metrics can be chosen on the screen." in drawn.caption
