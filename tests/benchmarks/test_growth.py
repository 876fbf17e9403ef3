"""Exponents of known power laws, and their rows."""

import pytest

from benchmarks.growth import exponent, growth_row

SIZES = (10, 100, 1000)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_its_power(power: float) -> None:
    assert exponent({size: 3 * size**power for size in SIZES}) == pytest.approx(power)


def test_verdict_uses_the_two_largest_sizes() -> None:
    quadratic = {size: [1.0 + (size / 300) ** 2] * 2 for size in SIZES}
    row = growth_row("what", quadratic, of="epochs")
    assert row.what == "what: 10 to 1,000 epochs" and row.ours == "1 s, 1.11 s, 12.1 s"
    assert row.ratio == "epochs^1.04 (1.04 to 1.04)" and row.met == "yes"
    row = growth_row("what", {size: [cost[0] ** 2] * 2 for size, cost in quadratic.items()}, of="epochs")
    assert row.met == "no" and row.rounds == "2"


def test_range_covers_the_rounds() -> None:
    row = growth_row("what", {10: [1.0, 1.0, 1.0], 100: [10.0, 12.0, 20.0]}, of="parameters")
    assert row.ratio.startswith("parameters^1.08 (1.00 to 1.30)") and row.met == "yes, within the noise"


def test_growth_faster_than_linear_misses_the_budget() -> None:
    def verdict(power: float) -> str:
        return growth_row("a read", {size: [1e-6 * size**power] * 3 for size in (10, 100, 1000, 10_000)}, of="runs").met

    assert (verdict(0.9), verdict(1.0), verdict(1.5), verdict(2.0)) == ("yes", "yes", "no", "no")
