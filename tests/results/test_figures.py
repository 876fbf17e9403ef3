"""The figures of a sweep: what a long run's curve is drawn with, and what room long labels leave."""

from runmanager.results.comparison import compare
from runmanager.results.figures.gallery import figures_of
from runmanager.results.figures.rendering import inline_svg
from runmanager.results.table import result_rows


def svgs_of(sweep):
    """Each figure of a sweep as it stands in a page, by name."""
    tables = {"results": result_rows(sweep, None), "comparison": compare(sweep, None)}
    return {figure.name: inline_svg(figure) for figure in figures_of(sweep, **tables)}


def test_a_curve_of_many_epochs_takes_no_more_than_a_page_can_show(contents, timed):
    long, very_long = (svgs_of(contents(({"lr": 0.1}, timed([1.0] * count), {})))["curves"] for count in (500, 10_000))
    assert len(very_long) < 1.1 * len(long)


def test_long_labels_leave_room_for_what_they_name(contents, timed):
    names = [f"a_setting_of_many_{at}" for at in range(12)]
    sweep = contents(*((dict.fromkeys(names, at), timed([1.0] * 7), {}) for at in range(3)))
    for svg in svgs_of(sweep).values():  # matplotlib warns, and a warning is an error here, where no room is left
        assert "a_setting_of_many_11=2" in svg
