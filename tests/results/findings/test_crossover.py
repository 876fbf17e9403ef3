"""Crossovers of a sweep: the number of parameters, or the value of an axis, from which a side is ahead."""

import pytest

from runmanager.errors import UsageError
from runmanager.records.run.status import Reason, Status
from runmanager.results.compare.comparison import compare, compare_matches
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.matched_pairs import match_sides
from runmanager.results.findings.crossover import (
    crossover_answers,
    crossovers,
    notable_crossovers,
    skipped_crossover_notes,
)
from runmanager.results.load.loader import read_results
from runmanager.results.result_files import write_tables


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


def compared(sweep, **options):
    """Return the matched pairs of a sweep, and their comparison."""
    options = CompareOptions(**options)
    matches = match_sides(sweep, None, options)
    return matches, compare_matches(sweep, matches, options)


def found_in(sweep, along="num_parameters", **options):
    return crossovers(*compared(sweep, **options), along)


def lines_of(sweep, along="num_parameters"):
    return crossover_answers(*compared(sweep), along)


def test_crossing_along_the_number_of_parameters(towers):
    (found,) = found_in(towers(seeds=range(5)))
    assert (found.first_leader, found.second_leader) == ("cpu", "cuda")
    (crossing,) = found.crossings
    assert crossing.at == pytest.approx(1e4)
    assert (crossing.low, crossing.high) == (1e3, 1e5)  # between the two nothing was measured
    assert found.xs == (1e2, 1e3, 1e5, 1e6)
    assert found.curves[0][0] == pytest.approx(1000 / 10.0**-1)
    assert found.settings == {}


def test_insignificant_point_proves_no_crossing(towers, tower):
    """At 10^4 parameters both are equally fast, so the crossing lies between the points around it."""
    (found,) = found_in(towers(depths=(2, 3, 4, 5, 6)))
    (crossing,) = found.crossings
    assert (crossing.low, crossing.high) == (1e3, 1e5)
    assert [point.ahead for point in found.points] == [-1, -1, 0, 1, 1]
    (close,) = found_in(towers(depths=(4, 5)))
    assert close.crossings == ()
    (line,) = lines_of(towers(depths=(4, 5)))
    assert line.endswith("cuda is ahead at 1 of 2 values; at the others the two are too close to tell.")


def test_several_crossings_are_ranges(contents, timed):
    speedups = {1: 0.25, 4: 4.0, 16: 4.0, 64: 4.0, 256: 0.25, 1024: 0.25, 4096: 4.0}
    runs = [
        ({"device": device, "batch_size": size}, timed([9.0] + [1 / rate] * 5), {})
        for size, speedup in speedups.items()
        for device, rate in (("cpu", 1.0), ("cuda", speedup))
    ]
    (line,) = lines_of(contents(*runs), "batch_size")
    assert line == (
        "cuda is ahead of cpu along batch_size from 2 [1, 4] to 128 [64, 256] and from 2,050 [1,024, 4,096] on, "
        "measured from 1 to 4,096."
    )


def test_equal_curves_have_no_crossing(contents, timed):
    """The signs of measured ratios change at every point without significance."""
    runs = [
        ({"device": device, "batch_size": 4**at}, timed([9.0] + [1.0 + (device == "cuda") * (-1) ** at * 0.01] * 5), {})
        for at in range(6)
        for device in ("cpu", "cuda")
    ]
    (line,) = lines_of(contents(*runs), "batch_size")
    assert line.startswith("cuda and cpu are too close to tell which is ahead within the measured range")


def test_sentence_has_the_estimate_and_the_interval(towers):
    (line,) = lines_of(towers(seeds=range(5)))
    assert line == "cuda overtakes cpu at num_parameters = 10,000 [1,000, 100,000], measured from 100 to 1,000,000."


def test_crossing_along_a_setting_is_in_its_unit(towers):
    (found,) = found_in(towers(seeds=range(5)), "model.depth")
    (crossing,) = found.crossings
    assert 3 < crossing.at < 5
    assert (crossing.low, crossing.high) == (3, 5)


def test_crossing_is_the_same_by_another_metric_of_speed(towers):
    (found,) = found_in(towers(), metric="epoch_seconds")
    (crossing,) = found.crossings
    assert (found.second_leader, crossing.at) == ("cuda", pytest.approx(1e4))
    assert found.curves[0][0] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("depths", "expected"),
    [
        ((2, 3), "num_parameters, 100 to 1,000: cpu is ahead throughout."),
        ((5, 6), "num_parameters, 100,000 to 1,000,000: cuda is ahead throughout."),
    ],
)
def test_no_crossing_within_the_measured_range(towers, depths, expected):
    (line,) = lines_of(towers(depths=depths))
    assert line == f"No crossover of cuda and cpu within the measured range of {expected}"


