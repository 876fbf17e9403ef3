"""Finding the runs below a folder that Hydra, TensorBoard's writers or Lightning made, and their stored settings."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import yaml

from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import read_bytes
from runmanager.records.files.file_errors import damaged_file_error, require_few_values
from runmanager.records.files.paths import RunPaths, SweepPaths, folders_below
from runmanager.records.settings.values import choices_of_groups, flatten, plain_settings
from runmanager.records.storage.reader import read_record, run_names
from runmanager.results.program_files.folder_metrics import ProgramMetrics, is_metrics_file, read_metrics
from runmanager.results.tfevents.reader import is_event_file, read_event_files
from runmanager.text import encodable

_HYDRA_CONFIG = PurePath(".hydra", "config.yaml")
_HYDRA_CHOICES = PurePath(".hydra", "hydra.yaml")
_HPARAMS = "hparams.yaml"
_HYDRA = "hydra"
_MAX_DIGITS = 9
_MAX_NAMED = 5


FOLDER = "folder"
"""The setting that tells runs without any other apart: the part of their path that names no setting."""

_MAX_BYTES = 1 << 20
_MAX_VALUES = 10_000
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "none": None}


def read_yaml_settings(path: Path) -> dict[str, Any]:
    """Read nested settings; interpolations such as `${lr}` stay text. Raises `RecordError` for a damaged file.

    No object is built that the file names, and a file of a few lines cannot expand to more than 10,000 values.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise RecordError(f"{path} must have at most {_MAX_BYTES:,} bytes to be read as settings")
        loaded = _load(read_bytes(path).decode())
        if not isinstance(loaded, dict | None):
            raise ValueError(f"it must hold a mapping of settings, got {type(loaded).__name__}")
        return plain_settings(_with_text_keys(loaded or {}))
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise damaged_file_error(path, ValueError(reason)) from None


def _load(text: str) -> Any:
    """Build the values of a document, if they are few. Raises `ValueError` for a faulty one."""
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        document = loader.get_single_node()
        require_few_values(document, most=_MAX_VALUES)
        return None if document is None else loader.construct_document(document)
    except (RecursionError, MemoryError):
        raise
    except Exception as error:  # a tag such as `!!int` on another text raises whatever its conversion does
        raise ValueError(str(error) or type(error).__name__) from None
    finally:
        if loader is not None:
            loader.dispose()


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value


def settings_of_name(relative: PurePath) -> dict[str, Any]:
    """Return the settings in a path such as `lr=0.1,batch=32/seed=1`; the rest of it is the setting `folder`.

    A value is a number, `true`, `false`, `null`, or text.
    """
    settings: dict[str, Any] = {}
    rest: list[str] = []
    for part in map(encodable, relative.parts):
        words = [re.fullmatch(r"([A-Za-z_][\w./-]*)=(.*)", word) for word in part.split(",")]
        if all(words):
            settings |= {word[1]: _parsed(word[2]) for word in words if word}
        else:
            rest.append(part)
    return settings | ({FOLDER: "/".join(rest)} if rest and FOLDER not in settings else {})


def _parsed(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return plain_settings({"": kind(text)})[""]
        except ValueError:
            continue
    return text


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
