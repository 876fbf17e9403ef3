"""The noise of simulated runs: each model is a function, and whoever adds one here has it in every simulation."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["EPOCHS", "MODELS", "Floats", "NoiseModel", "autoregressive", "ratings"]

Floats = npt.NDArray[np.float64]
NoiseModel = Callable[[np.random.Generator, float, tuple[int, ...]], Floats]
"""Logarithms of the throughputs of runs, of the shape asked for with the epochs as last axis; their typical one is 0.

The number is the standard deviation between runs.
"""

EPOCHS = 10
EPOCH_NOISE = 0.02

MODELS: dict[str, NoiseModel] = {}


def _named(name: str) -> Callable[[NoiseModel], NoiseModel]:
    def add(model: NoiseModel) -> NoiseModel:
        MODELS[name] = model
        return model

    return add


@_named("normal epochs")
def normal_epochs(generator: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> Floats:
    """Epochs that are independent of each other."""
    return _runs(generator, deviation, shape) + generator.normal(0, EPOCH_NOISE, (*shape, EPOCHS))


@_named("AR(1) 0.9 epochs")
def autocorrelated_epochs(generator: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> Floats:
    """Epochs that are much like the one before, as where another program comes and goes."""
    noise = autoregressive(generator.normal(0, EPOCH_NOISE, (*shape, EPOCHS)), 0.9)
    return _runs(generator, deviation, shape) + noise


@_named("t3 epochs")
def heavy_tailed_epochs(generator: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> Floats:
    """Epochs some of which lie far off: Student's t with three degrees of freedom."""
    return _runs(generator, deviation, shape) + EPOCH_NOISE * generator.standard_t(3, (*shape, EPOCHS))


@_named("two modes of runs")
def two_modes(generator: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> Floats:
    """A fifth of the runs takes 1.25 times as long, as where memory came to lie badly."""
    slow: Floats = np.log(1.25) * (generator.random((*shape, 1)) < 0.2)
    return normal_epochs(generator, deviation, shape) - slow


def autoregressive(values: Floats, coefficient: float) -> Floats:
    """Turn independent values into an AR(1) series along the last axis, in place; the standard deviation stays."""
    for index in range(1, values.shape[-1]):
        previous = coefficient * values[..., index - 1]
        values[..., index] = previous + np.sqrt(1 - coefficient**2) * values[..., index]
    return values


def _runs(generator: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> Floats:
    return generator.normal(0, 1, (*shape, 1)) * deviation


def ratings(generator: np.random.Generator, shape: tuple[int, ...], *, collapse: float = 0.0) -> Floats:
    """Accuracies of runs about 0.9, with a deviation of 0.01; a share of `collapse` of them learnt nothing."""
    learnt = 0.9 + generator.normal(0, 0.01, shape)
    return np.where(generator.random(shape) < collapse, 0.1, learnt)
