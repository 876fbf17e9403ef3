"""Which runs did not have their host to themselves."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from runmanager.records.attempts import spans
from runmanager.records.run import Environment
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

    Runs overlap whose processes lived at one time on one host. Between its attempts a run did not run, and a skipped
    one ran at no time.
    """
    lived = [spans(run.record, run.epochs, run.beat) for run in runs]
    overlapping = _overlapping([(*span, at) for at, of_run in enumerate(lived) for span in of_run])
    return [
        (*((OVERLAP,) if at in overlapping else ()), *_outside_load(run)) if lived[at] else None
        for at, run in enumerate(runs)
    ]


def _outside_load(run: StoredRun) -> tuple[str, ...]:
    environments = [run.record.environment, *(attempt.environment for attempt in run.record.earlier)]
    return (OUTSIDE_LOAD,) if any(map(_is_loaded, environments)) else ()


def _is_loaded(environment: Environment) -> bool:
    outside, stolen = environment.outside_cpu_share or 0.0, environment.steal_share or 0.0
    return outside > OUTSIDE_CPU_SHARE or stolen > STEAL_SHARE


def _overlapping(lived: Iterable[tuple[str, float, float, int]]) -> set[int]:
    """The runs of those spans of time (host, from, to, run) that overlap another run's on their host.

    A common end and start is no overlap.
    """
    hosts: defaultdict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for host, start, end, run in lived:
        hosts[host].append((start, end, run))
    found: set[int] = set()
    for host_spans in hosts.values():
        host_spans.sort()
        longest_end, longest = -float("inf"), -1
        for start, end, at in host_spans:
            # Whoever overlaps a later span has already met the one that reaches furthest, if it is not that itself.
            if start < longest_end and at != longest:
                found |= {at, longest}
            if end > longest_end:
                longest_end, longest = end, at
    return found
