"""Learnt noise: single sources against Student's t, families by simulation, critical values against published ones."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from runmanager.results.stats.descriptive import residuals
from runmanager.results.stats.noise_model import (
    DIFFERENCES,
    RATIOS,
    Difference,
    LearntNoise,
    Prior,
    Residuals,
    critical_value,
)


def reach_alone(seen, prior, **how):
    """How far the interval of one value of the only source reaches."""
    return LearntNoise([seen], prior).reaches([Difference([(0, 1.0)])], **how)[0]


def reach_of_each(seen, prior):
    """How far the joint intervals of one value of each source reach."""
    found = LearntNoise(seen, prior).reaches([Difference([(at, 1.0)]) for at in range(len(seen))])
    return [each.half_width for each in found]


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("dof", [1, 2, 4, 9, 30])
def test_one_source_of_unknown_unit_has_students_interval(dof, scale):
    found = reach_alone(Residuals(dof * scale**2, float(dof)), DIFFERENCES)
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, dof) * scale, rel=0.02)
    # The standard error and the degrees of freedom are those of the same t, and give the interval back.
    assert found.error == pytest.approx(scale, rel=0.06)
    assert found.dof == pytest.approx(dof, rel=0.06)
    assert critical_value(found.dof, 1) * found.error == pytest.approx(found.half_width, rel=1e-6)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_one_source_has_students_interval_at_any_confidence(confidence):
    found = reach_alone(Residuals(5.0, 5.0), DIFFERENCES, confidence=confidence)
    assert found.half_width == pytest.approx(stats.t.ppf((1 + confidence) / 2, 5), rel=0.02)


@pytest.mark.parametrize("prior", [RATIOS, DIFFERENCES])
def test_many_runs_tell_their_noise_whatever_is_assumed(prior):
    for deviation in (1e-4, 0.02, 0.3):
        found = reach_alone(Residuals(400 * deviation**2, 400.0), prior)
        assert found.half_width == pytest.approx(stats.t.ppf(0.975, 400) * deviation, rel=0.02)


def test_without_residuals_the_interval_is_that_of_the_prior():
    """The share of normal errors within it, integrated over the prior's deviations, is 95%."""
    prior = Prior(0.01, 1.0)
    half_width = reach_alone(Residuals(), prior).half_width

    def missed(log):
        return stats.norm.pdf(log) * 2 * stats.norm.sf(half_width / (0.01 * math.exp(log)))

    # That the cells may be alike about a level of their own spreads a single one a little further.
    assert integrate.quad(missed, -8, 8)[0] == pytest.approx(0.05, abs=0.002)


def test_one_run_a_side_has_an_interval_of_at_most_a_factor_of_one_and_a_half():
    (found,) = LearntNoise([Residuals()] * 2, RATIOS).reaches([Difference([(0, -1.0), (1, 1.0)])])
    assert 1.35 < math.exp(found.half_width) < 1.5


def test_without_a_unit_nothing_is_known_before_runs_differ():
    assert reach_alone(Residuals(), DIFFERENCES).half_width == math.inf
    assert reach_alone(Residuals(0.0, 3.0), DIFFERENCES).half_width == 0.0


def test_sources_teach_each_other_unless_they_are_unlike():
    """The interval of a source of two runs next to six of the same noise, and next to six that are far quieter."""
    alone = reach_alone(Residuals(1.0, 1.0), DIFFERENCES).half_width

    def next_to(other):
        return LearntNoise([Residuals(1.0, 1.0), *[other] * 6], DIFFERENCES).reaches([Difference([(0, 1.0)])])[0]

    assert next_to(Residuals(2.0, 2.0)).half_width < alone / 2
    assert next_to(Residuals(2e-4, 2.0)).half_width > stats.norm.ppf(0.975)  # it is not taken for a quiet one


def test_sources_of_equal_noise_have_intervals_of_equal_width():
    for prior in (RATIOS, DIFFERENCES):
        widths = reach_of_each([Residuals(2e-4, 2.0)] * 12, prior)
        assert max(widths) < 1.02 * min(widths)


def test_sources_that_are_noisy_by_luck_have_hardly_wider_intervals():
    """Twelve cells of three runs of the same noise: their own deviations differ by some ten times."""
    generator = np.random.default_rng(11)
    for _ in range(10):
        values = generator.normal(0, 0.01, (12, 3))
        seen = [residuals(row) for row in values.tolist()]
        assert max(each.squares for each in seen) > 15 * min(each.squares for each in seen)
        widths = reach_of_each(seen, DIFFERENCES)
        assert max(widths) < 2.2 * min(widths)  # each on its own: 10 times


