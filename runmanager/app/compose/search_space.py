"""The space of a search, Hydra's own sweeps over settings, and what Optuna proposes in it, given what was tried."""

import hashlib
import itertools
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException

from runmanager.errors import ConfigurationError
from runmanager.records.settings.grid import is_seed
from runmanager.records.storage.reader import StoredRun
from runmanager.text import format_value
from runmanager.validation import fault

Point = tuple[Any, ...]
"""A point of a space, a value for each dimension: that of an interval, or the position among choices."""

Course = Mapping[int, float]
"""The values of a metric in the course of a run, by their number from 1."""

TPE, _RANDOM = "tpe", "random"
_LOG = "log"
_DIGITS = 6  # of a number that is proposed: its word is then the number itself, in names, records and arguments
_MOST_CORNERS = 64  # cells that are composed before the first run
_MOST_REPEATS = 100  # proposals of a sampler that were tried before, or are left out
_MOST_LISTED = 100_000  # points of a space that are listed to find those that are left
_KINDS = ("", ".name", "._target_")
"""What follows a setting's name in a cell's settings, which for a config group are those of the chosen file."""


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, whole ones if `is_whole`, equally likely by their logarithms if `is_log`."""

    key: str
    low: float
    high: float
    is_whole: bool = False
    is_log: bool = False

    @property
    def ends(self) -> list[str]:
        """The values at the corners, as words have them."""
        return [self.text(self.low), self.text(self.high)]

    @property
    def size(self) -> float:
        """The number of values."""
        return self.high - self.low + 1 if self.is_whole else math.inf

    @property
    def listed(self) -> Sequence[int]:
        """Every value of one that has whole numbers."""
        return range(int(self.low), int(self.high) + 1)

    def text(self, value: float) -> str:
        """Return a value as a word has it."""
        return repr(value)

    def rounded(self, value: float) -> float:
        """Return the value that is tried for a proposed one."""
        return int(value) if self.is_whole else min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)

    def find(self, value: Any) -> float | None:
        """Return a cell's value of the setting, if it lies in the interval."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_inside = is_number and self.low <= value <= self.high and (value % 1 == 0 or not self.is_whole)
        return value if is_inside else None

    def __str__(self) -> str:
        words = [*(["whole"] if self.is_whole else []), *(["by its logarithm"] if self.is_log else [])]
        return " ".join(
            [f"{self.key} from {self.low:g} to {self.high:g}", *([f"({', '.join(words)})"] if words else [])]
        )


@dataclass(frozen=True)
class Choices:
    """The values of a list, or of a range, which is in order; `texts` are those as words have them."""

    key: str
    texts: tuple[str, ...]
    values: tuple[Any, ...]
    is_ordered: bool = False

    @property
    def ends(self) -> list[str]:
        """The values at the corners: those at both ends, or all that have no order."""
        return list(dict.fromkeys((self.texts[0], self.texts[-1]))) if self.is_ordered else list(self.texts)

    @property
    def size(self) -> float:
        """The number of values."""
        return len(self.texts)

    @property
    def listed(self) -> Sequence[int]:
        """Every value."""
        return range(len(self.texts))

    def text(self, value: int) -> str:
        """Return a value as a word has it."""
        return self.texts[value]

    def rounded(self, value: int) -> int:
        """Return the value that is tried for a proposed one: itself."""
        return value

    def find(self, value: Any) -> int | None:
        """Return the position of a cell's value of the setting, if it is one of the choices."""
        alike = (at for at, each in enumerate(self.values) if _is_same(each, value))
        return next(alike, self.texts.index(value) if value in self.texts else None)

    def __str__(self) -> str:
        return f"{self.key} of {', '.join(self.texts) if len(self.texts) <= 5 else f'{len(self.texts)} values'}"


Dimension = Interval | Choices


