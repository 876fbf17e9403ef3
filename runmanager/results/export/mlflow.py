"""Export to MLflow (`export --to mlflow`): a sweep as an experiment with the same runs."""

import datetime
import hashlib
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
    NamesElsewhere,
    epoch_metrics,
    exported_names,
    import_optional,
    names_elsewhere,
    run_facts,
    run_fingerprint,
    summary_values,
    sync_runs,
)

DEFAULT_URI = "sqlite:///mlflow.db"
"""A database in the current folder, MLflow's own default."""

_FINGERPRINT_TAG = "runmanager.mark"
_SIGNATURE_TAG = "runmanager.signature"
_STATUSES = {Status.FINISHED: "FINISHED", Status.FAILED: "FAILED", Status.CRASHED: "FAILED", Status.RUNNING: "RUNNING"}
_MAX_METRICS = 1000  # per call of MLflow's API
_MAX_PARAMS = 100
_MAX_NAME_LENGTH = 250
_MAX_PARAM_LENGTH = 6000  # characters accepted by every store of MLflow since 2.8
_MAX_TAG_LENGTH = 5000
_MAX_NAMED = 5
_PAGE_SIZE = 1000


def export_to_mlflow(sweep: SweepContents, *, uri: str = DEFAULT_URI) -> ExportResult:
    """Write the runs into the experiment with the sweep's name in the store `uri`.

    Settings become params, epochs with their logged metrics and the run's summary metrics, and status, commit, folder
    and deviations tags; deviations and notes are the run's description. MLflow shows the last finite value of each
    metric as that of the run; a character that it does not accept in a name becomes `_`, and equal names get numbers.
    Texts that are too long for it end in their number of characters. Unchanged runs are kept,
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
    names = names_elsewhere(sweep.runs, setting_name=metric_name, metric_name=metric_name, max_length=_MAX_NAME_LENGTH)
    written, kept = sync_runs(
        {run.record.signature: run for run in sweep.runs},
        {signature: run.data.tags.get(_FINGERPRINT_TAG, "") for signature, run in exported.items() if signature},
        names=names,
        remove=lambda signature: client.delete_run(exported[signature].info.run_id),
        write=lambda run: _write(client, experiment, run, names),
    )
    changes = (*names.changes("MLflow"), *_cut_texts(sweep.runs))
    return ExportResult(f"the experiment {sweep.paths.name} of {uri}", written, kept, changes)


def _cut_texts(runs: Sequence[StoredRun]) -> Iterator[str]:
    """Yield a sentence that names the settings and tags that are too long for MLflow, if there are any."""
    lengths: dict[str, int] = {}
    for run in runs:
        settings = {f"the setting {name}": str(value) for name, value in flatten(run.record.config).items()}
        limits = (settings, _MAX_PARAM_LENGTH), (_texts(run), _MAX_TAG_LENGTH)
        for name, length in (
            (name, len(text)) for texts, limit in limits for name, text in texts.items() if len(text) > limit
        ):
            lengths[name] = max(length, lengths.get(name, 0))
    if lengths:
        named = [f"{name} ({length:,})" for name, length in list(lengths.items())[:_MAX_NAMED]]
        more = [f"and {len(lengths) - _MAX_NAMED:,} more"] if len(lengths) > _MAX_NAMED else []
        limits_text = f"{_MAX_PARAM_LENGTH:,} characters of a setting and {_MAX_TAG_LENGTH:,} of a tag"
        yield f"Cut, as MLflow takes {limits_text}: {', '.join([*named, *more])}."


def _cut(text: str, limit: int) -> str:
    """The text, or as much of it as there is room for, with its number of characters and a hash: it stays distinct."""
    if len(text) <= limit:
        return text
    end = f"… ({len(text):,} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})"
    return text[: limit - len(end)] + end


def _runs(client: Any, experiment: str) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_runs([experiment], max_results=_PAGE_SIZE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _write(client: Any, experiment: str, run: StoredRun, elsewhere: NamesElsewhere) -> None:
    from mlflow.entities import Metric, Param, RunTag

    record = run.record
    start = _milliseconds(record.started_at)
    run_id = client.create_run(experiment, start_time=start, run_name=record.name).info.run_id
    names = exported_names(run)
    metrics = [
        Metric(elsewhere.metrics[name], value, start + round(1000 * (epoch.run_seconds or 0.0)), epoch.epoch)
        for epoch in run.epochs
        for name, value in epoch_metrics(epoch, names).items()
    ]
    last, end = run.epochs[-1].epoch if run.epochs else 0, _milliseconds(record.ended_at or record.started_at)
    run_metrics = run_facts(run) | summary_values(run, names)
    metrics += [
        Metric(elsewhere.metrics[name], value, end, last) for name, value in run_metrics.items() if value is not None
    ]
    params = [
        Param(elsewhere.settings[name], _cut(str(value), _MAX_PARAM_LENGTH))
        for name, value in flatten(record.config).items()
    ]
    for batch in _batches(params, _MAX_PARAMS):
        client.log_batch(run_id, params=batch)
    for batch in _batches(metrics, _MAX_METRICS):
        client.log_batch(run_id, metrics=batch)
    # The tags with the fingerprint come last, so that a partly written run is replaced by the next export.
    client.log_batch(run_id, tags=[RunTag(name, value) for name, value in _tags(run, elsewhere).items()])
    if record.status is not Status.RUNNING:
        client.set_terminated(run_id, status=_STATUSES.get(record.status, "KILLED"), end_time=end)


def metric_name(name: str) -> str:
    """The name of a metric or of a setting as every store of MLflow accepts it."""
    text = re.sub(r"[^\w\-. /]", "_", name)[:_MAX_NAME_LENGTH] or "_"
    return text if posixpath.normpath(text) == text and text[0] not in "/." else re.sub(r"[/.]", "_", text)


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _tags(run: StoredRun, names: NamesElsewhere) -> dict[str, str]:
    tags = {name: _cut(text, _MAX_TAG_LENGTH) for name, text in _texts(run).items() if text}
    return tags | {_FINGERPRINT_TAG: run_fingerprint(run, names)}


def _texts(run: StoredRun) -> dict[str, str]:
    """The tags of a run, without the fingerprint; empty ones are not written."""
    record: RunRecord = run.record
    return {
        _SIGNATURE_TAG: record.signature,
        "runmanager.status": record.status.value,
        "runmanager.reason": record.reason.value if record.reason else "",
        "runmanager.message": record.message,
        "runmanager.folder": str(run.paths.root.resolve()),
        "runmanager.deviations": "\n".join(record.deviations),
        "mlflow.note.content": "\n\n".join((*record.deviations, *record.notes)),
        "mlflow.source.git.commit": record.environment.commit or "",
    }


def _milliseconds(time_of_day: str | None) -> int:
    """Milliseconds since 1970; 0 for a run that never started."""
    return 0 if time_of_day is None else round(1000 * datetime.datetime.fromisoformat(time_of_day).timestamp())
