"""Which runs did not have their host to themselves."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import msgspec

from runmanager.records.run.attempts import process_spans, sessions_of
from runmanager.records.run.record import Environment
from runmanager.records.storage.reader import StoredRun

__all__ = [
    "GPU_OTHERS_SHARE",
    "OUTSIDE_CPU_SHARE",
    "OVERLAP",
    "STEAL_SHARE",
    "Exposure",
    "contention",
    "exposure_of",
]

OUTSIDE_CPU_SHARE = 0.25
"""Share of the host's CPU time used by others, above which a run counts as contended: beyond a quarter even a run that
leaves cores idle meets others on its caches and memory."""
STEAL_SHARE = 0.10
"""Share of CPU time that the hypervisor gave to other guests, above which a run counts as contended: what is stolen is
missing from every core, so it takes as much from the throughput as a speedup must show (`--drift`)."""
GPU_OTHERS_SHARE = 0.10
"""Share of the looks at the run's GPU that found other processes computing on it, above which it counts as contended:
others that come for less than a tenth of the run leave its medians alone."""

OVERLAP = "another run on the host at the same time"
OUTSIDE_LOAD = "outside load on the host"
GPU_OTHERS = "other processes on its GPU"


class Exposure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When a run's processes lived (see `process_spans`), the sessions in which it took turns, and what load it met."""

    spans: tuple[tuple[str, float, float], ...]
    sessions: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()


def exposure_of(run: StoredRun) -> Exposure:
    """What of a run says whom it met."""
    sessions = {turn.session for turn in run.turns} | sessions_of(run.record)
    return Exposure(tuple(process_spans(run.record, run.epochs, run.beat)), tuple(sorted(sessions)), _outside_load(run))


def contention(exposures: Sequence[Exposure]) -> list[tuple[str, ...] | None]:
    """What each run had to share its host with: nothing seen is `()`, None where it never started.

    Runs overlap whose processes lived at one time on one host. Between its attempts a run did not run, and a skipped
    one ran at no time. Those that took turns did not meet each other.
    """
    parties = _parties(exposures)
    overlapping = _overlapping((*span, parties[at]) for at, each in enumerate(exposures) for span in each.spans)
    return [
        (*((OVERLAP,) if parties[at] in overlapping else ()), *each.causes) if each.spans else None
        for at, each in enumerate(exposures)
    ]


def _outside_load(run: StoredRun) -> tuple[str, ...]:
    environments = [run.record.environment, *(attempt.environment for attempt in run.record.earlier)]
    shared = (run.record.measurements.gpu_others_share or 0.0) > GPU_OTHERS_SHARE
    return (*((OUTSIDE_LOAD,) if any(map(_is_loaded, environments)) else ()), *((GPU_OTHERS,) if shared else ()))


def _is_loaded(environment: Environment) -> bool:
    """By the means over an attempt, and by what was met in a tenth of it: a mean hides who came for a part only."""
    outside = max(environment.outside_cpu_share or 0.0, environment.outside_cpu_share_p90 or 0.0)
    stolen = max(environment.steal_share or 0.0, environment.steal_share_p90 or 0.0)
    return outside > OUTSIDE_CPU_SHARE or stolen > STEAL_SHARE


def _parties(exposures: Sequence[Exposure]) -> list[Hashable]:
    """Whom each run belongs to: those with which it took turns, in whichever of its attempts, or itself alone.

    A run that took turns twice makes one party of those that it met the first time and the second.
    """
    joined: dict[str, str] = {}

    def party(session: str) -> str:
        while joined.setdefault(session, session) != session:
            session = joined[session]
        return session

    for first, *others in (each.sessions for each in exposures if each.sessions):
        joined |= dict.fromkeys(map(party, others), party(first))
    return [party(each.sessions[0]) if each.sessions else at for at, each in enumerate(exposures)]


def _overlapping(lived: Iterable[tuple[str, float, float, Hashable]]) -> set[Hashable]:
    """The parties of those spans of time (host, from, to, party) that overlap another party's on their host.

    A common end and start is no overlap.
    """
    hosts: defaultdict[str, list[tuple[float, float, Hashable]]] = defaultdict(list)
    for host, start, end, party in lived:
        hosts[host].append((start, end, party))
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
