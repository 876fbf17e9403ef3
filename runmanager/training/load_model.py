"""`load_model`: rebuild the model of a stored run and load its weights."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from os import PathLike
from typing import Any

import torch
from torch import nn

from runmanager.errors import RecordError, RunManagerError, UsageError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.settings.secrets import secrets_from_environment
from runmanager.records.storage.reader import StoredRun, read_record
from runmanager.records.sweep.lookup import find_run
from runmanager.text import error_line, truncated
from runmanager.tracking.checkpoint.checkpoint_file import read_state
from runmanager.tracking.device.devices import preserve_random_states
from runmanager.training.custom_targets import known_network, refuse_foreign_targets, resolve_target
from runmanager.training.models.builtin_models import build_model
from runmanager.training.options.groups import OPTION_TYPES


def load_model(run: str | PathLike[str] | StoredRun, best: bool = False, *, trust: bool = False) -> nn.Module:
    """Load the model of a run of the application with its last or `best` weights, on the CPU in eval mode.

    `run` is a run as `find_run` takes it (a folder, or the beginning of the run's name), or a `StoredRun`. A run's
    files are data: a `_target_` in them must name a class of torch.nn.Module that torch.nn, torchvision.models or
    runmanager define. A custom model needs `trust=True`: it is then imported from the current folder or an installed
    package, and called with its stored settings. No random state is changed.
    Raises `UsageError` if the run does not exist or its model cannot be rebuilt; `RecordError` for damaged files.
    """
    paths = run.paths if isinstance(run, StoredRun) else find_run(os.fspath(run))
    record = run.record if isinstance(run, StoredRun) else read_record(paths)
    if not trust:
        way_out = "if you trust the author of the run, use load_model(…, trust=True)"
        refuse_foreign_targets(record.config.get("model"), name="model", way_out=way_out)
    with _settings_errors(record.name):
        options = _model_options(record)
    state = _stored_state(paths, record, best=best)
    build = partial(
        build_model,
        options,
        in_shape=tuple(state["in_shape"]),
        num_classes=state["num_classes"],
        resolve=resolve_target if trust else known_network,
    )
    with preserve_random_states(), _settings_errors(record.name):
        if not trust:
            with torch.device("meta"):  # without memory: the settings and sizes may ask for any amount
                _require_fit(build(), state, record.name)
        network = build()
    try:
        network.load_state_dict(state["model"])
    except RuntimeError as error:
        raise _misfit(record.name, str(error).splitlines()[-1].strip()) from error
    return network.eval()


def _require_fit(sketch: nn.Module, state: Mapping[str, Any], run: str) -> None:
    """Raise `UsageError` if the stored weights do not have the shapes of those of `sketch`."""
    shapes = {name: tuple(tensor.shape) for name, tensor in sketch.state_dict().items()}
    stored = {name: tuple(getattr(tensor, "shape", ())) for name, tensor in state["model"].items()}
    for name in dict.fromkeys((*shapes, *stored)):
        if shapes.get(name) != stored.get(name):
            got = f"{stored[name]}, not {shapes[name]}" if name in shapes and name in stored else "one of the two only"
            raise _misfit(run, f"{name}: {got}.")


def _misfit(run: str, detail: str) -> UsageError:
    return UsageError(
        f"The weights of run {run} must fit its model, got another one: it has changed since; "
        f"go back to the code of the run. {detail}"
    )


@contextmanager
def _settings_errors(run: str) -> Iterator[None]:
    """Raise `UsageError` for any error of a constructor: the stored settings may have been changed or be too large."""
    try:
        yield
    except RunManagerError:
        raise
    except Exception as error:
        raise UsageError(
            f"Run {run} must have settings that make its model, got {truncated(error_line(error))}; "
            "its files or its code have changed since."
        ) from error


def _model_options(record: RunRecord) -> Any:
    """The model's options in the run's configuration."""
    model = record.config.get("model")
    if isinstance(model, Mapping):
        if "_target_" in model:
            return secrets_from_environment(model)
        name = model.get("name")
        if isinstance(name, str) and name in OPTION_TYPES["model"]:
            return OPTION_TYPES["model"][name](**model)
    raise UsageError(
        f"Run {record.name} must be one of the built-in job to be built again, got one that names no model; your own "
        "training loop saves and loads its model itself."
    )


def _stored_state(paths: RunPaths, record: RunRecord, *, best: bool) -> dict[str, Any]:
    path = paths.best if best else paths.checkpoint
    if not path.is_file():
        setting = "checkpoint.keep_best=val_loss" if best else "checkpoint.every=1"
        raise UsageError(
            f"Run {record.name} ({record.status}) must have a {path.name}, got none; run it with `{setting}`."
        )
    state = read_state(path)
    if "in_shape" not in state or "num_classes" not in state:
        raise RecordError(
            f"{path} must contain the sample shape and number of classes, got an older checkpoint; run it again."
        )
    return state
