"""Counts of the trials of paired measurement, and their table."""

import time

import pytest
import torch

from benchmarks.paired_truth import Trial, report
from benchmarks.slowed_network import slow_down
from runmanager.results.compare.verdict import verdict
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.descriptive import Estimate


def trials(*intervals: tuple[float, float] | None, spread: float = 0.004) -> list[Trial]:
    estimates = [None if each is None else Estimate(1.0, *each) for each in intervals]
    verdicts = [
        "not measured" if each is None else verdict(THROUGHPUT, each.interval, tolerance=0.01, margin=0.03)
        for each in estimates
    ]
    return [
        Trial(estimate, each_verdict, 20, 7.0, spread)
        for estimate, each_verdict in zip(estimates, verdicts, strict=True)
    ]


def test_covering_intervals_and_verdicts_are_counted() -> None:
    same = trials((0.98, 1.01), (1.02, 1.03), (1.0, 1.0), None)
    apart = trials((0.96, 0.98), spread=0.02)  # counted separately: finding 3% is not promised there
    others = {0.03: [*trials((0.96, 0.98), (0.96, 0.995)), *apart], 0.10: trials((0.89, 0.92))}
    text = report(same, others, num_burners=2, command="the command")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert [(row[-3].strip("| "), row[-2]) for row in rows if not row[0].startswith("| ---")] == [
        *(("4", "2"), ("4", "1"), ("4", "1")),
        *(("2", "1"), ("1", "1"), ("1", "1")),
    ]
    assert "`the command`, " in text


def test_slowdown_extends_steps_but_not_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]

    def tick() -> float:
        now[0] += 1e-6
        return now[0]

    monkeypatch.setattr(time, "perf_counter", tick)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    lost = []
    with slow_down(0.03):
        for wait in (0.0, 0.0, 0.0, 500.0, 0.0):
            now[0] += wait + 0.01
            began = now[0]
            optimizer.step()
            lost.append(now[0] - began)
    assert lost[:3] == pytest.approx([0.0003] * 3, rel=0.05)
    assert lost[3:] == pytest.approx([0.0003] * 2, rel=0.05)  # other runs had the machine meanwhile
    optimizer.step()
    began = now[0]
    optimizer.step()
    assert now[0] == began
