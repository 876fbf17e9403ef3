"""Whether a run has the metric that was requested, and the note on one that lacks it."""

from runmanager.app.display.run_line import run_label
from runmanager.records.storage.reader import StoredRun
from runmanager.validation import did_you_mean

__all__ = ["has_metric", "missing_metric"]

_MAX_NAMED = 8


def missing_metric(name: str, run: StoredRun) -> str:
    """Return a sentence that says that a finished run lacks the metric, and what it has; empty if it has it."""
    if has_metric(name, run):
        return ""
    names = _recorded(run)
    shown = ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")
    hint = did_you_mean(name, names, max_names=1)
    has = f"it has {shown}{f'; {hint}' if hint else '.'}" if names else "it logged and printed none."
    return f"{run_label(run.paths)} has finished without the metric {name}, by which cells are ranked: {has}"


def has_metric(name: str, run: StoredRun) -> bool:
    """Whether a run recorded the metric, be it only as not finite, or is measured by it as by a time."""
    from runmanager.results.metrics.metric_lookup import requested_metric  # late: needed only where one is requested

    metric = requested_metric(name, [run])
    return name in _recorded(run) or (metric is not None and bool(metric.values(run)))


def _recorded(run: StoredRun) -> list[str]:
    from runmanager.results.metrics.metric_lookup import recorded_names

    return list(dict.fromkeys([*recorded_names([run]), *(run.record.summary or {})]))
