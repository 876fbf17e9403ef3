"""Crossovers of a sweep: from which number of parameters, or which value of an axis, a side is ahead."""

import math

import pytest

from runmanager.errors import UsageError
from runmanager.records.states import Reason, Status
from runmanager.results.comparison import compare
from runmanager.results.crossover import crossing_answers, crossovers, crossovers_worth_saying, unlooked_lines
from runmanager.results.matching import match_sides
from runmanager.results.options import CompareOptions
from runmanager.results.reading import read_results
from runmanager.results.write import write_tables

OPTIONS = CompareOptions()


@pytest.fixture
def tower(timed):
    """A run of a model of 10^depth parameters: a CPU's epoch takes 10^depth ms, a GPU's grows with the fourth root.

    At 10^4 parameters both take ten seconds.
    """

    def run(depth, device, *, seed=0, num_parameters=None, **settings):
        seconds = 10.0 ** (depth - 3) if device == "cpu" else 10.0 ** (1 + (depth - 4) / 4)
        config = {"device": device, "seed": seed, "model": {"name": "mlp_tower", "depth": depth}, **settings}
        fields = {"num_parameters": 10**depth if num_parameters is None else num_parameters}
        return config, timed([2 * seconds] + [seconds] * 5), fields

    return run


@pytest.fixture
def towers(contents, tower):
    """Depths 2, 3, 5 and 6 on both devices."""

    def make(*extra, depths=(2, 3, 5, 6), seeds=(0,), **settings):
        cells = [(depth, seed, device) for seed in seeds for depth in depths for device in ("cpu", "cuda")]
        runs = [tower(depth, device, seed=seed, **settings) for depth, seed, device in cells]
        return contents(*runs, *extra)

    return make


def found_in(sweep, along="num_parameters", **options):
    options = CompareOptions(**options)
    return crossovers(match_sides(sweep, None, options), along, options)


def test_the_crossing_along_the_number_of_parameters(towers):
    (found,) = found_in(towers(seeds=range(5)))
    assert (found.leader, found.follower) == ("cuda", "cpu")
    assert found.at == pytest.approx(1e4)
    assert (found.low, found.high) == pytest.approx((1e4, 1e4))  # without noise, and five runs a side in turns
    assert found.xs == (1e2, 1e3, 1e5, 1e6)
    assert found.curves[0][0] == pytest.approx(1000 / 10.0**-1)
    assert found.settings == {}


def test_few_runs_leave_room_for_drift(towers):
    """A log ratio of 10% is 1/7.5 of a factor of ten here: the ratio grows by 10^0.75 for each."""
    (found,) = found_in(towers())
    assert math.log10(found.low) < 4 - math.log10(1.1) / 0.75 + 1e-6
    assert math.log10(found.high) > 4 + math.log10(1.1) / 0.75 - 1e-6


def test_the_sentence_names_both_the_place_and_the_interval(towers):
    options = CompareOptions()
    (line,) = crossing_answers(match_sides(towers(seeds=range(5)), None, options), "num_parameters", options)
    assert line.startswith("cuda overtakes cpu at num_parameters = 10,000 [")
    assert line.endswith("], measured from 100 to 1,000,000.")


def test_along_a_setting_the_crossing_is_in_its_own_unit(towers):
    (found,) = found_in(towers(seeds=range(5)), "model.depth")
    assert found.at == pytest.approx(4, rel=0.02)


def test_by_another_metric_of_speed_it_is_the_same_place(towers):
    (found,) = found_in(towers(), metric="epoch_seconds")
    assert (found.leader, found.at) == ("cuda", pytest.approx(1e4))
    assert found.curves[0][0] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("depths", "said"),
    [
        ((2, 3), "num_parameters, 100 to 1,000: cpu is ahead throughout."),
        ((5, 6), "num_parameters, 100,000 to 1,000,000: cuda is ahead throughout."),
    ],
)
def test_none_within_the_measured_range_is_said(towers, depths, said):
    (line,) = crossing_answers(match_sides(towers(depths=depths), None, OPTIONS), "num_parameters", OPTIONS)
    assert line == f"No crossover of cuda and cpu within the measured range of {said}"


def test_near_the_end_of_the_range_nobody_is_called_ahead_for_sure(contents, timed):
    runs = [
        ({"device": device, "batch_size": size}, timed([9.0] + [seconds] * 5), {})
        for size, device, seconds in (
            *((100, "cpu", 1.0), (100, "cuda", 2.0)),
            *((1000, "cpu", 1.0), (1000, "cuda", 1.05)),
        )
    ]
    (line,) = crossing_answers(match_sides(contents(*runs), None, OPTIONS), "batch_size", OPTIONS)
    assert "cpu is ahead, though above" in line


