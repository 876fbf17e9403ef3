"""Reading of a metrics.csv as Lightning's CSVLogger writes it: columns `epoch` and `step`, and one for each metric."""

import csv
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from runmanager.errors import RecordError
from runmanager.results.program_files.metric_series import MetricSeries

__all__ = ["read_metrics_csv"]

_MAX_COLUMNS = 10_000
_MAX_NUMBER = 2**31


def read_metrics_csv(path: Path) -> dict[str, MetricSeries]:
    """Read the metrics by name; a line has values for some of them. Columns without any number are left out.

    Raises `RecordError` for a file that cannot be read as a table.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(handle, encoding="utf-8-sig", newline="") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise RecordError(f"{path} is not a regular file")
            return _read_rows(csv.reader(_whole_lines(file)))
    except (UnicodeDecodeError, csv.Error, RecursionError, ValueError) as error:
        raise RecordError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}") from None


def _whole_lines(file: Iterable[str]) -> Iterable[str]:
    """Yield the lines without a torn last one, whose last number may have lost digits."""
    for line in file:
        if "\0" in line:
            raise ValueError("a line contains a null byte")
        if line.endswith(("\n", "\r")):
            yield line


def _read_rows(rows: Iterator[list[str]]) -> dict[str, MetricSeries]:
    """Read the rows; a short one of a wide table takes as long as it is itself."""
    header = next(rows, [])
    if len(header) > _MAX_COLUMNS:
        raise ValueError(f"it has {len(header):,} columns, at most {_MAX_COLUMNS:,} are read")
    metrics = {name: MetricSeries(name) for name in header if name not in ("", "epoch", "step")}
    filled: set[str] = set()
    for row in rows:
        values = dict(zip(header, row, strict=False))
        epoch, step = _whole_number(values, "epoch"), _whole_number(values, "step")
        for name, text in values.items():
            if (value := _number(text)) is not None and (series := metrics.get(name)) is not None:
                series.add(value, step=step, epoch=epoch)
                filled.add(name)
    return {name: series for name, series in metrics.items() if name in filled}


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except (TypeError, ValueError):
        return None  # text, or a torn last line


def _whole_number(row: Mapping[str, str], name: str) -> int | None:
    number = _number(row.get(name))
    is_whole = number is not None and math.isfinite(number) and number.is_integer() and 0 <= number < _MAX_NUMBER
    return int(number) if is_whole and number is not None else None
