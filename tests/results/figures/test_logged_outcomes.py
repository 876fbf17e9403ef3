"""Figures of sweeps whose outcome is a logged metric."""

import msgspec
import pytest

from .drawn_figures import figures_in, texts_of

COLUMNS = dict.fromkeys(("loss", "accuracy", "val_loss", "val_accuracy"))


@pytest.fixture
def perplexities(contents, timed):
    """A sweep that logs `ppl`, 8 * lr / epoch, in every second epoch."""

    def epochs(lr):
        return [
            msgspec.structs.replace(
                epoch, **COLUMNS, **({"metrics": {"ppl": 8 * lr / epoch.epoch}} if epoch.epoch % 2 == 0 else {})
            )
            for epoch in timed([1.0] * 6)
        ]

    return contents(*(({"lr": lr, "batch_size": size}, epochs(lr), {}) for lr in (1, 2, 3) for size in (10, 20)))


def test_learning_curves_are_of_the_logged_outcome(perplexities):
    drawn = figures_in(perplexities)["curves"]
    (axes,) = drawn.draw().axes
    assert axes.get_ylabel() == "ppl"
    by_label = {line.get_label(): line for line in axes.lines}
    curve = by_label["lr=3, batch_size=10"]
    assert list(curve.get_xdata()) == [2, 4, 6]
    assert list(curve.get_ydata()) == pytest.approx([12, 6, 4])
    assert max(axes.lines, key=lambda line: line.get_linewidth()).get_label() == "lr=1, batch_size=10"
    assert drawn.description.startswith("The best of 6 curves goes from 4 to 1.33 ppl at epoch 6: lr=1")


def test_parallel_coordinates_end_in_the_logged_outcome(perplexities):
    drawn = figures_in(perplexities)["parallel"]
    assert {"ppl", "1.33", "4"} <= set(texts_of(drawn))
    assert "through its settings to its samples per second and ppl" in drawn.caption
    assert drawn.description.startswith("The best ppl is 1.33, with lr=1")
    heights = {text.get_text(): text.get_position()[1] for text in drawn.draw().axes[0].texts}
    assert (heights["1.33"], heights["4"]) == (1, 0)  # a small value is better, so it is at the top