@dataclass(frozen=True)
class Space:
    """The words of a command, of which those with several values are its dimensions, in their places."""

    parts: tuple[str | Dimension, ...]

    @property
    def dimensions(self) -> list[Dimension]:
        """The dimensions in order."""
        return [each for each in self.parts if not isinstance(each, str)]

    @property
    def keys(self) -> frozenset[str]:
        """The settings that are searched."""
        return frozenset(each.key for each in self.dimensions)

    @property
    def spare_width(self) -> int:
        """How much longer the words of a point may be than those of a corner, whose numbers are often round."""
        return sum(_DIGITS for each in self.dimensions if isinstance(each, Interval) and not each.is_whole)

    @property
    def size(self) -> float:
        """The number of points; infinite with an interval of numbers that are not whole."""
        return math.prod(each.size for each in self.dimensions)

    def points(self) -> Iterator[Point]:
        """Yield every point of a finite space."""
        return itertools.product(*(each.listed for each in self.dimensions))

    def words(self, point: Point) -> list[str]:
        """Return the words of a point: the seeds alone still have several values."""
        texts = [[each.text(value)] for each, value in zip(self.dimensions, point, strict=True)]
        return self._words(texts)

    def corners(self) -> list[list[str]]:
        """Return the words of one or more grids which together have the corners of the space.

        Of a space with many, these are two opposite ones, and each end of every dimension.
        """
        ends = [each.ends for each in self.dimensions]
        if math.prod(map(len, ends)) <= _MOST_CORNERS:
            return [self._words(ends)]
        first = [each[:1] for each in ends]
        one_by_one = ([*first[:at], each, *first[at + 1 :]] for at, each in enumerate(ends))
        return [self._words(each) for each in (*one_by_one, [each[-1:] for each in ends])]

    def has(self, name: str) -> bool:
        """Whether a cell's setting is searched, or follows from a config group that is."""
        plain = name.replace("-", "_")
        return any(f"{plain}.".startswith(f"{key.lstrip('+').replace('-', '_')}.") for key in self.keys)

    def find(self, settings: Mapping[str, Any]) -> Point | None:
        """Return the point that a cell with these flat settings is; None if it lies outside."""
        names = {name.replace("-", "_"): name for name in reversed(list(settings))} | {name: name for name in settings}
        point = []
        for each in self.dimensions:
            name = each.key.lstrip("+")
            known = (names.get(f"{spelled}{kind}") for kind in _KINDS for spelled in (name, name.replace("-", "_")))
            found = next((each for each in known if each is not None), None)
            point.append(each.find(None if found is None else settings[found]))
        return None if None in point else tuple(point)

    def _words(self, texts: Sequence[Sequence[str]]) -> list[str]:
        of_dimensions = iter(texts)
        return [each if isinstance(each, str) else f"{each.key}={','.join(next(of_dimensions))}" for each in self.parts]


def read_space(
    words: Sequence[str], texts_of: Callable[[str], Sequence[str]], *, option: str, seed_names: Sequence[str] = ()
) -> Space:
    """Return the space of a command's words; settings that are seeds are not searched.

    `texts_of` returns the values of a word that has a list of them, as its program reads it. `option` is how the user
    asks for a search. Raises `ConfigurationError` for a space without dimensions, and for one that cannot be searched.
    """
    parts: dict[str, str | Dimension] = {}
    faults: list[str] = []
    for word in words:
        key = word.partition("=")[0]
        part: str | Dimension = word
        override = _parsed(word)
        if override is not None and override.is_sweep_override() and not is_seed(key.lstrip("+"), seed_names):
            try:
                part = _dimension(override, texts_of)
            except ConfigurationError as error:
                faults += error.faults
        parts.pop(key, None)  # the last one of several applies
        parts[key] = part
    space = Space(tuple(parts.values()))
    if not space.dimensions and not faults:
        way_out = "write lr=interval(1e-4,1e-1) or batch_size=16,32,64"
        faults.append(fault(option, "have a setting with several values to search", "none", way_out))
    if faults:
        raise ConfigurationError(faults)
    return space


def _parsed(word: str) -> Override | None:
    try:
        return OverridesParser.create().parse_override(word)
    except (HydraException, ValueError, RecursionError):
        return None  # which its program reports


def _dimension(override: Override, texts_of: Callable[[str], Sequence[str]]) -> Dimension:
    word, key = override.input_line or "", override.get_key_element()
    sweep: Any = override.value()
    tags: set[str] = getattr(sweep, "tags", set())
    is_log, is_range = tags == {_LOG}, isinstance(sweep, RangeSweep)
    if tags - {_LOG}:
        raise ConfigurationError([fault(word, "have no tag but log", ", ".join(sorted(tags)))])
    if isinstance(sweep, IntervalSweep) or (is_log and is_range and sweep.step == 1):
        low, high = (sweep.start, sweep.stop - 1) if is_range else (sweep.start, sweep.end)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ConfigurationError(
                [fault(word, "be an interval between finite numbers, the lower one first", "others")]
            )
        if is_log and low <= 0:
            raise ConfigurationError([fault(word, "begin above 0 to be searched by its logarithm", f"{low:g}")])
        return Interval(key, low, high, isinstance(low, int) and isinstance(high, int), is_log)
    if is_log:
        way_out = "write tag(log,int(interval(8,64)))"
        raise ConfigurationError([fault(word, "be an interval to be searched by its logarithm", "a list", way_out)])
    texts = tuple(texts_of(word))
    return Choices(key, texts, tuple(map(_value, texts)), is_ordered=is_range and not sweep.shuffle)


