"""Planned runs that continue a finished run with fewer epochs, given what is stored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runmanager.launching.continuations import with_continuations
from runmanager.launching.plan import Action, Cell, Continuation, PlannedRun, PlanRules, plan_runs
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import Environment, RunRecord
from runmanager.records.run.status import Reason, Status
from runmanager.records.settings.signature import signature
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import read_record, read_sweep
from runmanager.records.storage.versioned_file import encode_record

THEN = Environment(commit="0123456789abcdef", libraries={"torch": "2.15.0", "numpy": "2.3"}, code={"own.py": "aa"})


def cell(epochs: int, lr: float = 0.1) -> Cell:
    config = {"lr": lr, "epochs": epochs, "checkpoint": {"every": epochs}}
    return Cell(signature(config), f"lr={lr},epochs={epochs}", config, (), epochs=epochs)


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    return SweepPaths(tmp_path / "grid")


@pytest.fixture
def store(sweep: SweepPaths) -> Callable[..., None]:
    """Write the run of a cell to disk."""

    def put(
        of: Cell, status: Status = Status.FINISHED, reason: Reason | None = None, *, checkpoint: bool = True
    ) -> None:
        record = RunRecord(
            name=of.name,
            signature=of.signature,
            status=status,
            reason=reason,
            config=dict(of.config),
            owner=ProcessIdentity.current(),
            environment=THEN,
        )
        folder = claim_run(sweep.run(of.name), record)
        folder.close()
        if checkpoint:
            folder.paths.checkpoint.touch()

    return put


def plan(
    sweep: SweepPaths, *cells: Cell, now: Environment = THEN, obstacle: Any = lambda *_: "", code: str = "aa"
) -> list[PlannedRun]:
    stored = read_sweep(sweep).runs if sweep.root.exists() else []
    code_of = lambda then: None if then is None else dict.fromkeys(then, code)  # noqa: E731
    planned = plan_runs(cells, stored, sweep, PlanRules(now, code_of=code_of))
    return with_continuations(planned, stored, now=now, code_of=code_of, obstacle=obstacle)


def test_a_new_cell_continues_the_longest_finished_run_of_its_settings(
    sweep: SweepPaths, store: Callable[..., None]
) -> None:
    for each in (cell(2), cell(4), cell(9), cell(5, lr=0.2)):
        store(each)
    (longer,) = plan(sweep, cell(6))
    assert (longer.action, longer.continuation) == (Action.CONTINUE, Continuation(cell(4).name))
    assert longer.why == f"new; continues {cell(4).name} after epoch 4"
    assert longer.is_to_run and longer.stored is None
    (shorter, other, kept) = plan(sweep, cell(1), cell(6, lr=0.3), cell(4))
    assert [each.action for each in (shorter, other, kept)] == [Action.START, Action.START, Action.KEEP]
    assert shorter.continuation is other.continuation is kept.continuation is None


def test_a_cell_never_waits_for_a_shorter_one_of_the_same_command(sweep: SweepPaths) -> None:
    assert [each.action for each in plan(sweep, cell(3), cell(6))] == [Action.START, Action.START]


@pytest.mark.parametrize("status", [Status.RUNNING, Status.KILLED, Status.FAILED, Status.SKIPPED])
def test_only_finished_runs_are_continued(sweep: SweepPaths, store: Callable[..., None], status: Status) -> None:
    store(cell(3), status)
    (longer,) = plan(sweep, cell(6))
    assert (longer.action, longer.why, longer.continuation) == (Action.START, "new", None)


def test_a_run_that_has_lost_epochs_is_not_continued(sweep: SweepPaths, store: Callable[..., None]) -> None:
    store(cell(3))
    paths = sweep.run(cell(3).name)
    record = msgspec.structs.replace(read_record(paths), num_records=3)
    paths.record.write_bytes(encode_record(record))
    paths.epochs.write_text("{}\n{}\n")
    (longer,) = plan(sweep, cell(6))
    assert (longer.action, longer.why) == (Action.START, f"new; does not continue {cell(3).name}: it has lost epochs")


CHANGED = Environment(commit=THEN.commit, libraries={"torch": "2.16.0", "numpy": "2.3"})
COMMITTED = Environment(commit="another", libraries=THEN.libraries)


@pytest.mark.parametrize(
    ("stored", "options", "reason"),
    [
        ({"checkpoint": False}, {}, "it has no checkpoint"),
        ({"reason": Reason.EARLY_STOPPED}, {}, "it was stopped early, and would be again"),
        ({}, {"code": "bb"}, "its code has changed (own.py)"),
        ({}, {"now": CHANGED}, "it was made with torch 2.15.0, now 2.16.0"),
        ({}, {"obstacle": lambda *_: "the rates differ"}, "the rates differ"),
    ],
)
def test_the_plan_says_why_a_cell_starts_with_its_first_epoch(
    sweep: SweepPaths, store: Callable[..., None], stored: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    store(cell(3), **stored)
    (longer,) = plan(sweep, cell(6), **options)
    assert (longer.action, longer.why) == (Action.START, f"new; does not continue {cell(3).name}: {reason}")
    assert longer.continuation == Continuation(cell(3).name, obstacle=reason)


def test_another_commit_with_the_same_files_is_no_obstacle(sweep: SweepPaths, store: Callable[..., None]) -> None:
    store(cell(3))
    (longer,) = plan(sweep, cell(6), now=COMMITTED)
    assert longer.action is Action.CONTINUE


def test_a_shorter_run_serves_where_a_longer_one_cannot(sweep: SweepPaths, store: Callable[..., None]) -> None:
    store(cell(2))
    store(cell(4), checkpoint=False)
    (longer,) = plan(sweep, cell(6))
    assert longer.continuation == Continuation(cell(2).name)


@pytest.mark.parametrize(
    ("status", "action"),
    [
        (Status.SKIPPED, Action.CONTINUE),
        (Status.FAILED, Action.CONTINUE),
        (Status.CRASHED, Action.CONTINUE),
        (Status.RUNNING, Action.LEAVE),
        (Status.FINISHED, Action.KEEP),
    ],
)
def test_a_stored_run_that_would_start_again_continues(
    sweep: SweepPaths, store: Callable[..., None], status: Status, action: Action
) -> None:
    store(cell(3))
    store(cell(6), status, checkpoint=False)
    (longer,) = plan(sweep, cell(6))
    assert longer.action is action
