"""What a reader must know of two sides, though it forbids nothing: what else differs, and what their runs met."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.resolution import collapsed
from runmanager.results.compare.side import Side, differences, should_agree, unknown_code

__all__ = ["CONTENDED", "Causes", "contended", "remarks"]

CONTENDED = "contended:"

Causes = Mapping[Path, tuple[str, ...] | None]
"""What each run had to share its host with, by its folder."""


def remarks(sides: Sequence[Side]) -> list[str]:
    """What a reader must know, though it forbids nothing."""
    if not all(side.finished for side in sides):
        return []
    partial = [f"{side.label}: {side.state}" for side in sides if len(side.finished) < len(side.cells)]
    dirty = [side.label for side in sides if any(run.record.environment.commit_clean is False for run in side.finished)]
    uncommitted = [f"uncommitted changes: {', '.join(dirty)}"] if dirty else []
    # One side is one device: seeds that landed on two kinds of GPU are no repetitions of each other.
    devices = [
        difference
        for side in sides
        for difference in differences([side], lambda environment: {"device": environment.device_name})
    ]
    named = [*differences(sides, should_agree), *devices]
    lost = [*collapsed(sides), *_deviations(sides), *_unlike_products(sides)]
    return [*lost, *named, *unknown_code(sides), *uncommitted, *partial]


def _unlike_products(sides: Sequence[Side]) -> list[str]:
    """What the products of each side were computed in, where all asked for the same and not all got it.

    PyTorch's own default on GPUs rounds those of convolutions to TF32: in somebody's own loop, and in built-in runs of
    versions that left it so.
    """
    runs = [run for side in sides for run in side.finished]
    if len({run.record.config.get("precision", "fp32") for run in runs}) > 1:
        return []
    found = {
        side.label: sorted({kind for run in side.finished if (kind := run.record.measurements.precision)})
        for side in sides
    }
    if len({kind for kinds in found.values() for kind in kinds}) < 2:
        return []
    said = ", ".join(f"{' and '.join(kinds)} ({label})" for label, kinds in found.items() if kinds)
    return [f"precision of products differs: {said}"]


def _deviations(sides: Sequence[Side]) -> list[str]:
    """What runs of a side did otherwise than their settings ask, which sets the sides apart beside the axis."""
    lines = [f"{side.label}: {line}" for side in sides for run in side.finished for line in run.record.deviations]
    return list(dict.fromkeys(lines))


def contended(sides: Sequence[Side], shared_host: Causes) -> list[str]:
    """Empty, or one sentence that begins with `contended:`: which side shared its host with what."""
    met: dict[str, list[str]] = {}
    for side in sides:
        runs = side.finished or [cell.stored for cell in side.cells if cell.stored is not None]
        for cause in _causes(runs, shared_host):
            met.setdefault(cause, []).append(side.label)
    if not met:
        return []
    return [f"{CONTENDED} " + ", ".join(f"{' and '.join(labels)} met {cause}" for cause, labels in met.items())]


def _causes(runs: list[StoredRun], shared_host: Causes) -> list[str]:
    return list(dict.fromkeys(cause for run in runs for cause in shared_host[run.paths.root] or ()))
