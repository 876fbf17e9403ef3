"""`--scalar NAME=REGEX`: a number that a script prints."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runmanager.errors import ConfigurationError
from runmanager.text import hidden_character


@dataclass(frozen=True)
class ScalarPattern:
    """The name of a metric, and the expression that finds its values: one group, or two for a fraction.

    A group that takes in a percent sign is a percentage: `0.3%` is 0.003. A sign after the group does not count.
    """

    name: str
    expression: re.Pattern[str]

    def values(self, line: str) -> Iterator[float | str]:
        """Yield the value of each match in a line; the matched text if it is not a number."""
        for match in self.expression.finditer(line):
            try:
                numbers = [_number(group) for group in match.groups()]
                yield numbers[0] if len(numbers) == 1 else numbers[0] / numbers[1]
            except (AttributeError, ValueError, ZeroDivisionError):  # AttributeError: a group that took no part
                yield match[0]


def _number(text: str) -> float:
    """Return a number or a percentage. Raises `AttributeError` for None, `ValueError` for any other text."""
    number = text.rstrip().removesuffix("%")
    return float(number) if number == text.rstrip() else float(number) / 100


def parse_scalars(options: Sequence[str]) -> list[ScalarPattern]:
    """Parse the values of `--scalar`. Raises `ConfigurationError` with every invalid one."""
    patterns: dict[str, ScalarPattern] = {}
    faults = []
    for option in options:
        name, given, regex = option.partition("=")
        name = name.strip()
        if not given or not name:
            faults.append(f"`--scalar {option}` must be NAME=REGEX, got no {'name' if given else 'expression'}.")
            continue
        if hidden := hidden_character(name):
            faults.append(
                f"`--scalar {option}` must have a name of visible characters, got {name!r} with {hidden}; leave it out."
            )
            continue
        if name in patterns:
            faults.append(f"`--scalar {name}=…` must be given once, got it twice; join the expressions with `|`.")
        try:
            expression = re.compile(regex)
        except (re.error, OverflowError, RecursionError) as error:
            faults.append(f"`--scalar {option}` must be a regular expression, got what cannot be compiled: {error}.")
            continue
        if expression.groups not in (1, 2):
            faults.append(
                f"`--scalar {option}` must have one group, the value, or two, a fraction, got {expression.groups}; "
                "(?:…) groups without counting."
            )
        patterns[name] = ScalarPattern(name, expression)
    if faults:
        raise ConfigurationError(faults)
    return list(patterns.values())
