"""Finding the runs below a folder that Hydra, TensorBoard's writers or Lightning made."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from runmanager.app.adopt.stored_settings import read_yaml_settings, settings_of_name
from runmanager.errors import RecordError
from runmanager.records.files.folder_search import folders_below
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.settings.values import choices_of_groups, flatten, plain_settings
from runmanager.records.storage.reader import read_record, run_names
from runmanager.results.program_files.folder_metrics import ProgramMetrics, is_metrics_file, read_metrics
from runmanager.results.tfevents.reader import is_event_file, read_event_files

__all__ = ["FoundRun", "find_runs", "is_own_sweep"]

_HYDRA_CONFIG = PurePath(".hydra", "config.yaml")
_HYDRA_CHOICES = PurePath(".hydra", "hydra.yaml")
_HPARAMS = "hparams.yaml"
_HYDRA = "hydra"
_MAX_DIGITS = 9
_MAX_NAMED = 5


@dataclass(frozen=True)
class FoundRun:
    """A run of another program: its folder, its nested settings, its metrics, and Hydra's choices of config groups."""

    folder: Path
    settings: dict[str, Any]
    metrics: ProgramMetrics
    choices: dict[str, Any] = field(default_factory=dict)


def find_runs(root: Path, notes: list[str]) -> Iterator[FoundRun]:
    """Find the runs below `root`, itself included, in order of their paths; `notes` gets a line for what is left out.

    A run is the folder of a Hydra job (with `.hydra/config.yaml`), or the topmost folder with event files or a
    metrics.csv; all below it belongs to it. Where folders below it have different hyperparameters, as `add_hparams`
    makes them in a loop, each of these is a run instead. The settings are those of Hydra's file; else those of
    Lightning's hparams.yaml; else the hyperparameters in its event files; else those in its folder's name. Sweeps of
    this package are left out.
    """
    several: list[Path] = []  # folders that hold several runs
    for folder, subfolders, names in folders_below(root, notes):
        subfolders.sort(key=_natural_order)
        if is_own_sweep(folder) or _is_own_run(folder):
            notes.append(f"{folder} is {'a sweep' if is_own_sweep(folder) else 'the run of a sweep'} already")
            subfolders.clear()
        elif os.path.lexists(folder / _HYDRA_CONFIG):
            subfolders.clear()
            try:
                settings = read_yaml_settings(folder / _HYDRA_CONFIG)
            except RecordError as error:
                notes.append(f"{error}; its run is left out")
                continue
            settings.pop(_HYDRA, None)
            yield FoundRun(folder, settings, read_metrics(folder), _choices(folder, settings))
        elif any(map(is_metrics_file, names)):
            metrics = read_metrics(folder)
            if _holds_several_runs(metrics):
                several.append(folder)
                if own := list(read_event_files([folder / each for each in names if is_event_file(each)]).scalars):
                    tags = ", ".join([*own[:_MAX_NAMED], *(["…"] if len(own) > _MAX_NAMED else [])])
                    notes.append(
                        f"{folder} holds several runs; its own values belong to none, and are left out: {tags}"
                    )
                continue
            subfolders.clear()
            if not metrics.sessions and (whole := next((each for each in several if each in folder.parents), None)):
                notes.append(f"{folder} has no hyperparameters, unlike the runs in {whole}, and is left out")
                continue
            yield FoundRun(folder, _logged_settings(folder, folder.relative_to(root), metrics), metrics)


def _choices(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The choices that Hydra stored of a job, none where its file is missing or damaged: its settings say enough."""
    found: Any = None
    with contextlib.suppress(RecordError):
        found = read_yaml_settings(folder / _HYDRA_CHOICES)
    for name in (_HYDRA, "runtime", "choices"):
        found = found.get(name) if isinstance(found, dict) else None
    return choices_of_groups(found, flatten(settings)) if isinstance(found, dict) else {}


def is_own_sweep(folder: Path) -> bool:
    """Whether this package made a sweep in the folder; `runs/` alone is also what TensorBoard's writers make."""
    paths = SweepPaths(folder)
    return os.path.lexists(paths.record) or any(os.path.lexists(paths.run(name).record) for name in run_names(paths))


def _is_own_run(folder: Path) -> bool:
    try:
        read_record(RunPaths(folder))
    except RecordError:
        return False
    return True


def _holds_several_runs(metrics: ProgramMetrics) -> bool:
    """Whether folders below have different hyperparameters, and the folder itself has none."""
    sessions = list(metrics.sessions.values())
    return "" not in metrics.sessions and any(each != sessions[0] for each in sessions)


def _natural_order(name: str) -> tuple[int, str]:
    """Return the sort key of a folder: Hydra numbers its jobs 0, 1, …, 10; other names come after them."""
    is_number = name.isascii() and name.isdigit() and len(name) <= _MAX_DIGITS
    return (int(name) if is_number else 10**_MAX_DIGITS, name)


def _logged_settings(folder: Path, relative: PurePath, metrics: ProgramMetrics) -> dict[str, Any]:
    stored: dict[str, Any] = {}
    if os.path.lexists(folder / _HPARAMS):
        try:
            stored = read_yaml_settings(folder / _HPARAMS)
        except RecordError as error:
            metrics.notes.append(str(error))
    hparams = {name: value for session in metrics.sessions.values() for name, value in session.items()}
    return stored or plain_settings(hparams or settings_of_name(relative))
