"""Export to Weights & Biases (`export --to wandb`): a sweep as offline runs, which `wandb sync` uploads."""

import math
import re
import shutil
from pathlib import Path
from typing import Any

from runmanager.records.files.atomic_files import replace_file
from runmanager.records.run.status import Status
from runmanager.records.settings.values import flatten
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.results.export.incremental import (
    ExportResult,
    NamesElsewhere,
    epoch_metrics,
    exported_names,
    final_metrics,
    import_optional,
    names_elsewhere,
    run_facts,
    run_fingerprint,
    sync_runs,
)

_FINGERPRINT_FILE = "runmanager-mark.txt"
_OFFLINE_PREFIX = "offline-run-"
_RESERVED = ("_runtime", "_step", "_timestamp", "_wandb")  # wandb fills them itself
_MAX_PROJECT_LENGTH = 128


def export_to_wandb(sweep: SweepContents, *, folder: Path) -> ExportResult:
    """Write an offline run for each run below `folder`/wandb, in a project with the sweep's name; nothing is uploaded.

    Settings become the config, epochs with their logged metrics the history, the run's values of these the summary, and
    deviations and notes the notes. A character that wandb does not accept in a project's name becomes `_`, and names
    that it fills itself, such as `_step`, go under `metrics.` or `settings.`. Unchanged runs are kept, changed ones
    replaced.

    Raises `UsageError` if wandb is not installed.
    """
    wandb = import_optional("wandb", extra="wandb")
    folder.mkdir(parents=True, exist_ok=True)
    runs = {_wandb_id(run): run for run in sweep.runs}
    names = names_elsewhere(sweep.runs, setting_name=setting_name, metric_name=metric_name)
    project = re.sub(r"[/\\#?%:]", "_", sweep.paths.name)[:_MAX_PROJECT_LENGTH]
    exported = {
        path.name.rpartition("-")[2]: path for path in folder.glob(f"wandb/{_OFFLINE_PREFIX}*") if path.is_dir()
    }
    written, kept = sync_runs(
        runs,
        {run_id: _stored_fingerprint(path) for run_id, path in exported.items() if run_id in runs},
        names=names,
        remove=lambda run_id: shutil.rmtree(exported[run_id]),
        write=lambda run: _write(wandb, project, run, folder, names),
    )
    changes = names.changes("wandb")
    if project != sweep.paths.name:
        changes.append(f"The project is called {project}, as wandb does not accept {sweep.paths.name}.")
    where = f"{folder / 'wandb'}; `wandb sync {folder / 'wandb'}/{_OFFLINE_PREFIX}*` uploads them"
    return ExportResult(where, written, kept, tuple(changes))


def setting_name(name: str) -> str:
    """The name of a setting as wandb accepts it."""
    return f"settings.{name}" if name in _RESERVED else name


def metric_name(name: str) -> str:
    """The name of a metric as wandb accepts it."""
    return f"metrics.{name}" if name in _RESERVED else name


def _wandb_id(run: StoredRun) -> str:
    return run.record.signature[:16]


def _stored_fingerprint(folder: Path) -> str:
    path = folder / _FINGERPRINT_FILE
    return path.read_text(errors="replace") if path.is_file() else ""


def _write(wandb: Any, project: str, run: StoredRun, folder: Path, elsewhere: NamesElsewhere) -> None:
    record = run.record
    exported = wandb.init(
        project=project,
        id=_wandb_id(run),
        name=record.name,
        dir=str(folder),
        mode="offline",
        config={elsewhere.settings[name]: value for name, value in flatten(record.config).items()},
        notes="\n".join((*record.deviations, *record.notes)) or None,
        reinit="create_new",
        settings=wandb.Settings(console="off", silent=True, save_code=False, disable_git=True, x_disable_stats=True),
    )
    names = exported_names(run)
    for epoch in run.epochs:
        values = epoch_metrics(epoch, names)
        exported.log({elsewhere.metrics[name]: value for name, value in values.items()}, step=epoch.epoch)
    final = final_metrics(run, names)  # the history lacks missing values, so its last ones may be those of before
    exported.summary.update(
        {elsewhere.metrics[name]: math.nan if value is None else value for name, value in final.items()}
    )
    summary = {
        "status": record.status.value,
        "reason": record.reason.value if record.reason else None,
        **run_facts(run),
        "folder": str(run.paths.root.resolve()),
        "deviations": "\n".join(record.deviations) or None,
    }
    exported.summary.update({name: value for name, value in summary.items() if value is not None})
    folder = Path(exported.dir).parent
    exported.finish(exit_code=0 if record.status in (Status.FINISHED, Status.SKIPPED) else 1)
    # Written last, so that a partly written run is replaced by the next export.
    replace_file(folder / _FINGERPRINT_FILE, run_fingerprint(run, elsewhere))
