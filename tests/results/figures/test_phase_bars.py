"""The figure of an epoch's phases."""

import re

import pytest

from .drawn_figures import PHASES, figures_in


def test_phases_are_in_order_and_the_rest_is_labelled_as_not_measured(contents, timed):
    epochs = timed([9.0] + [2.0] * 6, data_seconds=0.5, compute_seconds=1.5)  # of 2.5 seconds of wall time
    drawn = figures_in(contents(({"lr": 0.1}, epochs, {})))["phases"]
    assert "takes 2.5 seconds: 20% data, 60% compute and 20% not measured apart." in drawn.description
    assert drawn.caption.endswith("transfer, eval and tracking were not measured.")
    (axes,) = drawn.draw().axes
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    assert bars == [pytest.approx(each) for each in ((0.0, 0.5), (0.5, 1.5), (2.0, 0.5))]
    assert len({bar.get_hatch() for bar in axes.patches}) == 3


def test_time_outside_all_phases_is_shown_even_if_all_phases_are_known(contents, timed):
    phases = dict.fromkeys(("data_seconds", "transfer_seconds", "eval_seconds", "tracking_seconds"), 0.25)
    epochs = timed([9.0] + [2.0] * 6, compute_seconds=1.0, **phases)  # of 2.5 seconds of wall time
    drawn = figures_in(contents(({"lr": 0.1}, epochs, {})))["phases"]
    assert "takes 2.5 seconds:" in drawn.description and "20% not measured apart" in drawn.description


def test_phases_of_epochs_of_very_different_length_are_shares(contents, timed):
    phases = dict.fromkeys(PHASES[:4], 0.1) | {"tracking_seconds": 0.0}
    short, long = (
        timed([9.0] + [0.3] * 6, **(phases | {"compute_seconds": 0.5})),
        timed([900.0] + [30.0] * 6, **(phases | {"compute_seconds": 30.2})),
    )
    drawn = figures_in(contents(({"lr": 1}, short, {}), ({"lr": 2}, long, {})))["phases"]
    (axes,) = drawn.draw().axes
    assert axes.get_xlim() == (0, 1)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["lr=1 (0.8 s)", "lr=2 (30.5 s)"]
    assert "not measured" not in drawn.caption + drawn.description


def test_the_longest_epoch_is_determined_by_all_phases(contents, timed):
    """lr=1 trains faster, but its evaluation takes so long that its epochs are longer."""
    rest = dict.fromkeys(("data_seconds", "transfer_seconds", "tracking_seconds"), 0.0)
    cells = [
        ({"lr": lr}, timed([9.0] + [seconds] * 6, **rest, compute_seconds=seconds, eval_seconds=evaluated), {})
        for lr, seconds, evaluated in ((1, 1.0, 4.0), (2, 2.0, 0.5))
    ]
    drawn = figures_in(contents(*cells))["phases"]
    match = re.search(r"shortest epoch, of lr=2, takes 2\.5 .* longest, of lr=1, takes 5 ", drawn.description)
    assert match and "fastest training first" in drawn.caption
