"""Latencies of inference where the truth is known, and beside `torch.utils.benchmark` on three networks.

`python -m benchmarks.inference_truth --write` takes a minute and writes its table to docs/measurement_evidence.md.
"""

import argparse
import datetime
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.utils.benchmark import Timer

from benchmarks.interleaving import StoppingRule, run_interleaved
from benchmarks.page import MEASUREMENT, describe_machine, section, write_section
from benchmarks.rows import Budget, Row, format_seconds, ratio_row
from runmanager.records.run.run_record import InferenceRecord
from runmanager.tracking.inference import measure_inference

_CPU = torch.device("cpu")
_BATCH = 8
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


def _ours(network: nn.Module, batch: torch.Tensor, seconds: float) -> float:
    found: InferenceRecord
    (found,) = measure_inference(network, batch, [len(batch)], seconds=seconds, device=_CPU)
    return found.latency_p50_seconds


def _theirs(network: nn.Module, batch: torch.Tensor, seconds: float) -> float:
    with torch.inference_mode():
        timer = Timer("network(batch)", globals={"network": network.eval(), "batch": batch}, num_threads=1)
        return float(timer.blocked_autorange(min_run_time=seconds).median)


def network_rows(seconds: float) -> Iterator[Row]:
    """Yield a row for each network: the median of a call by both, in turns."""
    for name, make in NETWORKS.items():
        network, batch = make()
        network(batch)
        sides = {
            "ours": partial(_ours, network, batch, seconds),
            "other": partial(_theirs, network, batch, seconds),
        }
        found = run_interleaved(sides, stopping_rule=_RULE)
        budget = Budget(1.03, format="{:g} times".format)
        yield ratio_row(
            f"{name}, {_BATCH} samples; other: torch.utils.benchmark",
            ours=found["ours"],
            other=found["other"],
            budget=budget,
        )[0]


def main() -> None:
    """Measure, and print the rows or write them to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each measurement of a network")
    parser.add_argument("--write", action="store_true", help="write the table to docs/measurement_evidence.md")
    given = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    rows = [*known_delay_rows(25 * given.seconds), *network_rows(given.seconds)]
    text = section(
        rows,
        machine=describe_machine(),
        command=f"python -m benchmarks.inference_truth --seconds {given.seconds:g}",
        day=datetime.date.today(),
        seconds=time.monotonic() - began,
    )
    if given.write:
        write_section(MEASUREMENT, "inference_truth", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
