"""`load_model`: the trained model of a stored run, built again and given its weights."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any

from torch import nn

from runmanager.errors import RecordError, RunManagerError, UsageError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.record import RunRecord
from runmanager.records.storage.reader import StoredRun, read_record
from runmanager.records.sweep.lookup import find_run
from runmanager.text import error_line, truncated
from runmanager.tracking.device.rng import preserve_random_states
from runmanager.training.checkpoint import read_state
from runmanager.training.models.models import build_model
from runmanager.training.options.groups import OPTION_TYPES
from runmanager.training.targets import known_network, refuse_foreign_targets, resolve_target

__all__ = ["load_model"]


def load_model(run: str | PathLike[str] | StoredRun, best: bool = False, *, trust: bool = False) -> nn.Module:
    """The model of a run of the application with its last weights, or its `best` ones, on the CPU in eval mode.

    `run` names a run as `find_run` takes it (a folder, or the beginning of its name), or is a run as it was read. A
    run's files are data: a `_target_` in them must name a class of torch.nn.Module that torch.nn, torchvision.models or
    runmanager define. A custom model needs `trust=True`: it is then imported again, from the current folder or an
    installed package, and called with its stored settings. No random state is moved.
    Raises `UsageError` where there is no such run, or none that can be built again; `RecordError` for damaged files.
    """
    paths = run.paths if isinstance(run, StoredRun) else find_run(os.fspath(run))
    record = run.record if isinstance(run, StoredRun) else read_record(paths)
    if not trust:
        way_out = "if you trust whoever made the run, use load_model(…, trust=True)"
        refuse_foreign_targets(record.config.get("model"), name="model", way_out=way_out)
    with _made_of_settings(paths):
        options = _model_options(record, paths)
    state = _stored_state(paths, record, best=best)
    with preserve_random_states(), _made_of_settings(paths):
        network = build_model(
            options,
            in_shape=tuple(state["in_shape"]),
            num_classes=state["num_classes"],
            find=resolve_target if trust else known_network,
        )
    try:
        network.load_state_dict(state["model"])
    except RuntimeError as error:
        raise UsageError(
            f"The weights of run {paths.name} must fit its model, got another one: it was changed since; "
            f"go back to the code of the run. {str(error).splitlines()[-1].strip()}"
        ) from error
    return network.eval()


@contextmanager
def _made_of_settings(paths: RunPaths) -> Iterator[None]:
    """Raise `UsageError` for what constructors raise of settings that were stored otherwise, or are too large."""
    try:
        yield
    except RunManagerError:
        raise
    except Exception as error:
        raise UsageError(
            f"Run {paths.name} must hold settings that make its model, got {truncated(error_line(error))}; "
            "its files or its code were changed since."
        ) from error


def _model_options(record: RunRecord, paths: RunPaths) -> Any:
    """The options of the model as the run's configuration has them."""
    model = record.config.get("model")
    if isinstance(model, Mapping):
        if "_target_" in model:
            return model
        name = model.get("name")
        if isinstance(name, str) and name in OPTION_TYPES["model"]:
            return OPTION_TYPES["model"][name](**model)
    raise UsageError(
        f"Run {paths.name} must have been made by `python -m runmanager` to be built again, got one that names no "
        "model; a loop of your own saves and loads its model itself."
    )


def _stored_state(paths: RunPaths, record: RunRecord, *, best: bool) -> dict[str, Any]:
    path = paths.best if best else paths.checkpoint
    if not path.is_file():
        setting = "checkpoint.keep_best=val_loss" if best else "checkpoint.every=1"
        raise UsageError(
            f"Run {paths.name} ({record.status}) must have a {path.name}, got none; run it with `{setting}`."
        )
    state = read_state(path)
    if "in_shape" not in state or "num_classes" not in state:
        raise RecordError(f"{path} must say what the model was built for, got an older checkpoint; run it again.")
    return state
