"""Options with a value of the built-in job's command, as settings of its sweeper. Few imports."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.app.compose.override_quoting import format_override

__all__ = ["OPTIONS", "SweeperFlags"]

OPTIONS = ("--zip", "--points", "--exclude", "--notify", "--save", "--secrets")
_LIST = "--secrets"
_REPEATABLE = "--zip"


@dataclass(frozen=True)
class SweeperFlags:
    """The options of a command with their values, as given, and the `words` that are left."""

    given: tuple[tuple[str, str | None], ...]
    words: tuple[str, ...]

    @classmethod
    def split(cls, argv: Sequence[str]) -> "SweeperFlags":
        """Take the options out of a command: `--zip lr,batch_size` or `--zip=lr,batch_size`."""
        given, rest = [], []
        words = iter(argv)
        for word in words:
            option, has_value, value = word.partition("=")
            if option in OPTIONS:
                given.append((option, value if has_value else next(words, None)))
            else:
                rest.append(word)
        return cls(tuple(given), tuple(rest))

    def faults(self, other_sweeper: str | None) -> list[str]:
        """Messages on missing and repeated values, and on options that another sweeper does not have."""
        counts = Counter(option for option, _ in self.given)
        faults = [f"`{option}` must have a value, got none." for option, value in self.given if not value]
        faults += [
            f"`{option}` must be given once, got it {count} times; give one value."
            for option, count in counts.items()
            if count > 1 and option != _REPEATABLE
        ]
        if other_sweeper is not None:
            faults += [f"`{option}` must be left out under `{other_sweeper}`, got it." for option in counts]
        return faults

    def overrides(self) -> list[str]:
        """The sweeper's settings as overrides."""
        zips = [(value or "").split(",") for option, value in self.given if option == _REPEATABLE]
        single: dict[str, Any] = {option[2:]: value for option, value in self.given if option != _REPEATABLE}
        if names := single.get(_LIST[2:]):
            single[_LIST[2:]] = names.split(",")
        settings = {**({"zip": zips} if zips else {}), **single}
        return [format_override(f"hydra.sweeper.{name}", value) for name, value in settings.items()]
