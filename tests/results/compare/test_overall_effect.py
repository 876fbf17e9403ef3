"""The overall effect of all pairs: against a meta-analysis by hand, and the setting it depends on."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from runmanager.records.run.run_record import EpochRecord
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions, ComparisonRow, MeasuredEffect
from runmanager.results.compare.overall_effect import overall_effect
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.descriptive import Estimate


def rows_of(speedups, *, error=0.05, dof=20.0, **settings):
    """Rows with these speedups, and with the values of further columns."""
    return [
        row_of(
            Estimate(speedup, 0.9 * speedup, 1.1 * speedup, error, dof),
            **{name: values[at] for name, values in settings.items()},
        )
        for at, speedup in enumerate(speedups)
    ]


def row_of(estimate, *, by_seed=None, **settings):
    effect = MeasuredEffect(estimate, tolerance=0.0, margin=0.03, by_seed=by_seed or {})
    return ComparisonRow({**settings, "verdict": "faster"}, metric=THROUGHPUT, effect=effect, is_stand_in=False)


def test_overall_effect_of_one_pair_is_that_pairs():
    (row,) = rows_of([1.5])
    found = overall_effect([row], ())
    assert (found.estimate.value, found.verdict) == (1.5, "faster")
    assert (found.estimate.low, found.estimate.high) == (row.effect.estimate.low, row.effect.estimate.high)


def test_agreeing_pairs_have_their_geometric_mean_with_students_interval():
    """By hand: the mean of n logarithms of a standard error e each has e / √n, and n times their degrees of freedom."""
    found = overall_effect(rows_of([1.9, 2.0, 2.1]), ())
    reach = stats.t.ppf(0.975, 60) * 0.05 / math.sqrt(3)
    middle = (1.9 * 2.0 * 2.1) ** (1 / 3)
    assert found.agrees and found.verdict == "faster"
    assert (found.estimate.value, found.estimate.high) == pytest.approx((middle, middle * math.exp(reach)))
    assert overall_effect(rows_of([1.9, 2.0, 2.1]), (), sides=5).estimate.high > found.estimate.high


def test_pairs_of_one_run_a_side_do_not_add_up_to_knowledge(contents, timed):
    """Noise that is assumed of each is not known of their mean: it is hardly narrower."""
    cells = [
        ({"lr": lr, "device": device}, timed([9.0] + [1.0] * 5), {}) for lr in (1, 2) for device in ("cpu", "cuda")
    ]
    rows = compare(contents(*cells), None, CompareOptions(drift=0.0)).rows
    single = compare(contents(*cells[:2]), None, CompareOptions(drift=0.0)).rows[0].effect.estimate
    assert math.log(overall_effect(rows, ()).estimate.high) > 0.5 * math.log(single.high)


def test_agreement_is_cochrans_q_for_known_variances():
    """With equal weights Q is the sum of squares over the variance; its published 5% value for 3 dof is 7.815."""
    logs = np.array([0.0, 0.0, 0.0, 1.0])
    unit = 0.05 * math.sqrt(7.815 / 0.75)  # Q of the last one is exactly critical
    for factor, agrees in ((0.99, True), (1.01, False)):
        rows = rows_of(np.exp(logs * unit * factor).tolist(), dof=1e6)
        assert overall_effect(rows, ()).agrees is agrees


def test_setting_that_explains_most_of_the_effect_is_named():
    speedups = [1.0, 1.01, 4.0, 4.1]
    rows = rows_of(speedups, lr=[1, 2, 1, 2], batch_size=[10, 10, 20, 20], depth=[1, 2, 3, 4])
    found = overall_effect(rows, ("lr", "batch_size", "depth"))
    assert (found.agrees, found.setting) == (False, "batch_size")
    assert found.effects == {"10": pytest.approx(math.sqrt(1.01)), "20": pytest.approx(math.sqrt(16.4))}
    assert overall_effect(rows, ("lr",)).setting == "lr"  # it is the only one
    tangled = rows_of([1.0, 4.0, 4.0, 1.0], lr=[1, 2, 1, 2], batch_size=[10, 10, 20, 20])
    assert overall_effect(tangled, ("lr", "batch_size")).setting is None


@pytest.mark.parametrize("dof", [4, 100])
def test_equal_effects_rarely_disagree_even_with_few_degrees_of_freedom(dof):
    generator = np.random.default_rng(dof)
    disagreed = covered = 0
    for _ in range(400):
        rows = [
            row_of(Estimate(speedup, 0.0, math.inf, 0.05 * math.sqrt(chisquare / dof), float(dof)))
            for speedup, chisquare in zip(
                np.exp(generator.normal(0, 0.05, 6)).tolist(), generator.chisquare(dof, 6), strict=True
            )
        ]
        found = overall_effect(rows, ())
        disagreed += not found.agrees
        covered += found.estimate.low <= 1 <= found.estimate.high
    assert disagreed <= 33 and covered >= 367  # three standard errors about 20 and 380


def test_correlated_pairs_are_no_more_certain_than_one(contents):
    """The number of workers changes no accuracy: the pairs of copies have the information of one pair."""
    accuracies = {(1, 0): 0.91, (1, 1): 0.90, (1, 2): 0.92, (2, 0): 0.93, (2, 1): 0.935, (2, 2): 0.926}
    sweep = contents(
        *(
            ({"lr": lr, "num_workers": workers, "seed": seed}, [EpochRecord(epoch=1, val_accuracy=accuracy)], {})
            for (lr, seed), accuracy in accuracies.items()
            for workers in range(8)
        )
    )
    rows = compare(sweep, None, CompareOptions(axis="lr", metric="val_accuracy")).rows
    found = overall_effect(rows, ("num_workers",))
    differences = [accuracies[2, seed] - accuracies[1, seed] for seed in range(3)]
    alone = np.std(differences, ddof=1) / math.sqrt(3)
    assert found.agrees and found.estimate.value == pytest.approx(np.mean(differences))
    assert found.estimate.error == pytest.approx(alone, rel=0.1)
    assert found.verdict == "inconclusive"


@pytest.mark.parametrize("shared", [0.0, 0.01, 0.03])
def test_mean_over_pairs_covers_the_truth_for_any_correlation_between_them(shared):
    generator = np.random.default_rng(6)
    covered = 0
    for _ in range(400):
        effects = generator.normal(0, 0.01, (8, 5)) + generator.normal(0, shared, 5)
        rows = [
            row_of(
                Estimate(math.exp(np.mean(by_seed)), 0.0, math.inf, float(np.std(by_seed, ddof=1)) / math.sqrt(5), 8.0),
                by_seed=dict(enumerate(by_seed)),
            )
            for by_seed in effects
        ]
        found = overall_effect(rows, ())
        covered += found.estimate.low <= 1 <= found.estimate.high
    assert covered >= 367  # three standard errors below 95%


def test_agreement_and_widening_are_those_of_welchs_analysis_of_variance():
    """Rows that stand for groups of measured values, of unlike size and noise, against SciPy's Welch test."""
    generator = np.random.default_rng(12)
    noise = [generator.normal(0, deviation, count) for deviation, count in ((0.01, 4), (0.05, 6), (0.02, 3), (0.03, 9))]
    offsets = (0.0, 0.1, 0.02, -0.05)

    def groups_at(scale):
        return [group + scale * offset for group, offset in zip(noise, offsets, strict=True)]

    def overall_at(scale):
        rows = [
            row_of(
                Estimate(
                    math.exp(group.mean()), 0.0, math.inf, group.std(ddof=1) / math.sqrt(len(group)), len(group) - 1.0
                )
            )
            for group in groups_at(scale)
        ]
        return overall_effect(rows, ())

    def welch(scale):
        return stats.f_oneway(*groups_at(scale), equal_var=False)

    critical = brentq(lambda scale: welch(scale).pvalue - 0.05, 0.2, 5.0)
    assert overall_at(0.999 * critical).agrees and not overall_at(1.001 * critical).agrees
    found, errors = overall_at(0.9 * critical), [each.std(ddof=1) / math.sqrt(len(each)) for each in noise]
    assert found.estimate.error == pytest.approx(math.hypot(*errors) / 4 * math.sqrt(welch(0.9 * critical).statistic))
    squares = [each**2 for each in errors]
    dof = sum(squares) ** 2 / sum(each**2 / (len(group) - 1) for each, group in zip(squares, noise, strict=True))
    assert found.estimate.dof == pytest.approx(dof)
    assert math.log(found.estimate.value) == pytest.approx(
        np.mean([group.mean() for group in groups_at(0.9 * critical)])
    )


