"""Export to MLflow (`export --to mlflow`): a sweep as an experiment with the same runs."""

import datetime
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any

from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.values import flatten
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.results.export.incremental import (
    ExportResult,
    epoch_metrics,
    exported_names,
    import_optional,
    run_fingerprint,
    summary_values,
    sync_runs,
)

__all__ = ["DEFAULT_URI", "export_to_mlflow", "metric_name"]

DEFAULT_URI = "sqlite:///mlflow.db"
"""A database in the current folder, MLflow's own default."""

_FINGERPRINT_TAG = "runmanager.mark"
_SIGNATURE_TAG = "runmanager.signature"
_STATUSES = {Status.FINISHED: "FINISHED", Status.FAILED: "FAILED", Status.CRASHED: "FAILED", Status.RUNNING: "RUNNING"}
_MAX_METRICS = 1000  # per call of MLflow's API
_MAX_PARAMS = 100
_MAX_METRIC_NAME_LENGTH = 250
_MAX_PARAM_LENGTH = 500  # characters accepted by every store of MLflow
_MAX_TAG_LENGTH = 5000
_PAGE_SIZE = 1000


def export_to_mlflow(sweep: SweepContents, *, uri: str = DEFAULT_URI) -> ExportResult:
    """Write the runs into the experiment with the sweep's name in the store `uri`.

    Settings become params, epochs with their logged metrics and the run's summary metrics, and status, commit, folder
    and deviations tags; deviations and notes are the run's description. MLflow shows the last finite value of each
    metric as that of the run; a character that it does not accept in a name becomes `_`. Unchanged runs are kept,
    changed ones replaced. MLflow has no statuses for skipped and crashed runs: they become KILLED and FAILED, and the
    tag `runmanager.status` has the original status.

    Raises `UsageError` if MLflow is not installed.
    """
    import_optional("mlflow", extra="mlflow")
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    existing = client.get_experiment_by_name(sweep.paths.name)
    experiment = client.create_experiment(sweep.paths.name) if existing is None else existing.experiment_id
    exported = {run.data.tags.get(_SIGNATURE_TAG): run for run in _runs(client, experiment)}
    written, kept = sync_runs(
        {run.record.signature: run for run in sweep.runs},
        {signature: run.data.tags.get(_FINGERPRINT_TAG, "") for signature, run in exported.items() if signature},
        remove=lambda signature: client.delete_run(exported[signature].info.run_id),
        write=lambda run: _write(client, experiment, run),
    )
    return ExportResult(f"the experiment {sweep.paths.name} of {uri}", written, kept)


def _runs(client: Any, experiment: str) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_runs([experiment], max_results=_PAGE_SIZE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _write(client: Any, experiment: str, run: StoredRun) -> None:
    from mlflow.entities import Metric, Param, RunTag

    record = run.record
    start = _milliseconds(record.started_at)
    run_id = client.create_run(experiment, start_time=start, run_name=record.name).info.run_id
    names = exported_names(run)
    metrics = [
        Metric(metric_name(name), value, start + round(1000 * (epoch.run_seconds or 0.0)), epoch.epoch)
        for epoch in run.epochs
        for name, value in epoch_metrics(epoch, names).items()
    ]
    last, end = run.epochs[-1].epoch if run.epochs else 0, _milliseconds(record.ended_at or record.started_at)
    facts = {"num_parameters": record.num_parameters, "peak_memory_bytes": record.peak_memory_bytes}
    run_metrics: dict[str, float | None] = {**facts}
    run_metrics |= {metric_name(name): value for name, value in summary_values(run, names).items()}
    metrics += [Metric(name, value, end, last) for name, value in run_metrics.items() if value is not None]
    params = [Param(name, str(value)[:_MAX_PARAM_LENGTH]) for name, value in flatten(record.config).items()]
    for batch in _batches(params, _MAX_PARAMS):
        client.log_batch(run_id, params=batch)
    for batch in _batches(metrics, _MAX_METRICS):
        client.log_batch(run_id, metrics=batch)
    # The tags with the fingerprint come last, so that a partly written run is replaced by the next export.
    client.log_batch(run_id, tags=[RunTag(name, value) for name, value in _tags(run).items()])
    if record.status is not Status.RUNNING:
        client.set_terminated(run_id, status=_STATUSES.get(record.status, "KILLED"), end_time=end)


def metric_name(name: str) -> str:
    """The name of a metric as every store of MLflow accepts it."""
    text = re.sub(r"[^\w\-. /]", "_", name)[:_MAX_METRIC_NAME_LENGTH] or "_"
    return text if posixpath.normpath(text) == text and text[0] not in "/." else re.sub(r"[/.]", "_", text)


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _tags(run: StoredRun) -> dict[str, str]:
    record: RunRecord = run.record
    tags = {
        _SIGNATURE_TAG: record.signature,
        "runmanager.status": record.status.value,
        "runmanager.reason": record.reason.value if record.reason else "",
        "runmanager.message": record.message,
        "runmanager.folder": str(run.paths.root.resolve()),
        "runmanager.deviations": "\n".join(record.deviations),
        "mlflow.note.content": "\n\n".join((*record.deviations, *record.notes)),
        "mlflow.source.git.commit": record.environment.commit or "",
        _FINGERPRINT_TAG: run_fingerprint(run),
    }
    return {name: value[:_MAX_TAG_LENGTH] for name, value in tags.items() if value}


def _milliseconds(time_of_day: str | None) -> int:
    """Milliseconds since 1970; 0 for a run that never started."""
    return 0 if time_of_day is None else round(1000 * datetime.datetime.fromisoformat(time_of_day).timestamp())
