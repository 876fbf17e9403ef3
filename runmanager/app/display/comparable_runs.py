"""Finished runs of a sweep that tell how long another run takes: those whose settings make as much work."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from runmanager.app.display.eta import EndedRun
from runmanager.app.display.run_line import planned_epochs
from runmanager.launching.plan import Cell, plan_of
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.values import hashable

__all__ = ["ComparableRuns"]

_EPOCHS = "epochs"
_FREE = frozenset(
    (
        *("seed", "lr", "learning_rate", "min_lr", "weight_decay", "wd", "momentum", "nesterov", "dampening"),
        *("beta", "betas", "beta1", "beta2", "eps", "alpha", "gamma", "temperature", "dropout", "label_smoothing"),
    )
)
"""Settings that change a run's results and hardly its time, by the last part of their names."""


class ComparableRuns:
    """The finished and timed runs among some records, by the settings that decide how long a run takes."""

    def __init__(self, records: Sequence[RunRecord]) -> None:
        self._by_run: dict[frozenset[Any], list[EndedRun]] = defaultdict(list)
        self._by_epoch: dict[frozenset[Any], list[EndedRun]] = defaultdict(list)
        for record in records:
            if record.status is Status.FINISHED and record.run_seconds is not None:
                ended = EndedRun(record.run_seconds, planned_epochs(record))
                self._by_run[_work(record.settings)].append(ended)
                if ended.epochs:
                    self._by_epoch[_work(record.settings, apart_from=_EPOCHS)].append(ended)

    def __bool__(self) -> bool:
        return bool(self._by_run)

    def like(self, cell: Cell) -> list[EndedRun]:
        """Return the runs that do the work of `cell`, if its number of epochs is known but for that number."""
        settings = plan_of(cell, cell.name).settings
        if cell.epochs:
            return self._by_epoch.get(_work(settings, apart_from=_EPOCHS), [])
        return self._by_run.get(_work(settings), [])


def _work(settings: Mapping[str, Any], *, apart_from: str = "") -> frozenset[Any]:
    return frozenset(
        (name, hashable(value))
        for name, value in settings.items()
        if name != apart_from and name.rpartition(".")[2].replace("-", "_") not in _FREE
    )
