"""Contention: which runs shared their host, with other runs or with outside load."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path

import msgspec

from runmanager.records.run.attempts import own_attempts, process_spans, sessions_of
from runmanager.records.run.run_record import Environment
from runmanager.records.storage.reader import StoredRun

OUTSIDE_CPU_SHARE = 0.25
"""Share of the host's CPU time used by others above which a run is contended: beyond a quarter, even a run that leaves
cores idle shares its caches and memory bandwidth."""
STEAL_SHARE = 0.10
"""Share of CPU time that the hypervisor gave to other guests above which a run is contended: stolen time is missing
from every core, so it reduces the throughput by as much as a speedup must exceed (`--drift`)."""
GPU_OTHERS_SHARE = 0.10
"""Share of the readings of the run's GPU that found other processes computing on it above which it is contended: others
that compute for less than a tenth of the run do not change its medians."""

OVERLAP = "another run on the host at the same time"
OUTSIDE_LOAD = "outside load on the host"
GPU_OTHERS = "other processes on its GPU"


class Exposure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When a run's processes were alive (see `process_spans`), the sessions of its turns, and the load on its host."""

    spans: tuple[tuple[str, float, float], ...]
    sessions: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()


def exposure_of(run: StoredRun) -> Exposure:
    """Return the part of a run that contention is determined from; of an adopted run nothing is known."""
    if run.is_adopted:
        return Exposure(())
    sessions = {turn.session for turn in run.turns} | sessions_of(run.record)
    return Exposure(tuple(process_spans(run.record, run.epochs, run.beat)), tuple(sorted(sessions)), _outside_load(run))


def causes_by_run(runs: Sequence[StoredRun]) -> dict[Path, tuple[str, ...] | None]:
    """Return what each of the runs shared its host with, by its folder; see `contention`."""
    causes = contention([exposure_of(run) for run in runs])
    return {run.paths.root: of_run for run, of_run in zip(runs, causes, strict=True)}


def contention(exposures: Sequence[Exposure]) -> list[tuple[str, ...] | None]:
    """Return what each run shared its host with: `()` for nothing, None for a run that never started.

    Runs overlap if their processes were alive on one host at the same time. The time between attempts does not count,
    nor do skipped runs. Runs that took turns with each other do not contend.
    """
    parties = _parties(exposures)
    overlapping = _overlapping((*span, parties[at]) for at, each in enumerate(exposures) for span in each.spans)
    return [
        (*((OVERLAP,) if parties[at] in overlapping else ()), *each.causes) if each.spans else None
        for at, each in enumerate(exposures)
    ]


def _outside_load(run: StoredRun) -> tuple[str, ...]:
    environments = [run.record.environment, *(attempt.environment for attempt in own_attempts(run.record))]
    seen = [share for epoch in run.epochs if epoch.readings and (share := epoch.readings.others_share) is not None]
    shared = sum(seen) > GPU_OTHERS_SHARE * len(seen)
    return (*((OUTSIDE_LOAD,) if any(map(_is_loaded, environments)) else ()), *((GPU_OTHERS,) if shared else ()))


def _is_loaded(environment: Environment) -> bool:
    """Whether the mean load or its 90th percentile is too high: a mean hides load during a part of the attempt."""
    outside = max(environment.outside_cpu_share or 0.0, environment.outside_cpu_share_p90 or 0.0)
    stolen = max(environment.steal_share or 0.0, environment.steal_share_p90 or 0.0)
    return outside > OUTSIDE_CPU_SHARE or stolen > STEAL_SHARE


def _parties(exposures: Sequence[Exposure]) -> list[Hashable]:
    """Return the party of each run: the runs with which it took turns in any of its attempts, or itself alone.

    A run that took turns in two sessions joins the runs of both into one party.
    """
    joined: dict[str, str] = {}

    def party(session: str) -> str:
        while joined.setdefault(session, session) != session:
            session = joined[session]
        return session

    for first, *others in (each.sessions for each in exposures if each.sessions):
        joined |= dict.fromkeys(map(party, others), party(first))
    return [party(each.sessions[0]) if each.sessions else at for at, each in enumerate(exposures)]


def _overlapping(lifetimes: Iterable[tuple[str, float, float, Hashable]]) -> set[Hashable]:
    """Return the parties whose spans (host, start, end, party) overlap another party's on the same host.

    Spans that only touch do not overlap.
    """
    hosts: defaultdict[str, list[tuple[float, float, Hashable]]] = defaultdict(list)
    for host, start, end, party in lifetimes:
        hosts[host].append((start, end, party))
    found: set[Hashable] = set()
    for host_spans in hosts.values():
        host_spans.sort(key=lambda span: span[:2])
        longest_end, longest = -float("inf"), None
        others_end, other = -float("inf"), None  # the latest end of another party
        for start, end, party in host_spans:
            # A party that overlaps a later span is, or overlaps, the one with the latest end.
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
