"""`load_model`: the trained model of a stored run, built again and given its weights."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from runmanager.errors import RecordError, UsageError
from runmanager.records.paths import RunPaths, SweepPaths
from runmanager.records.run import RunRecord
from runmanager.records.store import StoredRun, read_record, run_names
from runmanager.tracking.randomness import preserved
from runmanager.training.checkpoint import read_state
from runmanager.training.models import build_model
from runmanager.training.options import OPTION_TYPES

__all__ = ["load_model"]

_OUTPUT_ROOT = Path("outputs")


def load_model(run: str | PathLike[str] | StoredRun, best: bool = False) -> nn.Module:
    """The model of a run of the application with its last weights, or its `best` ones, on the CPU in eval mode.

    `run` is a run's folder, or `sweep/beginning-of-the-run's-name`, where `sweep` is a folder or a name under
    `outputs/` and the signature's first digits serve for the name too, or a run as it was read. A model of somebody's
    own is imported again, from the current folder or an installed package. No random state is moved, and the weights'
    file runs no code.
    Raises `UsageError` where there is no such run, or none that can be built again; `RecordError` for damaged files.
    """
    paths = run.paths if isinstance(run, StoredRun) else _find(Path(run))
    record = run.record if isinstance(run, StoredRun) else read_record(paths)
    options = _model_options(record, paths)
    state = _stored_state(paths, record, best=best)
    with preserved():
        network = build_model(options, in_shape=tuple(state["in_shape"]), num_classes=state["num_classes"])
    try:
        network.load_state_dict(state["model"])
    except RuntimeError as error:
        raise UsageError(
            f"The weights of run {paths.name} must fit its model, got another one: it was changed since; "
            f"go back to the code of the run. {str(error).splitlines()[-1].strip()}"
        ) from error
    return network.eval()


def _find(given: Path) -> RunPaths:
    if RunPaths(given).record.exists():
        return RunPaths(given)
    parent = given.parent
    folders = [parent, _OUTPUT_ROOT / parent] if str(parent) != "." else []
    for folder in folders:
        sweep = SweepPaths(folder.parent if folder.name == "runs" else folder)
        names = run_names(sweep)
        found = [name for name in names if given.name in (name, name.rpartition("-")[0])]
        if not found:
            found = [name for name in names if name.startswith(given.name) or _digits(name).startswith(given.name)]
        if len(found) == 1:
            return sweep.run(found[0])
        if found:
            raise UsageError(f"'{given}' must be the beginning of one run's name, got that of {', '.join(found[:5])}.")
        if names:
            raise UsageError(f"'{given}' must be a run of {sweep.root}, got none of: {', '.join(names[:5])}.")
    raise UsageError(f"'{given}' must be a run's folder or SWEEP/RUN, got nothing there.")


def _digits(name: str) -> str:
    return name.rpartition("-")[2]


def _model_options(record: RunRecord, paths: RunPaths) -> Any:
    """The options of the model as the run's configuration has them."""
    model = record.config.get("model")
    if isinstance(model, Mapping):
        if "_target_" in model:
            return model
        name = model.get("name")
        if name in OPTION_TYPES["model"]:
            return OPTION_TYPES["model"][name](**model)
    raise UsageError(
        f"Run {paths.name} must have been made by `python -m runmanager` to be built again, got one that names no "
        "model; a loop of your own saves and loads its model itself."
    )


def _stored_state(paths: RunPaths, record: RunRecord, *, best: bool) -> dict[str, Any]:
    path = paths.best if best else paths.checkpoint
    if not path.exists():
        setting = "checkpoint.keep_best=val_loss" if best else "checkpoint.every=1"
        raise UsageError(
            f"Run {paths.name} ({record.status}) must have a {path.name}, got none; run it with `{setting}`."
        )
    state = read_state(path)
    if "in_shape" not in state or "num_classes" not in state:
        raise RecordError(f"{path} must say what the model was built for, got an older checkpoint; run it again.")
    return state
