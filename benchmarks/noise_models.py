"""Noise models of simulated comparisons; every simulation of noise covers each of them.

A new model goes into `MODELS`. `KEPT_BACK` is for those that were invented after the method was final: they are
reported apart, and the method is never changed for them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["KEPT_BACK", "MODELS", "Floats", "NoiseModel", "autoregressive"]

Floats = npt.NDArray[np.float64]
Shape = tuple[int, int, int]
Draw = Callable[[np.random.Generator, Shape], Floats]
"""Draws the logarithms of speeds of equal sides: of tables, sides and runs, or of their epochs with one axis more."""

_EPOCHS, _EPOCH_NOISE = 10, 0.005
_SECONDS = 60.0  # from one run to the next
_ORACLE_TABLES = 20_000


@dataclass(frozen=True)
class NoiseModel:
    """The noise of runs and epochs, and a linear drift of the machine over all runs, in either direction.

    The runs of the sides take turns, in the same order each time; `is_blocked`: one side runs after the other.
    """

    draw: Draw
    drift: float = 0.0
    is_blocked: bool = False

    def tables(self, generator: np.random.Generator, shape: Shape) -> Floats:
        """Return the logarithms of speeds by table, side, run and epoch."""
        direction = generator.choice([-1.0, 1.0], (shape[0], 1, 1, 1))
        times = self.times(*shape[1:])
        drifted: Floats = np.log1p(self.drift) * direction * times[..., None] / max(times.max(), 1.0)
        return self.draw(generator, shape) + drifted

    def times(self, sides: int, runs: int) -> Floats:
        """Return when each run of each side is measured, in seconds."""
        order = np.arange(float(sides * runs)) * _SECONDS
        return order.reshape(sides, runs) if self.is_blocked else order.reshape(runs, sides).T

    def oracle(self, sides: int, runs: int) -> float:
        """Return the 95% quantile of the largest error over all sides but the first, which each is compared with."""
        tables = max(_ORACLE_TABLES // sides, 4000)
        means = np.median(self.tables(np.random.default_rng(1), (tables, sides, runs)), axis=-1).mean(axis=-1)
        return float(np.quantile(np.abs(means[:, 1:] - means[:, :1]).max(axis=1), 0.95))


def with_epochs(runs: Draw, *, epochs: int = _EPOCHS, noise: float = _EPOCH_NOISE) -> Draw:
    """Add the noise of independent epochs to that of runs."""
    return lambda generator, shape: runs(generator, shape)[..., None] + generator.normal(0, noise, (*shape, epochs))


def normal(deviation: float) -> Draw:
    """Draw runs that differ lognormally."""
    return lambda generator, shape: generator.normal(0, deviation, shape)


def autocorrelated_epochs(generator: np.random.Generator, shape: Shape) -> Floats:
    """Draw epochs that resemble the previous one, as when another program runs for a while."""
    noise = autoregressive(generator.normal(0, 0.02, (*shape, _EPOCHS)), 0.9)
    return generator.normal(0, 0.01, shape)[..., None] + noise


def autoregressive(values: Floats, coefficient: float) -> Floats:
    """Turn independent values into an AR(1) series along the last axis, in place; the standard deviation stays."""
    for index in range(1, values.shape[-1]):
        previous = coefficient * values[..., index - 1]
        values[..., index] = previous + np.sqrt(1 - coefficient**2) * values[..., index]
    return values


def slow(share: float) -> Draw:
    """Draw runs that differ by 1%, and of which a share takes 15% longer, as with an unlucky memory layout."""
    return lambda generator, shape: generator.normal(0, 0.01, shape) - np.log(1.15) * (generator.random(shape) < share)


def heavy_tailed(generator: np.random.Generator, shape: Shape) -> Floats:
    """Draw runs that differ by Student's t with three degrees of freedom, times 1%."""
    return 0.01 * generator.standard_t(3, shape)


def one_outlier(generator: np.random.Generator, shape: Shape) -> Floats:
    """Draw runs that differ by 1%; in each table one run of all takes 40% longer."""
    values = generator.normal(0, 0.01, (shape[0], shape[1] * shape[2]))
    values[np.arange(shape[0]), generator.integers(values.shape[1], size=shape[0])] -= np.log(1.4)
    return values.reshape(shape)


