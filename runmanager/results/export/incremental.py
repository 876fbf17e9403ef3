"""What every export to another tool shares: the package that it needs, which run is which, and what was done."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.run.record import PHASES, EpochRecord
from runmanager.records.storage.reader import StoredRun
from runmanager.text import pluralize

__all__ = ["EPOCH_METRICS", "ExportResult", "epoch_metrics", "import_optional", "run_fingerprint", "sync_runs"]

EPOCH_METRICS = (
    *("loss", "accuracy", "val_loss", "val_accuracy", "epoch_seconds", "wall_seconds", "run_seconds"),
    *("samples_per_second", *(f"{phase}_seconds" for phase in PHASES)),
)
"""What is exported of each epoch, by the names of the tables."""


@dataclass(frozen=True)
class ExportResult:
    """What an export did: how many runs it wrote, and how many stood there as they are now."""

    where: str
    num_written: int
    num_kept: int = 0

    def in_words(self) -> str:
        kept = f", {pluralize(self.num_kept, 'was there already', 'were there already')}" if self.num_kept else ""
        return f"{pluralize(self.num_written, 'run')} written to {self.where}{kept}."


def import_optional(name: str, *, extra: str) -> ModuleType:
    """The package that an export needs. Raises `UsageError`, with the way to install it, where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(
            f"`--to {extra}` must find the package {name}, got none; pip install 'torch-runmanager[{extra}]'."
        ) from None


def run_fingerprint(run: StoredRun) -> str:
    """What changes whenever a run's results do: an export of the same mark is the same."""
    record = run.record
    # Its times tell a run from one that was begun anew in a folder of the same name, whose numbers are other ones.
    lived = f"{record.started_at} {record.resumed_at} {record.ended_at}"
    said = f" deviations={len(record.deviations)}" if record.deviations else ""
    state = f"attempt={record.attempt} status={record.status.value} epochs={len(run.epochs)}"
    return f"{record.signature} {state}{said} {lived}"


def epoch_metrics(epoch: EpochRecord) -> dict[str, float]:
    """The metrics of an epoch that it has."""
    values: Mapping[str, Any] = {name: getattr(epoch, name) for name in EPOCH_METRICS}
    return {name: value for name, value in values.items() if value is not None}


def sync_runs(
    runs: Mapping[str, StoredRun],
    known: Mapping[str, str],
    *,
    remove: Callable[[str], None],
    write: Callable[[StoredRun], None],
) -> tuple[int, int]:
    """Bring another tool's store up to date; how many runs were written, and how many kept.

    `runs` are ours by signature, `known` the marks of those that it has. What has changed is removed, then written.
    """
    written = 0
    for signature, run in runs.items():
        if known.get(signature) == run_fingerprint(run):
            continue
        if signature in known:
            remove(signature)
        write(run)
        written += 1
    return written, len(runs) - written
