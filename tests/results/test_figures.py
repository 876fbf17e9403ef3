"""The report's figures: what a long run's curve is drawn with."""

from runmanager.results.figures import Curve, learning_curves


def curve(num_epochs: int) -> Curve:
    return Curve("a run", range(1, num_epochs + 1), [1 / epoch for epoch in range(1, num_epochs + 1)])


def test_a_curve_of_many_epochs_takes_no_more_than_a_page_can_show() -> None:
    short, long, very_long = (learning_curves([curve(count)], metric="loss") for count in (50, 1000, 10_000))
    assert short.count("<use") >= 50  # a mark an epoch, beside those of the axes
    assert long.count("<use") < 50
    assert len(very_long) < 2 * len(long)
