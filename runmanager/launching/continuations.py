"""Runs of a plan that continue a finished run with fewer epochs, instead of starting with the first epoch."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from runmanager.launching.plan import Action, Cell, Code, Continuation, PlannedRun, lost_epochs
from runmanager.records.run.environment_changes import changed_code
from runmanager.records.run.run_record import Environment, RunRecord
from runmanager.records.run.status import Reason
from runmanager.records.settings.signature import UNSIGNED, signature
from runmanager.records.storage.reader import StoredRun

_EPOCHS = "epochs"


def with_continuations(
    plan: Sequence[PlannedRun],
    stored: Sequence[StoredRun],
    *,
    now: Environment,
    code_of: Callable[[Code], Code],
    obstacle: Callable[[Cell, RunRecord], str],
) -> list[PlannedRun]:
    """Let new runs of `plan` continue a finished run with fewer epochs, where that computes the same.

    The longest of the `stored` runs whose settings are the cell's but for fewer epochs is taken. Where that is not
    possible, the plan says why. `now` and `code_of` are those of `plan_runs`; `obstacle` is the program's own.
    """
    found = _Finished(stored)
    if found.is_empty:
        return list(plan)
    return [_continued(each, found, now, code_of, obstacle) if _begins(each) else each for each in plan]


def _begins(run: PlannedRun) -> bool:
    """Whether a run begins with its first epoch, but for one that is to repeat a finished run."""
    is_repeated = run.stored is not None and run.stored.is_complete
    # The folder of a run that cannot be read exists without a record in the plan.
    is_damaged = run.stored is None and run.paths.record.exists()
    return run.action in (Action.START, Action.START_AGAIN) and not is_repeated and not is_damaged


class _Finished:
    """The finished runs of a sweep by their settings without the number of epochs."""

    def __init__(self, stored: Sequence[StoredRun]) -> None:
        self._runs = [run for run in stored if run.is_complete and not run.is_adopted and _epochs(run.record.config)]
        self._by_settings: dict[str, list[StoredRun]] | None = None

    @property
    def is_empty(self) -> bool:
        return not self._runs

    def shorter_than(self, cell: Cell) -> list[StoredRun]:
        """Return the runs that differ from the cell in having fewer epochs alone, the longest first."""
        epochs = _epochs(cell.config)
        if not any(_epochs(run.record.config) < epochs for run in self._runs):
            return []
        if self._by_settings is None:
            self._by_settings = defaultdict(list)
            for run in self._runs:
                self._by_settings[_settings(run.record.config, run.record.unsigned)].append(run)
        equal = self._by_settings.get(_settings(cell.config, cell.unsigned), [])
        shorter = [run for run in equal if _epochs(run.record.config) < epochs]
        return sorted(shorter, key=lambda run: _epochs(run.record.config), reverse=True)


def _epochs(config: Mapping[str, Any]) -> int:
    epochs = config.get(_EPOCHS)
    return epochs if isinstance(epochs, int) else 0


def _settings(config: Mapping[str, Any], unsigned: tuple[str, ...] | None) -> str:
    return signature(config, unsigned={*(UNSIGNED if unsigned is None else unsigned), _EPOCHS})


def _continued(
    run: PlannedRun,
    finished: _Finished,
    now: Environment,
    code_of: Callable[[Code], Code],
    obstacle: Callable[[Cell, RunRecord], str],
) -> PlannedRun:
    obstacles: list[tuple[StoredRun, str]] = []
    for shorter in finished.shorter_than(run.cell):
        name, record = shorter.name, shorter.record
        reason = _obstacle(shorter, now, code_of) or obstacle(run.cell, record)
        if not reason:
            why = f"{run.why}; continues {name} after epoch {_epochs(record.config)}"
            return replace(run, action=Action.CONTINUE, why=why, continuation=Continuation(shorter.folder))
        obstacles.append((shorter, reason))
    if not obstacles:
        return run
    shorter, reason = obstacles[0]
    why = f"{run.why}; does not continue {shorter.name}: {reason}"
    return replace(run, why=why, continuation=Continuation(shorter.folder, obstacle=reason))


def _obstacle(shorter: StoredRun, now: Environment, code_of: Callable[[Code], Code]) -> str:
    """Say what keeps any run from continuing this one; empty if nothing does."""
    if shorter.record.reason is Reason.EARLY_STOPPED:
        return "it was stopped early, and would be again"
    if not shorter.paths.checkpoint.exists():
        return "it has no checkpoint"
    if next(lost_epochs([shorter]), None) is not None:
        return "it has lost epochs"
    then = shorter.record.environment
    code = code_of(then.code)
    today = msgspec.structs.replace(now, code=None if code is None else dict(code))
    return changed_code(then, today)
