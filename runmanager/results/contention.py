"""Which runs did not have their host to themselves."""

import datetime
from collections import defaultdict
from collections.abc import Hashable, Sequence

from runmanager.records.states import Status
from runmanager.records.store import StoredRun

__all__ = ["OUTSIDE_CPU_SHARE", "OVERLAP", "STEAL_SHARE", "contention"]

OUTSIDE_CPU_SHARE = 0.25
"""Share of the host's CPU time used by others, above which a run counts as contended: beyond a quarter even a run that
leaves cores idle meets others on its caches and memory."""
STEAL_SHARE = 0.10
"""Share of CPU time that the hypervisor gave to other guests, above which a run counts as contended: what is stolen is
missing from every core, so it takes as much from the throughput as a speedup must show (`compare.drift`)."""

OVERLAP = "another run on the host at the same time"
OUTSIDE_LOAD = "outside load on the host"


def contention(runs: Sequence[StoredRun]) -> list[tuple[str, ...] | None]:
    """What each run had to share its host with: nothing seen is `()`, None where it never started.

    Runs overlap that ran at one time on one host; a skipped run ran at no time. Those that took turns did not meet each
    other.
    """
    spans = [_span(run) for run in runs]
    parties = [run.record.session or at for at, run in enumerate(runs)]
    hosts = [run.record.environment.host for run in runs]
    overlapping = _overlapping(list(zip(hosts, spans, parties, strict=True)))
    return [
        None if span is None else (*((OVERLAP,) if parties[at] in overlapping else ()), *_outside_load(run))
        for at, (run, span) in enumerate(zip(runs, spans, strict=True))
    ]


def _outside_load(run: StoredRun) -> tuple[str, ...]:
    environment = run.record.environment
    loaded = (environment.outside_cpu_share or 0.0) > OUTSIDE_CPU_SHARE
    return (OUTSIDE_LOAD,) if loaded or (environment.steal_share or 0.0) > STEAL_SHARE else ()


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


def _overlapping(spans: Sequence[tuple[str, tuple[float, float] | None, Hashable]]) -> set[Hashable]:
    """The parties with spans that overlap one of another party on their host; a common end and start is no overlap."""
    hosts: defaultdict[str, list[tuple[float, float, Hashable]]] = defaultdict(list)
    for host, span, party in spans:
        if span is not None:
            hosts[host].append((*span, party))
    found: set[Hashable] = set()
    for host_spans in hosts.values():
        host_spans.sort(key=lambda span: span[:2])
        longest_end, longest = -float("inf"), None
        others_end, other = -float("inf"), None  # of those of another party, the one that reaches furthest
        for start, end, party in host_spans:
            # Whoever overlaps a later span has already met the one that reaches furthest, if it is not that itself.
            if party != longest and start < longest_end:
                found |= {party, longest}
            elif party == longest and start < others_end:
                found |= {party, other}
            if end > longest_end:
                if party != longest:
                    others_end, other = longest_end, longest
                longest_end, longest = end, party
            elif party != longest and end > others_end:
                others_end, other = end, party
    return found
