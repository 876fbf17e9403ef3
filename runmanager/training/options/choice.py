"""What every choice of a group of settings has: its name, and the checks of its values."""

from dataclasses import dataclass, fields
from typing import ClassVar

from runmanager.validation import fault

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """One choice of a group: its settings, and what is wrong with their values."""

    group: ClassVar[str]

    def faults(self) -> list[str]:
        """Every fault of these values, as readable lines; an empty list where there is none."""
        return self._renamed() + self._bad_values()

    def _bad_values(self) -> list[str]:
        return []

    def _renamed(self) -> list[str]:
        default = next(each.default for each in fields(self) if each.name == "name")
        name = getattr(self, "name", default)
        if name == default:
            return []
        way_out = f"choose another one with `{self.group}={name}`"
        return [fault(f"{self.group}.name", f"stay {default!r}", repr(name), way_out)]
