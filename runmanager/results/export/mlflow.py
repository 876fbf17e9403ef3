"""`export --to mlflow`: a sweep as an experiment of MLflow's, a run as a run."""

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

from runmanager.records.run.record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.grid import flatten
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.results.export.incremental import (
    ExportResult,
    epoch_metrics,
    import_optional,
    run_fingerprint,
    sync_runs,
)

__all__ = ["DEFAULT_URI", "export_to_mlflow"]

DEFAULT_URI = "sqlite:///mlflow.db"
"""A database in the current folder, where MLflow itself looks first."""

_MARK = "runmanager.mark"
_SIGNATURE = "runmanager.signature"
_STATES = {Status.FINISHED: "FINISHED", Status.FAILED: "FAILED", Status.CRASHED: "FAILED", Status.RUNNING: "RUNNING"}
_MOST_METRICS = 1000  # what one call of MLflow's takes
_MOST_PARAMS = 100
_LONGEST = 500  # characters of a setting's text that every store of MLflow's takes
_LONGEST_TAG = 5000
_PAGE = 1000


def export_to_mlflow(sweep: SweepContents, *, uri: str = DEFAULT_URI) -> ExportResult:
    """Write the runs into the experiment of the sweep's name in the store `uri`.

    A run's settings are params, its epochs metrics, its state, commit and folder tags, and what it did otherwise than
    asked one too; with its notes that is its description. A run that is there as it is
    now is kept, one that has changed since is replaced. MLflow knows neither skipped nor crashed runs: these are
    KILLED and FAILED there, and the tag `runmanager.status` says what they are.
    Raises `UsageError` where MLflow is missing.
    """
    import_optional("mlflow", extra="mlflow")
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    known = client.get_experiment_by_name(sweep.paths.name)
    experiment = client.create_experiment(sweep.paths.name) if known is None else known.experiment_id
    there = {run.data.tags.get(_SIGNATURE): run for run in _runs_of(client, experiment)}
    written, kept = sync_runs(
        {run.record.signature: run for run in sweep.runs},
        {signature: run.data.tags.get(_MARK, "") for signature, run in there.items() if signature},
        remove=lambda signature: client.delete_run(there[signature].info.run_id),
        write=lambda run: _write(client, experiment, run),
    )
    return ExportResult(f"the experiment {sweep.paths.name} of {uri}", written, kept)


def _runs_of(client: Any, experiment: str) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_runs([experiment], max_results=_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _write(client: Any, experiment: str, run: StoredRun) -> None:
    from mlflow.entities import Metric, Param, RunTag

    record = run.record
    begun = _milliseconds(record.started_at)
    made = client.create_run(experiment, start_time=begun, run_name=record.name).info.run_id
    metrics = [
        Metric(name, value, begun + round(1000 * (epoch.run_seconds or 0.0)), epoch.epoch)
        for epoch in run.epochs
        for name, value in epoch_metrics(epoch).items()
    ]
    last = run.epochs[-1].epoch if run.epochs else 0
    of_run = {"num_parameters": record.num_parameters, "peak_memory_bytes": record.peak_memory_bytes}
    metrics += [Metric(name, value, begun, last) for name, value in of_run.items() if value is not None]
    params = [Param(name, str(value)[:_LONGEST]) for name, value in flatten(record.config).items()]
    for part in _parts(params, _MOST_PARAMS):
        client.log_batch(made, params=part)
    for part in _parts(metrics, _MOST_METRICS):
        client.log_batch(made, metrics=part)
    # The mark comes last: a run of which only a part was written has none, and is written anew.
    client.log_batch(made, tags=[RunTag(name, value) for name, value in _tags(run).items()])
    if record.status is not Status.RUNNING:
        end = _milliseconds(record.ended_at or record.started_at)
        client.set_terminated(made, status=_STATES.get(record.status, "KILLED"), end_time=end)


def _parts(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (items[at : at + most] for at in range(0, len(items), most))


def _tags(run: StoredRun) -> dict[str, str]:
    record: RunRecord = run.record
    tags = {
        _SIGNATURE: record.signature,
        "runmanager.status": record.status.value,
        "runmanager.reason": record.reason.value if record.reason else "",
        "runmanager.message": record.message,
        "runmanager.folder": str(run.paths.root.resolve()),
        "runmanager.deviations": "\n".join(record.deviations),
        "mlflow.note.content": "\n\n".join((*record.deviations, *record.notes)),
        "mlflow.source.git.commit": record.environment.commit or "",
        _MARK: run_fingerprint(run),
    }
    return {name: value[:_LONGEST_TAG] for name, value in tags.items() if value}


def _milliseconds(time_of_day: str | None) -> int:
    """Since 1970, as MLflow counts; 0 for a run that never began."""
    return 0 if time_of_day is None else round(1000 * datetime.datetime.fromisoformat(time_of_day).timestamp())
