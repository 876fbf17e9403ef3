"""Statistics as pure functions of numbers: noise, effects, power, paired speedups, crossing curves."""
