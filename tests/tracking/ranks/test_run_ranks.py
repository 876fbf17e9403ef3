"""The ranks of a run, as threads that share a store: what they add up, and what becomes of one that is gone."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch.distributed as dist

from runmanager.errors import RankError, UsageError
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.tracking.epoch_metrics.epoch_totals import EpochTotals, MeterTotals
from runmanager.tracking.ranks.run_ranks import Beginning, RankStore, RunRanks

STOP = Outcome(Status.FINISHED, Reason.EARLY_STOPPED, "enough")
NOTHING: tuple[dict[str, str], dict[str, int]] = ({}, {})


def ranks_of(size: int, timeout: float = 60.0) -> list[RunRanks]:
    store = dist.HashStore()
    return [RunRanks(rank, size, number=1, timeout=timeout, find_store=lambda: store) for rank in range(size)]


def together(ranks: Sequence[RunRanks], act: Callable[[RunRanks], Any]) -> list[Any]:
    """Let each rank act in a thread of its own; return the results, an exception in place of one that raised."""

    def of(rank: RunRanks) -> Any:
        try:
            return act(rank)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(of, ranks))


def totals(samples: int, loss: float, seconds: float, **values: float) -> EpochTotals:
    meter = MeterTotals(samples, loss * samples, samples, correct=samples // 2, counted=samples)
    return EpochTotals(
        meter, MeterTotals(), {"data": 0.0, "training": seconds}, True, dict(values), {"tokens": samples}
    )


def test_all_samples_count_over_the_time_of_the_slowest_rank() -> None:
    ranks = ranks_of(2)
    notes: list[str] = []
    for rank in ranks:
        rank.attach(note=notes.append, memory=lambda rank=rank: 100 + rank.rank)  # type: ignore[misc]
    ranks[1].request(STOP)
    parts = [
        totals(30, 1.0, 2.0, f1=0.5, total=1.0, worst=3.0, only_first=7.0),
        totals(10, 2.0, 3.0, f1=0.7, total=2.0, worst=9.0),
    ]
    reductions = {"total": "sum", "worst": "max"}

    def act(rank: RunRanks) -> EpochTotals:
        rank.begin()
        shared = rank.share(1, parts[rank.rank], reductions, {})
        rank.recorded()
        return shared

    first, second = together(ranks, act)
    assert first == second, "all ranks decide by the same numbers"
    assert (first.train.samples, first.train.loss, first.train.accuracy) == (40, 1.25, 0.5)
    assert first.seconds == {"data": 0.0, "training": 3.0} and first.units == {"tokens": 40}
    assert first.values == {"f1": pytest.approx(0.55), "total": 3.0, "worst": 9.0, "only_first": 7.0}
    assert [rank.stop for rank in ranks] == [STOP, STOP] and ranks[0].largest_memory == 101 and not notes

    # An infinite or unknown loss in one rank is that of all.
    broken = [totals(4, 1.0, 1.0), totals(4, math.nan, 1.0)]
    first, second = together(ranks, lambda rank: rank.share(2, broken[rank.rank], *NOTHING))
    assert math.isnan(first.train.loss) and math.isnan(second.train.loss)
    assert [rank.stop for rank in ranks] == [None, None]


def test_a_rank_that_ends_its_run_is_not_waited_for() -> None:
    ranks = ranks_of(2)
    notes: list[str] = []
    ranks[0].attach(note=notes.append, memory=lambda: None)
    together(ranks, lambda rank: rank.begin())
    ranks[1].leave(None)
    assert ranks[0].share(1, totals(6, 1.0, 1.0), *NOTHING).train.samples == 6
    assert notes == ["rank 1 ended its run before epoch 1: what follows is without it"]
    ranks[0].leave(None)

    failing = ranks_of(2)
    together(failing, lambda rank: rank.begin())
    failing[1].leave(ValueError("bad batch"))
    own = Outcome(Status.FAILED, Reason.EXCEPTION, "RuntimeError: reset by peer")
    told = failing[0].outcome(RuntimeError("reset by peer"), own)
    assert told.status is Status.FAILED and told.message.endswith("failed before: ValueError: bad batch")
    with pytest.raises(RankError, match=r"rank 1 \(process \d+\) failed: ValueError: bad batch"):
        failing[0].share(1, totals(6, 1.0, 1.0), *NOTHING)

    led = ranks_of(2)
    together(led, lambda rank: rank.begin())
    led[0].leave(OSError("disk full"))
    with pytest.raises(RankError, match="rank 0 failed: OSError: disk full"):
        led[1].share(1, totals(6, 1.0, 1.0), *NOTHING)


def test_a_refused_or_kept_run_of_rank_0_is_told_to_all() -> None:
    refused, kept = ranks_of(2), ranks_of(2)
    refused[0].begin(error="UsageError: no")
    with pytest.raises(UsageError, match="refused in rank 0: UsageError: no"):
        refused[1].begin()
    kept[0].begin(trains=False, folder="sweep/runs/a")
    told = kept[1].begin()
    assert (told.trains, told.folder) == (False, "sweep/runs/a")


def test_a_rank_whose_process_is_gone_or_silent_is_told() -> None:
    gone = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = ProcessIdentity.of(gone.pid)
    gone.communicate(b"\n")
    assert identity is not None
    store = dist.HashStore()
    first = RunRanks(0, 2, number=1, timeout=60.0, find_store=lambda: store)
    first.begin()
    RankStore(store, "runmanager/1/", rank=1, timeout=1.0).begin(Beginning(identity))
    with pytest.raises(RankError, match=rf"rank 1 \(process {gone.pid}\) ended before it ended epoch 3") as caught:
        first.share(3, totals(6, 1.0, 1.0), *NOTHING)
    own = Outcome(Status.FAILED, Reason.EXCEPTION, "RankError: …")
    told = first.outcome(caught.value, own)
    assert (told.status, told.reason) == (Status.CRASHED, Reason.VANISHED) and f"process {gone.pid}" in told.message
    assert first.outcome(ValueError("of its own"), own) is own

    silent = ranks_of(2, timeout=0.3)
    together(silent, lambda rank: rank.begin())
    with pytest.raises(RankError, match=r"rank 1 \(process \d+\) was not seen for 0.3 s before it ended epoch 1"):
        silent[0].share(1, totals(6, 1.0, 1.0), *NOTHING)

    # A program may start the run in rank 0 alone; without a process group there is none to ask.
    notes: list[str] = []
    alone = ranks_of(3, timeout=0.1)[0]
    alone.attach(note=notes.append, memory=lambda: None)
    alone.begin()
    assert alone.share(1, totals(6, 1.0, 1.0), *NOTHING).train.samples == 6
    assert notes == ["of 3 ranks, 1, 2 started no run: samples and metrics are without theirs"]
    unconnected = RunRanks(0, 2, number=1, timeout=1.0, find_store=lambda: None)
    assert unconnected.share(1, totals(6, 1.0, 1.0), *NOTHING).train.samples == 6 and not unconnected.has_shared