def test_other_settings_are_held_equal_and_told(towers, tower):
    others = [tower(depth, device, lr=2) for depth in (2, 3, 5, 6) for device in ("cpu", "cuda")]
    sweep = towers(*others, lr=1)
    first, second = found_in(sweep)
    assert (first.settings, second.settings) == ({"lr": 1}, {"lr": 2})
    assert " (lr=2) " in crossing_answers(match_sides(sweep, None, OPTIONS), "num_parameters", OPTIONS)[1]


def test_a_setting_that_is_set_to_nothing_tells_curves_apart_as_any_other(towers, tower):
    others = [tower(depth, device, micro_batch=None) for depth in (2, 3, 5, 6) for device in ("cpu", "cuda")]
    sweep = towers(*others, micro_batch=8)
    assert [each.settings for each in found_in(sweep)] == [{"micro_batch": 8}, {"micro_batch": None}]
    lines = crossing_answers(match_sides(sweep, None, OPTIONS), "num_parameters", OPTIONS)
    assert " (micro_batch=8) " in lines[0] and " (micro_batch=null) " in lines[1]


def test_what_was_not_measured_is_no_point(towers, tower):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    config, _, fields = tower(7, "cuda")
    sweep = towers(tower(7, "cpu"), (config, [], {**fields, **skipped}))
    (found,) = found_in(sweep)
    assert found.xs[-1] == 1e6
    lonely = towers(depths=(2,))
    assert crossing_answers(match_sides(lonely, None, OPTIONS), "num_parameters", OPTIONS) == [
        "No crossover along num_parameters: no two sides were both measured at two of its values."
    ]


@pytest.mark.parametrize(
    ("along", "said"),
    [
        ("device", "a numeric setting that is not compared itself, got 'device'; what varies here: model.depth"),
        ("depth", "got 'depth'"),
        ("batch_size", "must be an axis of numbers above 0, got 'batch_size'"),
    ],
)
def test_what_is_no_axis_to_cross_along_is_refused(towers, along, said):
    with pytest.raises(UsageError, match=said):
        found_in(towers(), along)


def test_differences_have_no_crossover(towers):
    with pytest.raises(UsageError, match="must go with a metric of ratios, got val_loss"):
        found_in(towers(), metric="val_loss")
    matches = match_sides(towers(), None, CompareOptions(metric="val_loss"))
    assert crossovers_worth_saying(matches, OPTIONS) == []


def test_unasked_only_what_says_something(towers, contents, timed):
    (found,) = crossovers_worth_saying(match_sides(towers(), None, OPTIONS), OPTIONS)
    assert found.along == "num_parameters"  # the depth would say it again
    sizes = [
        ({"device": device, "batch_size": size, "lr": lr}, timed([9.0] + [seconds] * 5), {})
        for lr in (0.1, 0.2)
        for size, cuda in ((10, 4.0), (1000, 0.5))
        for device, seconds in (("cpu", 1.0), ("cuda", cuda))
    ]
    found = crossovers_worth_saying(match_sides(contents(*sizes), None, OPTIONS), OPTIONS)
    assert [(each.along, each.settings) for each in found] == [("batch_size", {"lr": 0.1}), ("batch_size", {"lr": 0.2})]


def test_unasked_a_large_grid_is_looked_at_in_part(contents, timed):
    sizes = [
        ({"device": device, "batch_size": size, "lr": lr}, timed([9.0] + [seconds] * 5), {})
        for lr in range(1, 9)
        for size, cuda in ((10, 4.0), (1000, 0.5))
        for device, seconds in (("cpu", 1.0), ("cuda", cuda))
    ]
    matches = match_sides(contents(*sizes), None, OPTIONS)
    assert [each.settings["lr"] for each in crossovers_worth_saying(matches, OPTIONS)] == list(range(1, 7))
    assert len(crossing_answers(matches, "batch_size", OPTIONS)) == 8
    (line,) = unlooked_lines(matches, OPTIONS)
    assert line.startswith("Crossings along batch_size were looked for in 6 of 8 pairs of curves")


def test_the_report_and_the_markdown_have_the_line_and_the_figure(sweep, tower):
    for seed in range(2):
        for depth in (2, 3, 5):
            for device in ("cpu", "cuda"):
                config, epochs, fields = tower(depth, device, seed=seed)
                sweep.run(config, epochs, **fields)
    write_tables(sweep.paths)
    line = "cuda overtakes cpu at num_parameters = "
    assert line in sweep.paths.comparison("md").read_text()
    page = sweep.paths.report.read_text()
    assert page.count(line) >= 2  # a sentence and the caption of its figure
    assert "the band is the 95% interval" in page
    assert ">num_parameters<" in page
    table = compare(*read_results(sweep.paths))
    assert not any(line in note for note in table.notes)
