"""Differences between two runs: settings, code, packages, hardware, metrics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.records.run.environment_changes import changed_files
from runmanager.records.run.run_record import Environment
from runmanager.records.storage.reader import StoredRun
from runmanager.results.load.run_summary import SUMMARY_COLUMNS, last_metrics, logged_values, summarize_run
from runmanager.results.table_model.columns import MISSING, rate_name
from runmanager.results.table_model.formatting import CODE, MACHINE, PYTHON, Section, human
from runmanager.text import format_value

_STATES = ("status", "reason")
_BY_DIFFERENCE = ("accuracy", "val_accuracy", "loss", "val_loss", "epochs")
"""Metrics whose change is a difference; that of the others is a ratio."""
_NOT_METRICS = (*_STATES, "device_name", "started_at")
_METRICS, _LOGGED, _RATES = "metrics", "logged", "throughput"  # kinds of measured values
_MAX_CHARACTERS = 40  # longer values are cut; the files have them whole


@dataclass(frozen=True)
class Difference:
    """A difference: its kind, its name and the two values; None is unknown or not set."""

    kind: str
    name: str
    one: Any
    other: Any

    @property
    def is_measured(self) -> bool:
        """Whether the values were measured, so that noise alone may make a difference."""
        return self.kind in (_METRICS, _LOGGED, _RATES)

    @property
    def change(self) -> str:
        """The change of a metric from the first run to the other; empty for other kinds."""
        if not self.is_measured or not isinstance(self.one, int | float) or not isinstance(self.other, int | float):
            return ""
        step = self.other - self.one
        if self.kind == _LOGGED:
            return f"{step:+#.4g}"
        if self.name in _BY_DIFFERENCE:
            return f"{step:+d}" if isinstance(step, int) else f"{step:+.4f}"
        return f"x {self.other / self.one:.3g}" if self.one else ""


def diff_runs(one: StoredRun, other: StoredRun) -> list[Difference]:
    """Return the differences between two runs, kind by kind."""
    metrics = [_metrics(run) for run in (one, other)]
    states = [{name: values.pop(name) for name in _STATES} for values in metrics]
    logged = [last_metrics(run.epochs) | (run.record.summary or {}) for run in (one, other)]
    in_both = one.choices.keys() & other.choices.keys()  # an earlier version recorded none
    # What a program logs under the name of a metric fills that metric's column, unless the run computed its own.
    others = [
        {name: value for name, value in values.items() if value != known.get(name)}
        for values, known in zip(logged, metrics, strict=True)
    ]
    choices = [{name: each.choices[name] for name in each.choices if name in in_both} for each in (one, other)]
    return [
        *_differing("state", *states),
        *_differing("settings", *choices),
        *_differing("settings", one.record.settings, other.record.settings),
        *diff_environments(one.record.environment, other.record.environment),
        *_differing(_METRICS, *metrics),
        *_differing(_LOGGED, *others),
        *_differing(_RATES, *(_rates(run) for run in (one, other))),
    ]


def diff_environments(one: Environment, other: Environment) -> list[Difference]:
    """Return the differences in code, packages and hardware."""
    files = changed_files((one, other))
    codes = [{name: (each.code or {})[name] or None for name in files} for each in (one, other)]
    return [
        *_differing("code", _facts(one, CODE), _facts(other, CODE)),
        *_differing("code", *codes),
        *_differing("packages", {**_facts(one, PYTHON), **one.libraries}, {**_facts(other, PYTHON), **other.libraries}),
        *_differing("hardware", _facts(one, MACHINE), _facts(other, MACHINE)),
    ]


def _metrics(run: StoredRun) -> dict[str, Any]:
    values = dict(zip(SUMMARY_COLUMNS, summarize_run(run, ()).values, strict=True))
    return {name: value for name, value in values.items() if name in _STATES or name not in _NOT_METRICS}


def _rates(run: StoredRun) -> dict[str, float | None]:
    names, values = logged_values(run)
    return {rate_name(unit): rate for unit, rate in zip(names.units, values[len(names.metrics) :], strict=True)}


def _facts(environment: Environment, facts: Iterable[tuple[str, str]]) -> dict[str, Any]:
    return {label: value for name, label in facts if (value := getattr(environment, name)) not in (None, "")}


def _differing(kind: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    return [
        Difference(kind, name, one.get(name), other.get(name))
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name)
    ]


def difference_sections(differences: Sequence[Difference], *, names: tuple[str, str] = ("", "")) -> list[Section]:
    """Format the differences for people, a section a kind, under the `names` of the two runs."""
    sections = []
    for kind in dict.fromkeys(each.kind for each in differences):
        rows = [
            (each.name, _field(each.one, each), _field(each.other, each), each.change)
            for each in differences
            if each.kind == kind
        ]
        sections.append(Section(kind.capitalize(), rows, ("", *names)))
    return sections


def _field(value: Any, difference: Difference) -> str:
    if value is None and difference.kind != "settings":
        return MISSING
    column = difference.name if difference.kind == _METRICS else "loss"  # any measurement, of which no name is known
    text = human(value, column) if difference.is_measured else format_value(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"


def difference_document(one: StoredRun, other: StoredRun) -> dict[str, Any]:
    """Return an object with the folders of the two runs, and by kind the differences, as the two values by name."""
    found: dict[str, Any] = {"runs": [str(run.paths.root) for run in (one, other)]}
    for each in diff_runs(one, other):
        found.setdefault(each.kind, {})[each.name] = [each.one, each.other]
    return found
