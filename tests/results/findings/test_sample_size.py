"""What a comparison can detect: before the runs, by the plan, and after them, by their noise."""

import math
import re

import pytest

from runmanager.records.run.status import Status
from runmanager.records.settings.signature import signature
from runmanager.records.sweep.sweep_record import SweepCommand, add_cells, plan_cell
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.matched_pairs import match_sides
from runmanager.results.findings.recommendations import next_steps
from runmanager.results.findings.sample_size import (
    detectable_before_running,
    detectable_by_more_runs,
    too_little_to_compare,
)
from runmanager.results.stats.effects import power
from runmanager.results.tables.results_table import result_rows


@pytest.fixture
def planned(contents):
    """Factory of the lines on a planned sweep, its cells given in order as (device, seed)."""

    def lines(*cells):
        configs = [{"device": device, "seed": seed, "epochs": 8} for device, seed in cells]
        axes = {"device": ["cpu", "cuda"], "seed": [0, 1]}
        record = add_cells(
            None,
            [plan_cell(str(at), str(at), config) for at, config in enumerate(configs)],
            SweepCommand(("x",), axes=axes),
        )
        names = [str(at) for at in range(len(cells))]
        return detectable_before_running(contents(), record, dict.fromkeys(names, 7), cells=names)

    return lines


def test_plan_in_turns_describes_its_power_and_assumption(planned):
    (line,) = planned(*((device, seed) for seed in range(5) for device in ("cpu", "cuda")))
    assert line == (
        "With 5 runs for each value of device, a difference in speed of 3% is seen with a chance of 42%; 9 runs each "
        "would show one of 3% with a chance of 80% (if runs of equal settings differ by 2%, as is assumed so far)."
    )


def test_plan_without_power_describes_a_way_out(planned):
    alone, of_metrics = planned(("cpu", 0), ("cuda", 0))
    # By hand: log 1.44 is the root of the squares of log 1.1, the drift, and log 1.43, the interval of one run a side.
    assert alone.startswith(
        "With one run for each value of device, only differences in speed above about 45% can be seen; 9 runs each, "
        "as with `'seed=range(9)'` as the first axis, would show one of 3% with a chance of 80% (if "
    )
    assert of_metrics == (
        "Accuracies and losses can be compared from 3 runs a side on, as with `seed=0,1,2`: cpu has 1."
    )
    (behind,) = planned(*((device, seed) for device in ("cpu", "cuda") for seed in range(3)))
    assert re.match(
        "As the values of device run one after the other, only differences in speed above about 1[0-9]% can be seen; "
        "9 runs each, with `seed` as the first axis, would show one of 3% ",
        behind,
    )
    assert planned(("cpu", 0), ("cpu", 1)) == []  # nothing is compared


@pytest.mark.parametrize("count", [0, 1])
def test_of_speed_nothing_is_said_where_it_is_not_known_that_runs_are_timed(contents, timed, count):
    """A script may record no epochs, before its first run and after it; one that does so is told of speed."""
    cells = [plan_cell(signature(config), str(config["lr"]), config) for config in ({"lr": 0.1}, {"lr": 0.01})]
    record = add_cells(None, cells, SweepCommand(("x",), axes={"lr": [0.1, 0.01]}))
    needed = (
        "Accuracies and losses can be compared from 3 runs a side on, as with `seed=0,1,2` if the program takes a "
        "seed: lr=0.01 has 1."
    )
    done = [({"lr": 0.1}, [], {"summary": {"val_accuracy": 0.9}})] * count
    assert detectable_before_running(contents(*done), record, {}, cells=record.cells) == [needed]
    done = contents(({"lr": 0.1}, timed([1.0]), {}))
    of_speed, of_metrics = detectable_before_running(done, record, {}, cells=record.cells)
    assert of_speed.startswith("Speeds cannot be compared along lr: ") and of_metrics == needed


def test_a_plan_is_about_the_cells_of_its_command(contents):
    """Earlier commands may have left cells in the sweep that have fewer runs, or other axes."""
    configs = [
        *({"lr": lr, "width": 1, "seed": 0, "epochs": 2} for lr in (0.1, 0.2)),
        *({"lr": lr, "width": 9, "seed": seed, "epochs": 9} for lr in (0.1, 0.2) for seed in (0, 1, 2)),
    ]
    cells = [plan_cell(signature(config), str(at), config) for at, config in enumerate(configs)]
    record = add_cells(None, cells, SweepCommand(("x",), axes={"width": [1, 9], "lr": [0.1, 0.2], "seed": [0, 1, 2]}))
    epochs = {cell.signature: cell.settings["epochs"] - 1 for cell in cells}
    few, enough = record.cells[:2], record.cells[2:]
    of_speed, of_metrics = detectable_before_running(contents(), record, epochs, cells=few)
    assert "Speeds cannot be compared along lr" in of_speed and "`epochs=7` makes enough" in of_speed
    assert of_metrics.endswith("as with `seed=0,1,2`: lr=0.1 has 1.")
    (line,) = detectable_before_running(contents(), record, epochs, cells=enough)
    assert line.startswith("As the values of lr run one after the other")


