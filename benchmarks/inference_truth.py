"""Latencies of inference where the truth is known, and beside `torch.utils.benchmark` on three networks.

The mean of a call is compared, as `torch.utils.benchmark` times blocks of calls.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.utils.benchmark import Timer

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import Ratio, StoppingRule, run_interleaved
from benchmarks.rows import Budget, Row, format_seconds, ratio_row
from runmanager.records.run.run_record import InferenceRecord
from runmanager.tracking.inference import measure_inference

_CPU = torch.device("cpu")
_BATCH = 8
_SECONDS = 0.4  # of each measurement of a network
_OFF = Budget(0.03, format="{:.0%}".format)
_RULE = StoppingRule(min_rounds=8, max_rounds=20, max_seconds=30, half_width=0.02)


class Delayed(nn.Module):
    """A network that takes a delay drawn from a lognormal distribution, by a clock of its own, and notes it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.delays: list[float] = []
        self._generator = np.random.default_rng(seed)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the inputs when the delay is over."""
        began, seconds = time.monotonic(), 0.002 * float(self._generator.lognormal(0, 0.4))
        while (taken := time.monotonic() - began) < seconds:
            pass
        self.delays.append(taken)
        return inputs


def known_delay_rows(seconds: float) -> Iterator[Row]:
    """Yield a row for each quantile: measured, and of the delays that the network noted in the same calls."""
    network = Delayed(0)
    (found,) = measure_inference(network, torch.zeros(1, 1), [1], seconds=seconds, device=_CPU)
    truth = np.quantile(network.delays[-found.num_calls :], (0.5, 0.99))
    for name, known, most in zip(("p50", "p99"), truth, (0.02, 0.05), strict=True):
        measured = getattr(found, f"latency_{name}_seconds")
        off, budget = abs(measured / known - 1), Budget(most, format="{:.0%}".format)
        yield Row(
            f"{name} of {found.num_calls:,} calls; other: the delays themselves",
            format_seconds(measured),
            format_seconds(float(known)),
            f"{measured / known:.4f}",
            budget=f"off by {budget}",
            met=budget.verdict(off, off, off),
        )


NETWORKS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "an MLP": lambda: (nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)), torch.rand(_BATCH, 784)),
    "a CNN": lambda: (
        nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.Flatten(), nn.LazyLinear(10)),
        torch.rand(_BATCH, 1, 28, 28),
    ),
    "a transformer's layer": lambda: (nn.TransformerEncoderLayer(64, 4, batch_first=True), torch.rand(_BATCH, 32, 64)),
}


def _ours(network: nn.Module, batch: torch.Tensor) -> float:
    found: InferenceRecord
    (found,) = measure_inference(network, batch, [len(batch)], seconds=_SECONDS, device=_CPU)
    return found.batch_size / found.inference_samples_per_second


def _theirs(network: nn.Module, batch: torch.Tensor) -> float:
    with torch.inference_mode():
        timer = Timer("network(batch)", globals={"network": network.eval(), "batch": batch}, num_threads=1)
        return float(timer.blocked_autorange(min_run_time=_SECONDS).mean)


def network_rows(rule: StoppingRule) -> Iterator[Row]:
    """Yield a row for each network: the mean of a call by both, in turns."""
    for name, make in NETWORKS.items():
        network, batch = make()
        network(batch)
        sides = {"ours": partial(_ours, network, batch), "other": partial(_theirs, network, batch)}
        found = run_interleaved(sides, stopping_rule=rule)
        what = f"{name}, {_BATCH} samples; other: torch.utils.benchmark"
        row, ratio = ratio_row(what, ours=found["ours"], other=found["other"])
        yield replace(row, budget=f"off by {_OFF}", met=_OFF.verdict(*_distances(ratio)))


def _distances(ratio: Ratio) -> tuple[float, float, float]:
    """How far a ratio is from 1, at least and at most by its interval."""
    ends = [abs(ratio.low - 1), abs(ratio.high - 1)]
    return abs(ratio.value - 1), 0.0 if ratio.low <= 1 <= ratio.high else min(ends), max(ends)


def measure(settings: Settings) -> list[Row]:
    """Return the rows of known delays and of networks."""
    torch.set_num_threads(1)
    return [*known_delay_rows(10.0), *network_rows(settings.stopping_rule)]


if __name__ == "__main__":
    run_benchmark("inference_truth", measure, summary=__doc__, stopping_rule=_RULE)