def test_a_setting_explains_by_the_adjusted_share():
    """By hand: of the squares about the mean 0.4 lie between the values of lr: 1 - 0.6 / 2 x 3 = 0.1 is above 0."""
    between, within = math.sqrt(0.4), math.sqrt(0.6)
    logs = [-between - within, -between + within, between - within, between + within]
    rows = rows_of(np.exp(logs).tolist(), lr=[1, 1, 2, 2], batch_size=[1, 2, 2, 1])
    assert overall_effect(rows, ("lr", "batch_size")).setting == "lr"
    between, within = math.sqrt(0.3), math.sqrt(0.7)  # 1 - 0.7 / 2 x 3 is below 0
    logs = [-between - within, -between + within, between - within, between + within]
    rows = rows_of(np.exp(logs).tolist(), lr=[1, 1, 2, 2], batch_size=[1, 2, 2, 1])
    found = overall_effect(rows, ("lr", "batch_size"))
    assert (found.agrees, found.setting, found.effects) == (False, None, None)


def test_two_seeds_already_show_what_all_rows_share():
    estimate = Estimate(1.0, 0.0, math.inf, 0.01, 8.0)
    rows = [row_of(estimate, by_seed={0: -0.1, 1: 0.1}) for _ in range(4)]
    alone = [row_of(estimate, by_seed={seed: 0.0}) for seed in range(4)]
    assert overall_effect(alone, ()).estimate.error == pytest.approx(0.005)
    assert overall_effect(rows, ()).estimate.error > 0.05
    assert overall_effect(rows[:1], ()).agrees
