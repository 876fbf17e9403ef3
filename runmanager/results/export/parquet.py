"""Export to Parquet (`export --to parquet`): the three tables of a sweep."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runmanager.records.files.atomic_files import replacement
from runmanager.records.files.paths import SweepPaths
from runmanager.results.export.incremental import ExportResult, distinct_names, import_optional
from runmanager.results.sweep import Sweep

if TYPE_CHECKING:
    import pandas as pd

_MAX_INTEGER = 2**63 - 1


def export_to_parquet(paths: SweepPaths, *, folder: Path | None = None) -> ExportResult:
    """Write runs.parquet, epochs.parquet and comparison.parquet atomically into `folder` (None: the sweep's folder).

    A setting that is a number in one run and a text in another becomes text, and so do lists and integers that need
    more than 64 bits. Columns that differ only in case get numbers, because many readers take them for one.
    Raises `UsageError` if pyarrow is not installed.
    """
    import_optional("pyarrow", extra="parquet")
    into = folder or paths.root
    into.mkdir(parents=True, exist_ok=True)
    sweep = Sweep(paths.root)
    tables = {"runs": sweep.runs, "epochs": sweep.epochs, "comparison": sweep.compare()}
    changed: dict[str, str] = {}
    for name, frame in tables.items():
        columns = distinct_names(frame.columns, str, is_same_in_any_case=True)
        changed |= {column: given for column, given in columns.items() if column != given}
        with replacement(into / f"{name}.parquet") as file:
            _with_uniform_types(frame).rename(columns=columns).to_parquet(file, engine="pyarrow", index=False)
    told = ", ".join(f"{column} is {given}" for column, given in changed.items())
    changes = (f"Other names in Parquet, where columns must differ in more than case: {told}.",) if told else ()
    return ExportResult(f"{into} ({', '.join(f'{name}.parquet' for name in tables)})", len(sweep.runs), changes=changes)


def _with_uniform_types(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Convert columns without one type of Parquet to text: several types, lists, mappings, or very large integers."""
    as_text = [name for name in frame.columns if frame[name].dtype == object and not _have_type(frame[name].dropna())]
    return frame.assign(**{name: frame[name].map(_text, na_action="ignore") for name in as_text})


def _have_type(values: Iterable[Any]) -> bool:
    kinds = {type(value) for value in values}
    are_too_large = kinds == {int} and any(abs(value) > _MAX_INTEGER for value in values)
    return len(kinds) <= 1 and not any(issubclass(kind, list | dict) for kind in kinds) and not are_too_large


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
