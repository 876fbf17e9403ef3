"""What commands on stored runs say where none of them recorded a metric."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runmanager.records.storage.reader import StoredRun

__all__ = ["advice_without_metrics"]


def advice_without_metrics(runs: "Sequence[StoredRun]") -> list[str]:
    """Return how to get a metric where runs finished and none of them has one, as a line; else nothing."""
    from runmanager.results.metrics.metric_lookup import finished_without_metrics

    if not (lacking := finished_without_metrics(runs)):
        return []
    from runmanager.app.programs.metric_advice import metric_advice

    return [line] if (line := metric_advice(lacking[-1].paths)) else []
