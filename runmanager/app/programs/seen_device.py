"""The device that a program was seen on: what it asked for is known only where a setting names it."""

import resource
import sys
from typing import Any

import msgspec

from runmanager.records.host.gpus import find_gpus
from runmanager.records.run.run_record import Environment

__all__ = ["SeenDevice"]

_KIBIBYTE = 1024


class SeenDevice:
    """What this process used."""

    def added_to(self, environment: Environment, *, is_child: bool = False) -> Environment:
        """Return the environment with the device, unless the program has reported it.

        `is_child`: the program was a child of this process.
        """
        if environment.device_name is not None:
            return environment
        return msgspec.structs.replace(environment, device_name=self._name(environment, is_child=is_child))

    def _name(self, environment: Environment, *, is_child: bool) -> str | None:
        cuda = _initialised_cuda()
        if cuda is not None:
            return str(cuda.get_device_name())
        was_seen = "torch" in sys.modules and not is_child
        return environment.cpu_model if was_seen or not find_gpus() else None

    def peak_memory_bytes(self) -> int:
        """Return the peak of what this process allocated on the accelerator; on CPU its peak resident memory."""
        cuda = _initialised_cuda()
        if cuda is not None:
            return int(cuda.max_memory_allocated())
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE


def _initialised_cuda() -> Any:
    """Return `torch.cuda` if this process uses it."""
    torch: Any = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None
