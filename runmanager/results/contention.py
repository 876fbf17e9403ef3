"""Which runs did not have their host to themselves."""

import datetime
from collections import defaultdict
from collections.abc import Sequence

from runmanager.records.states import Status
from runmanager.records.store import StoredRun

__all__ = ["GPU_OTHERS_SHARE", "OUTSIDE_CPU_SHARE", "OVERLAP", "STEAL_SHARE", "contention"]

OUTSIDE_CPU_SHARE = 0.25
"""Share of the host's CPU time used by others, above which a run counts as contended: beyond a quarter even a run that
leaves cores idle meets others on its caches and memory."""
STEAL_SHARE = 0.10
"""Share of CPU time that the hypervisor gave to other guests, above which a run counts as contended: what is stolen is
missing from every core, so it takes as much from the throughput as a speedup must show (`compare.drift`)."""
GPU_OTHERS_SHARE = 0.10
"""Share of the looks at the run's GPU that found other processes computing on it, above which it counts as contended:
others that come for less than a tenth of the run leave its medians alone."""

OVERLAP = "another run on the host at the same time"
OUTSIDE_LOAD = "outside load on the host"
GPU_OTHERS = "other processes on its GPU"


def contention(runs: Sequence[StoredRun]) -> list[tuple[str, ...] | None]:
    """What each run had to share its host with: nothing seen is `()`, None where it never started.

    Runs overlap that ran at one time on one host; a skipped run ran at no time.
    """
    spans = [_span(run) for run in runs]
    overlapping = _overlapping([(run.record.environment.host, span) for run, span in zip(runs, spans, strict=True)])
    return [
        None if span is None else (*((OVERLAP,) if at in overlapping else ()), *_outside_load(run))
        for at, (run, span) in enumerate(zip(runs, spans, strict=True))
    ]


def _outside_load(run: StoredRun) -> tuple[str, ...]:
    """By the means over the run, and by what was met in a tenth of it: a mean hides who came for a part only."""
    environment = run.record.environment
    loaded = max(environment.outside_cpu_share or 0.0, environment.outside_cpu_share_p90 or 0.0) > OUTSIDE_CPU_SHARE
    stolen = max(environment.steal_share or 0.0, environment.steal_share_p90 or 0.0) > STEAL_SHARE
    shared = (run.record.measurements.gpu_others_share or 0.0) > GPU_OTHERS_SHARE
    return (*((OUTSIDE_LOAD,) if loaded or stolen else ()), *((GPU_OTHERS,) if shared else ()))


def _span(run: StoredRun) -> tuple[float, float] | None:
    """When the run began and ended, in seconds since 1970; one that still runs has no end."""
    record = run.record
    if record.started_at is None or record.status is Status.SKIPPED:
        return None
    start = _seconds(record.started_at)
    if record.ended_at is not None:
        return start, _seconds(record.ended_at)
    if not record.status.is_ended:
        return start, float("inf")
    # Nobody saw the end of a run that vanished: it lived until its last epoch at least.
    return start, start + max((epoch.run_seconds or 0.0 for epoch in run.epochs), default=0.0)


def _seconds(time_of_day: str) -> float:
    time = datetime.datetime.fromisoformat(time_of_day)
    return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()


def _overlapping(spans: Sequence[tuple[str, tuple[float, float] | None]]) -> set[int]:
    """The indices of those spans that overlap another one of their host; a common end and start is no overlap."""
    hosts: defaultdict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for at, (host, span) in enumerate(spans):
        if span is not None:
            hosts[host].append((*span, at))
    found: set[int] = set()
    for host_spans in hosts.values():
        host_spans.sort()
        longest_end, longest = -float("inf"), -1
        for start, end, at in host_spans:
            # Whoever overlaps a later span has already met the one that reaches furthest, if it is not that itself.
            if start < longest_end:
                found |= {at, longest}
            if end > longest_end:
                longest_end, longest = end, at
    return found
