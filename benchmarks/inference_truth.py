"""Latencies of inference where the truth is known, and beside `torch.utils.benchmark` on three networks.

The mean of a call is compared, as `torch.utils.benchmark` times blocks of calls. Comparisons are of simulated runs: two
equal sides, each run timed with three batch sizes, with noise that it has in common and noise of each size.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils.benchmark import Timer

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import Ratio, StoppingRule, run_interleaved
from benchmarks.rows import Budget, Row, format_seconds, ratio_row
from benchmarks.simulated_runs import simulated_sweep, timed_network
from runmanager.records.run.run_record import InferenceRecord
from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.verdict import DIFFERENT
from runmanager.tracking.inference import measure_inference

Latencies = npt.NDArray[np.float64]
"""Seconds of the calls of a run with one batch size, in order."""
Draw = Callable[[np.random.Generator], Latencies]

_CPU = torch.device("cpu")
_BATCH = 8
_SECONDS = 0.4  # of each measurement of a network
_NUM_CALLS, _PAUSE = 1000, 0.005  # calls of a simulated run with one batch size; the share at which a pause begins
_TRIALS = 400
_SHARE = "{:.1%}".format
_OFF = Budget(0.03, format="{:.0%}".format)
_COST = Budget(1.05, format="{:g} times as many".format)
_RULE = StoppingRule(min_rounds=10, max_rounds=60, max_seconds=60, half_width=0.01)


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


def cost_row(runs: int) -> Row:
    """Return the seconds that a measurement of inference takes beside those that were asked for."""
    network, batch = NETWORKS["a CNN"]()
    network(batch)
    asked, taken, sizes = 0.5, [], [1, 8]
    for _ in range(runs):
        began = time.perf_counter()
        measure_inference(network, batch, sizes, seconds=asked / len(sizes), device=_CPU)
        taken.append(time.perf_counter() - began)
    row, ratio = ratio_row("a measurement with two sizes; other: the seconds asked", ours=taken, other=[asked] * runs)
    return replace(row, budget=str(_COST), met=_COST.verdict(ratio.value, ratio.low, ratio.high))


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


def lognormal(generator: np.random.Generator) -> Latencies:
    """Calls differ by 30%, independently."""
    return generator.lognormal(0.0, 0.3, _NUM_CALLS)


def two_modes(generator: np.random.Generator) -> Latencies:
    """A tenth of the calls takes three times as long."""
    return generator.lognormal(0.0, 0.05, _NUM_CALLS) * np.where(generator.random(_NUM_CALLS) < 0.1, 3.0, 1.0)


def with_pauses(generator: np.random.Generator) -> Latencies:
    """Pauses of the machine, during which calls take ten times as long, span five calls."""
    begins = generator.random(_NUM_CALLS) < _PAUSE
    paused = np.convolve(begins, np.ones(5), mode="full")[:_NUM_CALLS] > 0
    return generator.lognormal(0.0, 0.05, _NUM_CALLS) * np.where(paused, 10.0, 1.0)


LATENCIES = {"lognormal": lognormal, "two modes": two_modes, "pauses that span calls": with_pauses}


def comparison_rows(trials: int) -> Iterator[Row]:
    """Yield rows for each kind of latencies and number of runs: how often intervals cover 1, and false verdicts."""
    for (number, (name, draw)), runs in product(enumerate(LATENCIES.items()), (3, 5)):
        generator, found = np.random.default_rng([number, runs]), []
        sweeps = [simulated_sweep(list(_equal_runs(draw, generator, runs))) for _ in range(trials)]
        for quantile in ("p50", "p99"):
            options = CompareOptions(axis="lr", metric=f"latency_{quantile}_seconds")
            tables = [compare(sweep, None, options).rows for sweep in sweeps]
            intervals = [row.effect.estimate for rows in tables for row in rows if row.effect is not None]
            covered = sum(each.low <= 1 <= each.high for each in intervals) / len(intervals)
            false = sum(any(row["verdict"] in DIFFERENT for row in rows) for rows in tables) / trials
            found.append((covered, false))
        covered_shares, false_shares = zip(*found, strict=True)
        what = f"{name}, {runs} runs"
        yield _share_row(f"{what}: p50 and p99 cover 1", covered_shares, Budget(0.93, is_minimum=True, format=_SHARE))
        yield _share_row(f"{what}: false verdicts", false_shares, Budget(0.06, format=_SHARE))


def _share_row(what: str, shares: Sequence[float], budget: Budget) -> Row:
    """Return a row with the shares of each quantile, of which the worst one has to meet the budget."""
    worst = min(shares) if budget.is_minimum else max(shares)
    return Row(what, ", ".join(map(_SHARE, shares)), budget=str(budget), met=budget.verdict(worst, worst, worst))


def _equal_runs(draw: Draw, generator: np.random.Generator, runs: int) -> Iterator[StoredRun]:
    for seed, lr in product(range(runs), (1, 2)):
        of_run, found = generator.lognormal(0.0, 0.02), []
        for size in (1, 8, 64):
            seconds = of_run * generator.lognormal(0.0, 0.01) * draw(generator)
            p50, p90, p99 = (float(each) for each in np.quantile(seconds, (0.5, 0.9, 0.99)))
            rate = size * len(seconds) / float(seconds.sum())
            found.append(
                InferenceRecord(
                    batch_size=size,
                    latency_p50_seconds=p50,
                    latency_p90_seconds=p90,
                    latency_p99_seconds=p99,
                    inference_samples_per_second=rate,
                )
            )
        yield timed_network({"lr": lr, "seed": seed}, found)


def measure(settings: Settings) -> list[Row]:
    """Return the rows of known delays, of networks, of the cost, and of simulated comparisons."""
    torch.set_num_threads(1)
    measured = [*known_delay_rows(10.0), *network_rows(settings.stopping_rule), cost_row(10)]
    return [*measured, *comparison_rows(_TRIALS)]


if __name__ == "__main__":
    run_benchmark("inference_truth", measure, summary=__doc__, stopping_rule=_RULE)
