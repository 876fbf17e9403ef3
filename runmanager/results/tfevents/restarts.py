"""Which values count of a folder with several event files: a process that resumes a run writes some of them again."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

__all__ = ["Series", "WrittenFile", "drop_from", "values_that_count"]

_NEVER = 1 << 63  # above every step


@dataclass(frozen=True)
class Series:
    """The values of a tag in the order written, with their steps and times (in seconds since 1970)."""

    steps: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))
    times: "array[float]" = field(default_factory=lambda: array("d"))


@dataclass(frozen=True)
class WrittenFile:
    """The scalars that a process wrote to one event file by tag, and the times of its first and its last event.

    `session_step` is the lowest step of its session-start records, which PyTorch's writer makes of `purge_step`; None
    without.
    """

    begin: float
    end: float
    scalars: dict[str, Series]
    session_step: int | None = None


def values_that_count(files: Iterable[WrittenFile]) -> tuple[dict[str, Series], dict[str, int]]:
    """Return the values of each tag that count, and how many of each tag were written again without a session start.

    A session start at a step replaces all that earlier files have from this step on, as in TensorBoard. A file without
    one replaces, of each tag that it has at several steps, what it wrote again: all from its first step on, in files
    whose last event came before its own first one. So nothing is replaced by a process that wrote at the same time, nor
    by a tag with a single step, such as a test at step 0. Values are in the order of their files' beginnings.
    """
    ordered = sorted(files, key=lambda file: file.begin)
    begins = [file.begin for file in ordered]
    purged = _lowest_from(_NEVER if file.session_step is None else file.session_step for file in ordered)
    counted: dict[str, Series] = {}
    replaced: dict[str, int] = {}
    for tag in dict.fromkeys(tag for file in ordered for tag in file.scalars):
        rewritten = _lowest_from(_first_rewritten(file, tag) for file in ordered)
        parts: list[Series] = []
        for number, file in enumerate(ordered):
            if (series := file.scalars.get(tag)) is not None:
                kept = drop_from(series, purged[number + 1])
                parts.append(drop_from(kept, rewritten[bisect_right(begins, file.end)]))
                if (num_replaced := len(kept.steps) - len(parts[-1].steps)) > 0:
                    replaced[tag] = replaced.get(tag, 0) + num_replaced
        if (whole := _joined([part for part in parts if part.steps])) is not None:
            counted[tag] = whole
    return counted, replaced


def _first_rewritten(file: WrittenFile, tag: str) -> int:
    """Return the step from which a file without a session start replaces the values of earlier ones."""
    series = file.scalars.get(tag)
    if series is None or file.session_step is not None:
        return _NEVER
    first = min(series.steps)
    return first if first < max(series.steps) else _NEVER


def _lowest_from(steps: Iterable[int]) -> list[int]:
    """Return the lowest of all steps from each place on, and at the end that of none."""
    return [*accumulate(reversed([*steps, _NEVER]), min)][::-1]


def drop_from(series: Series, step: int) -> Series:
    """Return the values before `step`."""
    if max(series.steps, default=-_NEVER) < step:
        return series
    kept = [place for place, at in enumerate(series.steps) if at < step]
    steps, values, times = series.steps, series.values, series.times
    return Series(
        array("q", [steps[place] for place in kept]),
        array("d", [values[place] for place in kept]),
        array("d", [times[place] for place in kept]),
    )


def _joined(parts: Sequence[Series]) -> Series | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    whole = Series()
    for part in parts:
        whole.steps.extend(part.steps)
        whole.values.extend(part.values)
        whole.times.extend(part.times)
    return whole
