"""Seeds by other names than `seed`, in everything that is made of a stored sweep."""

import math

import pytest

from runmanager import Sweep
from runmanager.records.storage.reader import SweepContents
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.findings.best import find_best
from runmanager.results.gate.sweep_pairs import read_two_sweeps
from runmanager.results.load.several_sweeps import cells_of_sweeps, read_sweeps
from runmanager.results.tables.query import TableQuery
from runmanager.results.tables.sweep_listing import list_sweeps, listing

ACCURACIES = {0.1: 0.9, 0.2: 0.8}


def fill(sweep, timed, names, *, repeats=3, **given):
    """Two learning rates with some repeats, which differ in the seeds of these names."""
    cells = []
    for lr in ACCURACIES:
        for repeat in range(repeats):
            seeds = {}
            for name in names:
                *groups, last = name.split(".")
                inner = seeds
                for group in groups:
                    inner = inner.setdefault(group, {})
                inner[last] = repeat
            cells.append({"lr": lr, "device": "cpu", "fixed": {"seed": 7}, **seeds})
    sweep.plan(*cells, **given)
    for at, cell in enumerate(cells):
        value = ACCURACIES[cell["lr"]] + 0.01 * (at % repeats) + 0.001 * math.sin(at)
        sweep.run(cell, timed([9.0] + [2.0 + 0.01 * at] * 5, metrics={"score": value}))
    return Sweep(sweep.paths.root)


USUAL = [("random_seed",), ("model.seed",), ("random-seed", "model.seed"), ("seed_everything",)]


@pytest.mark.parametrize("names", [*USUAL, ("fold",)], ids=",".join)
def test_runs_that_differ_in_seeds_alone_repeat_one_measurement(sweep, timed, names):
    stored = fill(sweep, timed, names, seed_names=["fold"] if "fold" in names else [])
    table = stored.table()
    assert (list(table["seeds"]), sorted(table["lr"])) == ([3, 3], [0.1, 0.2])
    assert not {*names, "fixed.seed"} & set(table.columns)
    best = stored.best("score", better="max")
    assert (best.settings, best.value.count, best.num_cells) == ({"lr": 0.1}, 3, 2)
    (pair,) = stored.compare("lr", metric="score", better="max").to_dict("records")
    assert (pair["baseline_runs"], pair["candidate_runs"], pair["verdict"]) == (3, 3, "worse")
    assert not {*names} & set(pair)
    (listed,) = listing(list_sweeps(sweep.paths.root.parent, [], now_ns=0)).rows
    assert listed["cells"] == 6


def test_another_setting_is_no_seed_unless_a_command_says_so(sweep, timed):
    stored = fill(sweep, timed, ("fold",))
    assert "seeds" not in stored.table().columns
    sweep.plan(seed_names=["fo*"])
    assert list(stored.refresh().table()["seeds"]) == [3, 3], "that of a later command counts for all runs"


def test_runs_are_paired_by_all_their_seeds_together(sweep, timed):
    """Of the pairs of equal seeds each has the same difference, which no other pairing has."""
    cells = [
        {"lr": lr, "random_seed": one, "model": {"seed": other}}
        for lr, seeds in ((0.1, [(0, 0), (0, 1), (1, 0)]), (0.2, [(1, 0), (0, 0), (0, 1)]))
        for one, other in seeds
    ]
    sweep.plan(*cells)
    for cell in cells:
        score = cell["lr"] + 0.1 * cell["random_seed"] + 0.37 * cell["model"]["seed"]
        sweep.run(cell, timed([9.0] + [2.0] * 5, metrics={"score": score}))
    (pair,) = Sweep(sweep.paths.root).compare("lr", metric="score", better="max").to_dict("records")
    assert "the two sides differ equally in each pair of runs" in pair["reason"]


def test_a_query_that_names_a_seed_has_a_row_for_each_run(sweep, timed):
    stored = fill(sweep, timed, ("random_seed",))
    assert len(stored.table(columns="random_seed,score")) == 6
    assert list(stored.table(where="random_seed<2")["seeds"]) == [2, 2]


def test_advice_names_the_seed_that_there_is(sweep, timed):
    stored = fill(sweep, timed, ("random_seed",), repeats=1)
    (pair,) = stored.compare("lr", metric="score", better="max").to_dict("records")
    assert pair["reason"].endswith("add seeds, as in random_seed=0,1,2")


def test_two_sweeps_are_compared_by_the_seeds_of_both(make_sweep, timed):
    sweeps = [make_sweep(name) for name in ("one", "two")]
    for sweep, names in zip(sweeps, (["fold"], []), strict=True):
        fill(sweep, timed, ("fold", "random_seed"), seed_names=names)
    one, two = (each.paths for each in sweeps)
    rows = read_two_sweeps(one, two).compare(CompareOptions(metric="score", better="max")).rows
    assert [(row["lr"], row["baseline_runs"], row["candidate_runs"]) for row in rows] == [(0.1, 3, 3), (0.2, 3, 3)]
    table = TableQuery().of_sweeps(read_sweeps([one, two]), collapses=True)
    assert [row["seeds"] for row in table.rows] == [3] * 4
    cells, runs, _ = cells_of_sweeps([one, two])
    best = find_best(SweepContents(one, runs), None, metric="score", better="max", cells=cells)
    assert (best.num_cells, best.value.count) == (4, 3)