def test_what_finished_cells_lack_to_be_compared_is_said(contents, timed):
    def said(*runs):
        return too_little_to_compare(contents(*runs), None)

    def run(lr, seed, num_epochs):
        return {"lr": lr, "seed": seed, "epochs": num_epochs + 1}, timed([1.0] * (num_epochs + 1)), {}

    assert said(run(0.1, 0, 2)) == said() == []
    seeds = "A comparison of val_accuracy needs 3 runs of each cell, as with `seed=0,1,2`."
    epochs = "A comparison of speeds needs 5 measured epochs of each cell, as with `epochs=7`."
    assert said(run(0.1, 0, 2), run(0.2, 0, 2)) == [seeds, epochs]
    assert said(run(0.1, 0, 5), run(0.2, 0, 5)) == [seeds]
    assert said(*(run(lr, seed, 1) for lr in (0.1, 0.2) for seed in range(3))) == [epochs]
    assert said(*(run(lr, seed, 2) for lr in (0.1, 0.2) for seed in range(3))) == []


def test_chances_below_a_tenth_are_not_told_apart(measured):
    for deviation in (0.06, 0.3):
        (line,) = detectable_by_more_runs(match_sides(measured(deviation, num_seeds=3), None, CompareOptions()), None)
        assert "is seen with a chance of under 10%; " in line


@pytest.fixture
def measured(contents, timed):
    """Seeds of each side in turns, whose log throughputs alternate by `deviation`; the sides differ by `gap`."""

    def make(deviation, gap=0.01, num_seeds=10):
        noise = {("cpu", seed): (-1) ** seed * deviation for seed in range(10)}
        noise |= {("cuda", seed): (-1) ** (seed // 2) * deviation + gap for seed in range(10)}
        return contents(
            *(
                ({"device": device, "seed": seed}, timed([9.0] + [math.exp(-noise[device, seed])] * 6), {})
                for seed in range(num_seeds)
                for device in ("cpu", "cuda")
            )
        )

    return make


def test_measured_runs_give_the_number_that_is_needed(measured):
    sweep = measured(0.04)
    (line,) = detectable_by_more_runs(match_sides(sweep, None, CompareOptions()), None)
    text = re.fullmatch(
        r"With 10 runs for each value of device, a difference in speed of 3% is seen with a chance of (.*); (\d+) runs "
        r"each would show one of 3% with a chance of 80% \(.* differ by (.*)% here\)\.",
        line,
    )
    assert text is not None
    deviation = float(text[3]) / 100
    assert deviation == pytest.approx(0.04, rel=0.15)
    assert int(text[1].rstrip("%")) == pytest.approx(100 * power(0.03, deviations=(deviation,), runs=10), abs=6)
    assert power(0.03, deviations=(deviation,), runs=int(text[2])) == pytest.approx(0.8, abs=0.1)


def test_next_step_has_it_where_rows_are_inconclusive(measured):
    for gap, is_said in ((0.01, True), (0.5, False)):
        sweep = measured(0.02, gap)
        comparison = compare(sweep, None)
        lines = detectable_by_more_runs(match_sides(sweep, None, CompareOptions()), None)
        steps = next_steps(result_rows(sweep, None), comparison, sweep=sweep.paths, to_find=lines)
        assert (lines[0] in steps) is is_said, comparison.rows[0]["verdict"]


def test_speeds_of_equal_seeds_show_the_noise_of_their_sides(contents, timed):
    """Seeds do not pair speeds: the runs of a side differ by 10%, though those of a seed do not."""
    level = [0.1, -0.1, -0.1, 0.1, 0.1, -0.1]
    sweep = contents(
        *(
            ({"device": device, "seed": seed}, timed([9.0] + [math.exp(level[seed])] * 6), {})
            for seed in range(6)
            for device in ("cpu", "cuda")
        )
    )
    (line,) = detectable_by_more_runs(match_sides(sweep, None, CompareOptions()), None)
    assert "(runs of equal settings differ by 11.0% here)" in line  # 0.1 times the root of 6 / 5


def test_a_large_difference_is_a_factor(contents, timed):
    """Two runs a side, one side after the other, that differ by much."""
    sweep = contents(
        *(
            ({"device": device, "seed": seed}, timed([9.0] + [math.exp(seed)] * 6), {})
            for device in ("cpu", "cuda")
            for seed in range(2)
        )
    )
    (line,) = detectable_by_more_runs(match_sides(sweep, None, CompareOptions()), None)
    assert re.search(r"only differences in speed of more than a factor of about \d+ can be seen", line), line


def test_runs_of_incomparable_sides_show_their_noise(contents, timed):
    """The GPU is missing, but the three runs on the CPU show their noise."""
    sweep = contents(
        *(
            ({"device": device, "seed": seed}, timed([9.0] + [math.exp(0.1 * seed)] * 6), {"status": status})
            for seed in range(3)
            for device, status in (("cpu", Status.FINISHED), ("cuda", Status.SKIPPED))
        )
    )
    (line,) = detectable_by_more_runs(match_sides(sweep, None, CompareOptions()), None)
    assert "(runs of equal settings differ by 10.0% here)" in line
