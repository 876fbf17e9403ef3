"""`export --to wandb`: a sweep as offline runs of Weights & Biases', to be sent by its own `wandb sync`."""

import shutil
from pathlib import Path
from typing import Any

from runmanager.records.files.atomic_files import replace_file
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

__all__ = ["export_to_wandb"]

_MARK = "runmanager-mark.txt"
_OFFLINE = "offline-run-"


def export_to_wandb(sweep: SweepContents, *, folder: Path) -> ExportResult:
    """Write the runs below `folder`/wandb, one offline run each, in the project of the sweep's name.

    A run's settings are its config, its epochs its history, its notes, after what it did otherwise than asked, its
    notes there. A run that is there as it is now is kept, one that has
    changed since is replaced. Nothing is sent.
    Raises `UsageError` where wandb is missing.
    """
    wandb = import_optional("wandb", extra="wandb")
    folder.mkdir(parents=True, exist_ok=True)
    ids = {_id_of(run): run for run in sweep.runs}
    there = {each.name.rpartition("-")[2]: each for each in folder.glob(f"wandb/{_OFFLINE}*") if each.is_dir()}
    written, kept = sync_runs(
        ids,
        {name: _mark_in(each) for name, each in there.items() if name in ids},
        remove=lambda name: shutil.rmtree(there[name]),
        write=lambda run: _write(wandb, sweep.paths.name, run, folder),
    )
    return ExportResult(f"{folder / 'wandb'}; `wandb sync {folder / 'wandb'}/{_OFFLINE}*` sends them", written, kept)


def _id_of(run: StoredRun) -> str:
    return run.record.signature[:16]


def _mark_in(folder: Path) -> str:
    mark = folder / _MARK
    return mark.read_text(errors="replace") if mark.exists() else ""


def _write(wandb: Any, project: str, run: StoredRun, folder: Path) -> None:
    record = run.record
    made = wandb.init(
        project=project,
        id=_id_of(run),
        name=record.name,
        dir=str(folder),
        mode="offline",
        config=flatten(record.config),
        notes="\n".join((*record.deviations, *record.notes)) or None,
        reinit="create_new",
        settings=wandb.Settings(console="off", silent=True, save_code=False, disable_git=True, x_disable_stats=True),
    )
    for epoch in run.epochs:
        made.log(epoch_metrics(epoch), step=epoch.epoch)
    facts = {
        "status": record.status.value,
        "reason": record.reason.value if record.reason else None,
        "num_parameters": record.num_parameters,
        "peak_memory_bytes": record.peak_memory_bytes,
        "folder": str(run.paths.root.resolve()),
        "deviations": "\n".join(record.deviations) or None,
    }
    made.summary.update({name: value for name, value in facts.items() if value is not None})
    stored = Path(made.dir).parent
    made.finish(exit_code=0 if record.status in (Status.FINISHED, Status.SKIPPED) else 1)
    replace_file(stored / _MARK, run_fingerprint(run))  # last: a run of which only a part was written has none