def _value(text: str) -> Any:
    override = _parsed(f"x={text}")
    value = text if override is None else override.value()
    return getattr(value, "text", value)


def _is_same(one: Any, other: Any) -> bool:
    are_numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (one, other))
    return one == other if are_numbers else format_value(one) == format_value(other)


@dataclass(frozen=True)
class Trial:
    """The cells of a sweep that differ in seeds alone: their `point`, None outside of the space, and mean `value`.

    The value is None unless all cells have finished with one. `is_over`: none of them is to run. `is_finished`:
    all have finished. `counts`: they are still part of the sweep. `runs` are those of the cells by their signatures,
    None before they have begun. `pruned` is the course of a run that was pruned, None if none was.
    """

    point: Point | None
    value: float | None = None
    is_over: bool = True
    is_finished: bool = True
    counts: bool = True
    runs: Mapping[str, StoredRun | None] = field(default_factory=dict)
    pruned: Course | None = None


def propose(
    space: Space,
    trials: Sequence[Trial],
    method: str,
    *,
    more_is_better: bool,
    seed: int,
    is_left_out: Callable[[Point], bool] = lambda _: False,
) -> Iterator[Point]:
    """Yield points to try next, each after the first only where those before are left out; none if all were tried.

    A proposal that was tried already is told its known value, and another one is asked.
    """
    known = {each.point: each for each in trials if each.point is not None}
    if len(known) >= space.size:
        return
    fail = import_optuna().trial.TrialState.FAIL
    for sampler, most in ((method, _MOST_REPEATS), (_RANDOM, 10 * _MOST_REPEATS)):
        study, distributions = _study(space, known, sampler, more_is_better=more_is_better, seed=seed)
        for _ in range(most):
            asked = study.ask(distributions)
            point = tuple(each.rounded(asked.params[each.key]) for each in space.dimensions)
            if point not in known and not is_left_out(point):
                yield point
            value = known[point].value if point in known else None
            study.tell(asked, value, state=fail if value is None else None)
    if space.size <= _MOST_LISTED:
        points = [each for each in space.points() if each not in known and not is_left_out(each)]
        random.Random(seed).shuffle(points)  # noqa: S311  # to choose
        yield from points


def import_optuna() -> Any:
    """Return the module, which says warnings alone."""
    import optuna  # late: it takes two seconds

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _study(
    space: Space, known: Mapping[Point, Trial], method: str, *, more_is_better: bool, seed: int
) -> tuple[Any, dict[str, Any]]:
    """A study of Optuna that has been told what is known, and the distributions of the space."""
    optuna = import_optuna()
    # The first numbers of generators that are seeded 0, 1, 2, … lie close together.
    names = [each.key for each in space.dimensions]
    seed = int.from_bytes(hashlib.sha256(repr((names, seed)).encode()).digest()[:4])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if method == TPE:
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        else:
            sampler = optuna.samplers.RandomSampler(seed=seed)
    study = optuna.create_study(direction="maximize" if more_is_better else "minimize", sampler=sampler)
    distributions = {each.key: _distribution(each, optuna.distributions) for each in space.dimensions}
    states = optuna.trial.TrialState
    for point, trial in known.items():
        unranked = states.FAIL if trial.pruned is None else states.PRUNED
        ended = unranked if trial.is_over else states.RUNNING
        told = optuna.trial.create_trial(
            state=ended if trial.value is None else states.COMPLETE,
            params=dict(zip(distributions, point, strict=True)),
            distributions=distributions,
            value=trial.value,
            intermediate_values=dict(trial.pruned or {}),
        )
        study.add_trial(told)
    return study, distributions


def _distribution(dimension: Dimension, distributions: Any) -> Any:
    if not isinstance(dimension, Choices):
        kind = distributions.IntDistribution if dimension.is_whole else distributions.FloatDistribution
        return kind(dimension.low, dimension.high, log=dimension.is_log)
    if dimension.is_ordered:
        return distributions.IntDistribution(0, len(dimension.texts) - 1)
    return distributions.CategoricalDistribution(tuple(range(len(dimension.texts))))
