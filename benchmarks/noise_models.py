"""Noise models of simulated runs; every simulation covers each registered model."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["EPOCHS", "MODELS", "Floats", "NoiseModel", "autoregressive", "ratings"]

Floats = npt.NDArray[np.float64]
NoiseModel = Callable[[np.random.Generator, float, tuple[int, ...]], Floats]
"""Draws log throughputs around 0 from a generator, the standard deviation between runs, and a shape.

The epochs are added as the last axis.
"""

EPOCHS = 10
EPOCH_NOISE = 0.02

MODELS: dict[str, NoiseModel] = {}


def _register(name: str) -> Callable[[NoiseModel], NoiseModel]:
    def add(model: NoiseModel) -> NoiseModel:
        MODELS[name] = model
        return model

    return add


@_register("normal epochs")
def normal_epochs(generator: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> Floats:
    """Draw independent epochs."""
    return _runs(generator, deviation, shape) + generator.normal(0, EPOCH_NOISE, (*shape, EPOCHS))


@_register("AR(1) 0.9 epochs")
def autocorrelated_epochs(generator: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> Floats:
    """Draw epochs that resemble the previous one, as when another program runs for a while."""
    noise = autoregressive(generator.normal(0, EPOCH_NOISE, (*shape, EPOCHS)), 0.9)
    return _runs(generator, deviation, shape) + noise


@_register("t3 epochs")
def heavy_tailed_epochs(generator: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> Floats:
    """Draw epochs with outliers: Student's t with three degrees of freedom."""
    return _runs(generator, deviation, shape) + EPOCH_NOISE * generator.standard_t(3, (*shape, EPOCHS))


@_register("two modes of runs")
def two_modes(generator: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> Floats:
    """Draw runs of which a fifth take 1.25 times as long, as with an unlucky memory layout."""
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
    """Draw accuracies around 0.9 with standard deviation 0.01; a share `collapse` of the runs stays at 0.1."""
    trained = 0.9 + generator.normal(0, 0.01, shape)
    return np.where(generator.random(shape) < collapse, 0.1, trained)
