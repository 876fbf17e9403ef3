"""One-line descriptions of runs."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.text import Text

from runmanager.records.run.run_record import EpochRecord, RunRecord, counted_word
from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.reader import StoredRun
from runmanager.results.load.run_summary import last_metrics
from runmanager.results.table_model.formatting import human
from runmanager.text import printable_line
from runmanager.validation import did_you_mean

_MAX_LOGGED = 3  # logged metrics in a line
_MAX_NAMED = 8
_ERROR_LINES = 20
_ERROR_WIDTH = 1000  # characters of such a line: an error may quote its data

_SYMBOLS = {"finished": ("✓", "green"), "skipped": ("-", "yellow"), "running": (">", "cyan")}


def run_line(record: RunRecord, epochs: Sequence[EpochRecord], *, counted: str, metric: str | None = None) -> Text:
    """Return the state of a run in one line; `counted` is its number, as in 2/8. A requested `metric` comes first."""
    symbol, style = _SYMBOLS.get(record.status, ("✗", "red"))
    summary = printable_line(_summary(record, epochs, metric))
    return Text.assemble((symbol, style), f" {counted}  {run_label(record.name)}  {summary}")


def run_label(name: str) -> str:
    """Return a run's name without the digits of its signature, if it has any."""
    return printable_line(name.rpartition("-")[0] or name)


def logged_results(record: RunRecord, epochs: Sequence[EpochRecord]) -> dict[str, float | None]:
    """Return the metrics that the program logged or printed: of the whole run, else the last value of an epoch."""
    return last_metrics(epochs) | (record.summary or {})


def run_rate(record: RunRecord, epochs: Sequence[EpochRecord]) -> float | None:
    """Return the samples per second of the last epoch; of a run that has ended the median, as tables have it."""
    if not record.status.is_ended:
        return epochs[-1].samples_per_second if epochs else None
    rates = [rate for epoch in epochs if not epoch.warmup and (rate := epoch.samples_per_second) is not None]
    return median(rates) if rates else None


def run_seconds(record: RunRecord) -> float | None:
    """Return the seconds of a run; None if it took turns, whose record has those of the last of its processes alone."""
    return record.run_seconds if record.session is None else None


def _metrics(record: RunRecord, epochs: Sequence[EpochRecord]) -> str:
    epoch, rate = epochs[-1], run_rate(record, epochs)
    values: Mapping[str, Any] = {"loss": epoch.loss, "acc": epoch.accuracy, "val_acc": epoch.val_accuracy}
    parts = [f"{name} {value:.3f}" for name, value in values.items() if value is not None]
    if rate is not None:
        parts.append(f"{rate:,.0f}/s")
    return " ".join(parts)


def _summary(record: RunRecord, epochs: Sequence[EpochRecord], metric: str | None) -> str:
    parts = [str(record.status) + (f" ({record.reason})" if record.reason else "")]
    if epochs and epochs[-1].epoch > 0:
        parts.append(_metrics(record, epochs))
    logged = sorted(logged_results(record, epochs).items(), key=lambda each: each[0] != metric)
    parts += [f"{name} {human(value, 'loss')}" for name, value in logged[:_MAX_LOGGED]]
    parts += [
        f"batch of {each.batch_size}: {human(each.latency_p50_seconds, 'latency_p50_seconds')}"
        for each in record.measurements.inference or ()
    ]
    if record.config.get("device") == "auto" and record.environment.device_name:
        parts.append(f"on {record.environment.device_name}")
    if (seconds := run_seconds(record)) is not None and record.status is Status.FINISHED:
        parts.append(f"{seconds:.1f} s")
    if record.message and record.reason is not Reason.DEVICE_UNAVAILABLE:  # the reason says it all
        parts.append(record.message)
    return "  ".join(parts)


def end_reason(record: RunRecord, *, with_reason: bool = True) -> str:
    """Return the reason and message of a run's end, the reason only with `with_reason`; empty if it just finished."""
    parts = (str(record.reason) if record.reason is not None and with_reason else None, record.message)
    return printable_line(": ".join(part for part in parts if part))


def error_excerpt(text: str) -> list[str]:
    """Return the last lines of an error, long ones shortened."""
    lines = text.splitlines()
    last = [f"{line[:_ERROR_WIDTH]}{'…' if len(line) > _ERROR_WIDTH else ''}" for line in lines[-_ERROR_LINES:]]
    return last if len(lines) <= _ERROR_LINES else ["…", *last]


def progress_text(record: RunRecord, epochs: Sequence[EpochRecord]) -> str:
    """Return how far a run is: `epoch 3/10`, or `step 1200` where the number of epochs or steps is not known."""
    planned = planned_epochs(record)
    return f"{counted_word(record)} {epochs[-1].epoch if epochs else 0}{f'/{planned}' if planned else ''}"


def planned_epochs(record: RunRecord) -> int:
    """Return the planned number of epochs, 0 if unknown, or if the run has none."""
    if record.interval == "steps":
        return 0
    if record.epochs_planned is not None:
        return record.epochs_planned
    if record.cell_command:
        return 0  # another program's `epochs` may mean anything
    epochs = record.config.get("epochs")
    return epochs if isinstance(epochs, int) else 0


def missing_metric(name: str, run: StoredRun) -> str:
    """Return a sentence that says that a finished run lacks the metric, and what it has; empty if it has it."""
    if has_metric(name, run):
        return ""
    has = f"it {has_instead(name, [run], verb='has')}" if _recorded(run) else "it logged and printed none."
    return f"{run_label(run.name)} has finished without the metric {name}, by which cells are ranked: {has}"


def has_instead(name: str, runs: Sequence[StoredRun], *, verb: str) -> str:
    """Return the end of a sentence on runs without the metric `name`: those that they have, and which may be meant."""
    names = list(dict.fromkeys(each for run in runs for each in _recorded(run)))
    shown = ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")
    hint = did_you_mean(name, names, max_names=1)
    return f"{verb} {shown or 'none'}{f'; {hint}' if hint else '.'}"


def is_without_metrics(run: StoredRun) -> bool:
    """Whether a run recorded no metric at all."""
    from runmanager.results.metrics.metric_lookup import has_metrics  # late: needed once, when a first run has ended

    return not has_metrics([run])


def has_metric(name: str, run: StoredRun) -> bool:
    """Whether a run recorded the metric, be it only as not finite, or is measured by it as by a time."""
    from runmanager.results.metrics.metric_lookup import requested_metric  # late: only where one is requested

    metric = requested_metric(name, [run])
    return name in _recorded(run) or (metric is not None and bool(metric.values(run)))


def _recorded(run: StoredRun) -> list[str]:
    from runmanager.results.metrics.metric_lookup import recorded_names

    return list(dict.fromkeys([*recorded_names([run]), *(run.record.summary or {})]))