@pytest.mark.parametrize("wild", [1e2, 1e4, 1e6, 1e12])
def test_one_wild_source_does_not_widen_the_others(wild):
    quiet = Residuals(2e-6, 2.0)
    without = reach_of_each([quiet] * 6, DIFFERENCES)
    *others, of_wild = reach_of_each([quiet] * 6 + [Residuals(2e-6 * wild**2, 2.0)], DIFFERENCES)
    assert max(others) < 3 * without[0]
    assert of_wild > 4 * 1e-3 * wild  # Student's of its own: the others do not make it look quiet


@pytest.mark.parametrize("deviations", [[1.0] * 3 + [15.0], [1.0] * 10 + [30.0] * 10, np.geomspace(1, 50, 8).tolist()])
def test_quiet_sources_do_not_make_noisy_ones_look_quiet(deviations):
    """Cells of unequal noise and equal means, three seeds each: few sweeps have a false difference."""
    generator = np.random.default_rng(3)
    false, trials, factor = 0, 800 // len(deviations), math.sqrt(1 / 3)
    for _ in range(trials):
        values = generator.normal(0, 1, (len(deviations), 3)) * np.array(deviations)[:, None]
        noise = LearntNoise([residuals(row) for row in values.tolist()], DIFFERENCES)
        found = noise.reaches([Difference([(at, factor)]) for at in range(len(deviations))])
        reach = np.array([each.half_width for each in found])
        false += bool(np.any(np.abs(values.mean(axis=1)) > reach))
    assert false <= 0.05 * trials + 3 * math.sqrt(0.05 * 0.95 * trials)


def test_intervals_against_one_baseline_are_dunnetts():
    """C. W. Dunnett, *Biometrics* 20, 1964, two-sided 5% at infinite degrees of freedom."""
    for count, published in ((1, 1.96), (3, 2.35), (5, 2.51), (8, 2.65)):
        noise = LearntNoise([Residuals(1e5, 1e5)] * (count + 1), DIFFERENCES)
        found = noise.reaches([Difference([(0, -1.0), (at, 1.0)]) for at in range(1, count + 1)])
        assert [each.half_width for each in found] == pytest.approx([published * math.sqrt(2)] * count, rel=0.015)


def test_intervals_of_independent_sources_are_sidaks():
    for count in (2, 8, 20):
        widths = reach_of_each([Residuals(1e5, 1e5)] * count, DIFFERENCES)
        assert widths == pytest.approx([stats.norm.ppf((1 + 0.95 ** (1 / count)) / 2)] * count, rel=0.015)


def test_rows_of_another_kind_widen_every_interval():
    (one,) = LearntNoise([Residuals(1e5, 1e5)], DIFFERENCES).reaches([Difference([(0, 1.0)])], rows=20)
    assert one.half_width == pytest.approx(stats.norm.ppf((1 + 0.95 ** (1 / 20)) / 2), rel=0.01)
    two = [Difference([(at, 1.0)]) for at in range(2)]
    noise = LearntNoise([Residuals(8.0, 4.0)] * 2, DIFFERENCES)
    alone, among = noise.reaches(two), noise.reaches(two, rows=10)
    assert all(many.half_width > 1.2 * few.half_width for few, many in zip(alone, among, strict=True))


def test_what_epochs_explain_is_a_least_and_what_is_extra_is_added():
    noise = LearntNoise([Residuals(1e5, 1e5)], DIFFERENCES)
    (found,) = noise.reaches([Difference([(0, 0.5)], least_variance=4.0, extra_variance=5.0)])
    assert found.half_width == pytest.approx(1.96 * 3.0, rel=0.005)
    (found,) = noise.reaches([Difference([(0, 2.0)], least_variance=1.0, extra_variance=5.0)])
    assert found.half_width == pytest.approx(1.96 * 3.0, rel=0.005)


def test_intervals_are_the_same_each_time():
    seen = [Residuals(2e-4, 2.0), Residuals(1e-4, 2.0), Residuals()]
    assert reach_of_each(seen, RATIOS) == reach_of_each(seen, RATIOS)


def test_critical_value_of_one_row_is_students_and_of_many_sidaks():
    assert critical_value(10.0, 1) == pytest.approx(stats.t.ppf(0.975, 10), rel=1e-6)
    sidak = stats.norm.ppf((1 + 0.95 ** (1 / 20)) / 2)
    assert critical_value(1e7, 20) == pytest.approx(sidak, rel=1e-3)
    assert critical_value(6.0, 5) == pytest.approx(stats.t.ppf((1 + 0.95 ** (1 / 5)) / 2, 6))
