"""The report's figures: what a long run's curve is drawn with."""

from runmanager.results.figures import Curve, Measured, learning_curves, throughput_figure


def curve(num_epochs: int) -> Curve:
    return Curve("a run", range(1, num_epochs + 1), [1 / epoch for epoch in range(1, num_epochs + 1)])


def test_a_curve_of_many_epochs_takes_no_more_than_a_page_can_show() -> None:
    short, long, very_long = (learning_curves([curve(count)], metric="loss") for count in (50, 1000, 10_000))
    assert short.count("<use") >= 50  # a mark an epoch, beside those of the axes
    assert long.count("<use") < 50
    assert len(very_long) < 2 * len(long)


def test_long_labels_leave_room_for_what_they_name() -> None:
    label = ", ".join(f"a_setting_of_many={at}" for at in range(12))
    drawn = (
        throughput_figure([Measured(label, "cpu", [1.0, 2.0])]),
        learning_curves([Curve(f"{label}, seed={seed}", [1, 2], [1.0, 0.5]) for seed in range(12)], metric="loss"),
    )
    for svg in drawn:  # matplotlib warns, and a warning is an error here, where no room is left
        assert "a_setting_of_many=11" in svg
