"""Experiment tracking and sweeps for PyTorch: the public names, each imported on first use.

`import runmanager` alone does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runmanager.app.python_api import run_sweep, watch_sweep
    from runmanager.records.settings.grid import RunBuilder, expand_grid
    from runmanager.results.sweep import Sweep
    from runmanager.tracking.device.transfer import DeviceDataLoader, get_default_device, to_device
    from runmanager.tracking.manager import RunManager
    from runmanager.training.load_model import load_model
    from runmanager.training.loop import evaluate, fit
    from runmanager.training.step.allocator import keep_freed_memory

__all__ = [
    "DeviceDataLoader",
    "RunBuilder",
    "RunManager",
    "Sweep",
    "__version__",
    "evaluate",
    "expand_grid",
    "fit",
    "get_default_device",
    "keep_freed_memory",
    "load_model",
    "run_sweep",
    "to_device",
    "watch_sweep",
]

__version__ = "0.1.0"

_HOMES = {
    "DeviceDataLoader": "runmanager.tracking.device.transfer",
    "RunBuilder": "runmanager.records.settings.grid",
    "RunManager": "runmanager.tracking.manager",
    "Sweep": "runmanager.results.sweep",
    "evaluate": "runmanager.training.loop",
    "expand_grid": "runmanager.records.settings.grid",
    "fit": "runmanager.training.loop",
    "get_default_device": "runmanager.tracking.device.transfer",
    "keep_freed_memory": "runmanager.training.step.allocator",
    "load_model": "runmanager.training.load_model",
    "run_sweep": "runmanager.app.python_api",
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