def test_other_settings_are_held_equal_and_named(towers, tower):
    others = [tower(depth, device, lr=2) for depth in (2, 3, 5, 6) for device in ("cpu", "cuda")]
    sweep = towers(*others, lr=1)
    first, second = found_in(sweep)
    assert (first.settings, second.settings) == ({"lr": 1}, {"lr": 2})
    assert " (lr=2) " in lines_of(sweep)[1]


def test_null_setting_separates_curves(towers, tower):
    others = [tower(depth, device, micro_batch=None) for depth in (2, 3, 5, 6) for device in ("cpu", "cuda")]
    sweep = towers(*others, micro_batch=8)
    assert [each.settings for each in found_in(sweep)] == [{"micro_batch": 8}, {"micro_batch": None}]
    lines = lines_of(sweep)
    assert " (micro_batch=8) " in lines[0] and " (micro_batch=null) " in lines[1]


def test_unmeasured_pairs_are_not_points(towers, tower):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    config, _, fields = tower(7, "cuda")
    sweep = towers(tower(7, "cpu"), (config, [], {**fields, **skipped}))
    (found,) = found_in(sweep)
    assert found.xs[-1] == 1e6
    lonely = towers(depths=(2,))
    assert lines_of(lonely) == [
        "No crossover along num_parameters: no two sides were both measured at two of its values."
    ]


@pytest.mark.parametrize(
    ("along", "expected"),
    [
        ("device", "a numeric setting that is not compared itself, got 'device'; what varies here: model.depth"),
        ("depth", "got 'depth'"),
        ("batch_size", "must be an axis of numbers above 0, got 'batch_size'"),
    ],
)
def test_invalid_axis_of_a_crossover_is_rejected(towers, along, expected):
    with pytest.raises(UsageError, match=expected):
        found_in(towers(), along)


def test_without_a_pair_there_is_none(contents, timed):
    sizes = [({"device": "cpu", "batch_size": size}, timed([9.0] + [1.0] * 5), {}) for size in (10, 1000)]
    assert found_in(contents(*sizes), "batch_size", axis="device") == []


def test_differences_have_no_crossover(towers):
    with pytest.raises(UsageError, match="must go with a metric of ratios, got val_loss"):
        found_in(towers(), metric="val_loss")
    assert notable_crossovers(*compared(towers(), metric="val_loss")) == []


def test_notable_crossovers_only(towers, contents, timed):
    (found,) = notable_crossovers(*compared(towers()))
    assert found.along == "num_parameters"  # the crossing along the depth is the same
    sizes = [
        ({"device": device, "batch_size": size, "lr": lr}, timed([9.0] + [seconds] * 5), {})
        for lr in (0.1, 0.2)
        for size, cuda in ((10, 4.0), (1000, 0.25))
        for device, seconds in (("cpu", 1.0), ("cuda", cuda))
    ]
    found = notable_crossovers(*compared(contents(*sizes)))
    assert [(each.along, each.settings) for each in found] == [("batch_size", {"lr": 0.1}), ("batch_size", {"lr": 0.2})]


def test_notable_crossovers_search_part_of_a_large_grid(contents, timed):
    sizes = [
        ({"device": device, "batch_size": size, "lr": lr}, timed([9.0] + [seconds] * 5), {})
        for lr in range(1, 9)
        for size, cuda in ((10, 4.0), (1000, 0.25))
        for device, seconds in (("cpu", 1.0), ("cuda", cuda))
    ]
    pairs = compared(contents(*sizes))
    assert [each.settings["lr"] for each in notable_crossovers(*pairs)] == list(range(1, 7))
    assert len(crossover_answers(*pairs, "batch_size")) == 8
    (line,) = skipped_crossover_notes(*pairs)
    assert line.startswith("Crossings along batch_size were looked for in 6 of 8 pairs of curves")


def test_report_and_markdown_have_the_line_and_the_figure(sweep, tower):
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
    assert "a band reaches from the last point where one side is surely ahead" in page
    assert ">num_parameters<" in page
    table = compare(*read_results(sweep.paths))
    assert not any(line in note for note in table.notes)
