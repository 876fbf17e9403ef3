"""The proof of paired measurement: its counts, and how they reach the page."""

import time

import pytest
import torch

from benchmarks.paired_truth import Trial, report
from benchmarks.slowed import slow_down
from runmanager.results.compare.metric import THROUGHPUT
from runmanager.results.compare.verdict import verdict
from runmanager.results.stats.descriptive import Estimate


def trials(*intervals: tuple[float, float] | None, spread: float = 0.004) -> list[Trial]:
    estimates = [None if each is None else Estimate(1.0, *each) for each in intervals]
    words = [
        "not measured" if each is None else verdict(THROUGHPUT, each.interval, tolerance=0.01, margin=0.03)
        for each in estimates
    ]
    return [Trial(estimate, word, 20, 7.0, spread) for estimate, word in zip(estimates, words, strict=True)]


def test_what_covers_and_what_is_found_is_counted() -> None:
    same = trials((0.98, 1.01), (1.02, 1.03), (1.0, 1.0), None)
    apart = trials((0.96, 0.98), spread=0.02)  # counted by itself: no 3% is promised there
    others = {0.03: [*trials((0.96, 0.98), (0.96, 0.995)), *apart], 0.10: trials((0.89, 0.92))}
    text = report(same, others, num_burners=2, command="the command")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert [(row[-3].strip("| "), row[-2]) for row in rows if not row[0].startswith("| ---")] == [
        *(("4", "2"), ("4", "1"), ("4", "1")),
        *(("2", "1"), ("1", "1"), ("1", "1")),
    ]
    assert "`the command`, " in text


def test_a_slowdown_is_that_share_of_each_step_and_of_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert lost[3:] == pytest.approx([0.0003] * 2, rel=0.05)  # others had the machine meanwhile
    optimizer.step()
    began = now[0]
    optimizer.step()
    assert now[0] == began