def unequal(ratio: float) -> Draw:
    """Draw runs that differ by 1%, and every second side this many times as much."""
    return lambda generator, shape: (
        generator.normal(0, 0.01, shape) * np.where(np.arange(shape[1]) % 2, ratio, 1.0)[:, None]
    )


def skewed(generator: np.random.Generator, shape: Shape) -> Floats:
    """Draw runs that are slowed down by 2% at the median, and some by far more."""
    return -0.02 * np.exp(generator.normal(0, 1, shape))


def in_turns(series: Floats, shape: Shape) -> Floats:
    """Turn a series over time for each table into runs of sides that take turns."""
    return series.reshape(shape[0], shape[2], shape[1]).swapaxes(1, 2)


def saw_tooth(generator: np.random.Generator, shape: Shape) -> Floats:
    """Draw runs on a laptop that loses 8% of its clock as it heats up, then recovers at once, every 4 to 16 runs."""
    period, phase = generator.uniform(4, 16, (shape[0], 1)), generator.random((shape[0], 1))
    heat = (np.arange(shape[1] * shape[2]) / period + phase) % 1
    return in_turns(np.log1p(-0.08 * heat), shape) + generator.normal(0, 0.005, shape)


def random_walk(generator: np.random.Generator, shape: Shape) -> Floats:
    """Draw runs on a shared server whose speed wanders off by 1.5% from each run to the next and never returns."""
    return in_turns(generator.normal(0, 0.015, (shape[0], shape[1] * shape[2])).cumsum(axis=1), shape)


def gamma_stalls(generator: np.random.Generator, shape: Shape) -> Floats:
    """Draw epochs that wait for a network file system, by gamma-distributed times whose mean differs between runs."""
    load = generator.gamma(0.5, 0.08, shape)[..., None]
    slowdown = 1 + load * generator.gamma(2, 0.5, (*shape, _EPOCHS))
    return generator.normal(0, 0.005, slowdown.shape) - np.log(slowdown)


def boosted_side(generator: np.random.Generator, shape: Shape) -> Floats:
    """Draw runs that differ by 0.5%, on every second side by 3%, where one in ten is boosted or throttled by 20%."""
    outliers = np.log(1.2) * generator.choice([-1.0, 0.0, 1.0], shape, p=[0.05, 0.9, 0.05])
    is_boosted = np.arange(shape[1])[:, None] % 2 == 1
    return np.where(is_boosted, generator.normal(0, 0.03, shape) + outliers, generator.normal(0, 0.005, shape))


MODELS: dict[str, NoiseModel] = {
    **{f"lognormal {each:g}%": NoiseModel(with_epochs(normal(each / 100))) for each in (0.5, 1, 2, 5, 8, 15)},
    "AR(1) 0.9 epochs": NoiseModel(autocorrelated_epochs),
    "one run in ten 15% slow": NoiseModel(with_epochs(slow(0.1))),
    "every other run 15% slow": NoiseModel(with_epochs(slow(0.5))),
    "Student's t, 3 degrees": NoiseModel(with_epochs(heavy_tailed)),
    "one outlier of 40%": NoiseModel(with_epochs(one_outlier)),
    "sides 1% and 4%": NoiseModel(with_epochs(unequal(4))),
    "sides 1% and 10%": NoiseModel(with_epochs(unequal(10))),
    "two epochs a run": NoiseModel(with_epochs(normal(0.01), epochs=2, noise=0.02)),
    "10% drift, in turns": NoiseModel(with_epochs(normal(0.01)), drift=0.1),
    "10% drift, blocked": NoiseModel(with_epochs(normal(0.01)), drift=0.1, is_blocked=True),
    "heavy skew": NoiseModel(with_epochs(skewed)),
}

KEPT_BACK: dict[str, NoiseModel] = {
    "saw-tooth clock of 8%": NoiseModel(with_epochs(saw_tooth)),
    "random walk over time": NoiseModel(with_epochs(random_walk)),
    "gamma stalls of epochs": NoiseModel(gamma_stalls),
    "one side noisy with outliers": NoiseModel(with_epochs(boosted_side)),
}
