"""Experiment tracking and sweeps for PyTorch: the public names, each imported on first use.

`import runmanager` alone does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runmanager.app.python_api import run_sweep, watch_sweep
    from runmanager.errors import (
        ConfigurationError,
        DatasetError,
        DeviceUnavailableError,
        NoRoomError,
        RankError,
        RecordError,
        RunBusyError,
        RunFailedError,
        RunManagerError,
        SweepError,
        TensorMismatchError,
        UsageError,
    )
    from runmanager.records.settings.grid import RunBuilder, expand_grid
    from runmanager.results.sweep import Sweep
    from runmanager.tracking.device.transfer import DeviceDataLoader, get_default_device, to_device
    from runmanager.tracking.manager import RunManager
    from runmanager.tracking.options import EarlyStopOptions, RunOptions, TensorBoardOptions, define_metric
    from runmanager.tracking.program.current_run import log
    from runmanager.tracking.program.start_run import start_run
    from runmanager.training.load_model import load_model
    from runmanager.training.loop import evaluate, fit
    from runmanager.training.step.micro_batches import keep_freed_memory

__all__ = [
    "ConfigurationError",
    "DatasetError",
    "DeviceDataLoader",
    "DeviceUnavailableError",
    "EarlyStopOptions",
    "NoRoomError",
    "RankError",
    "RecordError",
    "RunBuilder",
    "RunBusyError",
    "RunFailedError",
    "RunManager",
    "RunManagerError",
    "RunOptions",
    "Sweep",
    "SweepError",
    "TensorBoardOptions",
    "TensorMismatchError",
    "UsageError",
    "__version__",
    "define_metric",
    "evaluate",
    "expand_grid",
    "fit",
    "get_default_device",
    "keep_freed_memory",
    "load_model",
    "log",
    "run_sweep",
    "start_run",
    "to_device",
    "watch_sweep",
]

__version__ = "0.1.0"

_HOMES = {
    "ConfigurationError": "runmanager.errors",
    "DatasetError": "runmanager.errors",
    "DeviceDataLoader": "runmanager.tracking.device.transfer",
    "DeviceUnavailableError": "runmanager.errors",
    "EarlyStopOptions": "runmanager.tracking.options",
    "NoRoomError": "runmanager.errors",
    "RankError": "runmanager.errors",
    "RecordError": "runmanager.errors",
    "RunBuilder": "runmanager.records.settings.grid",
    "RunBusyError": "runmanager.errors",
    "RunFailedError": "runmanager.errors",
    "RunManager": "runmanager.tracking.manager",
    "RunManagerError": "runmanager.errors",
    "RunOptions": "runmanager.tracking.options",
    "Sweep": "runmanager.results.sweep",
    "SweepError": "runmanager.errors",
    "TensorBoardOptions": "runmanager.tracking.options",
    "TensorMismatchError": "runmanager.errors",
    "UsageError": "runmanager.errors",
    "define_metric": "runmanager.tracking.options",
    "evaluate": "runmanager.training.loop",
    "expand_grid": "runmanager.records.settings.grid",
    "fit": "runmanager.training.loop",
    "get_default_device": "runmanager.tracking.device.transfer",
    "keep_freed_memory": "runmanager.training.step.micro_batches",
    "load_model": "runmanager.training.load_model",
    "log": "runmanager.tracking.program.current_run",
    "run_sweep": "runmanager.app.python_api",
    "start_run": "runmanager.tracking.program.start_run",
    "to_device": "runmanager.tracking.device.transfer",
    "watch_sweep": "runmanager.app.python_api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'runmanager' has no attribute '{name}'")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # next time without this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
