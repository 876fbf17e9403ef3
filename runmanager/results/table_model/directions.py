"""Which direction of a metric is better: as requested, else as the runs declare, else by the words of its name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runmanager.errors import UsageError
from runmanager.records.run.metric_direction import BETTER, is_larger_better, parse_better
from runmanager.records.storage.reader import StoredRun
from runmanager.validation import fault

__all__ = ["Directions"]


@dataclass(frozen=True)
class Directions:
    """The directions that runs declare: of each metric, `min` or `max` with the first run that declared it."""

    declared: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of_runs(cls, runs: Iterable[StoredRun]) -> "Directions":
        """Collect the directions that these runs declare."""
        return cls.collected((run.record.name, (run.record.better or {}).items()) for run in runs)

    @classmethod
    def collected(cls, runs: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> "Directions":
        """Collect them from the name of each run, and its declared directions by metric; other words are ignored."""
        declared: dict[str, dict[str, str]] = {}
        for run, directions in runs:
            for metric, word in directions:
                if word in BETTER:
                    declared.setdefault(metric, {}).setdefault(parse_better(word), run)
        return cls(declared)

    def of_columns(self, names: Mapping[str, str]) -> "Directions":
        """Return them by column, given the metric of each column."""
        return Directions({column: self.declared[name] for column, name in names.items() if name in self.declared})

    def known(self, metric: str) -> bool | None:
        """Return whether larger values are better; None where that is not known, or the runs contradict each other."""
        words = self.declared.get(metric, {})
        return None if len(words) > 1 else is_larger_better(metric, {metric: next(iter(words))} if words else {})

    def required(self, metric: str, *, better: str | None = None, shown: str | None = None) -> bool:
        """Return whether larger values are better; `better` is one of `BETTER` and comes first.

        `shown` is what errors call the metric where it was asked for by another name than its own.

        Raises `UsageError` where the runs contradict each other, and where nothing tells.
        """
        found = self.known(metric) if better is None else BETTER[better]
        if found is not None:
            return found
        if words := self._words(metric):
            problem, got = "which the runs declare differently", " and ".join(words)
        else:
            problem, got = "whose name does not tell which is better", "none"
        raise UsageError(fault("--better", f"be max or min for '{shown or metric}', {problem}", got))

    def notes(self) -> list[str]:
        """Describe the metrics of which runs declare both directions, one line each."""
        return [
            f"The runs declare different directions of {metric}: {' and '.join(words)}."
            for metric in self.declared
            if len(words := self._words(metric)) > 1
        ]

    def _words(self, metric: str) -> list[str]:
        return [f"{word} ({run})" for word, run in self.declared.get(metric, {}).items()]
