"""`--dry-run`: what is said of changed code, and how long the rest will take."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from runmanager.app.plan_table import plan_table
from runmanager.launching.plan import Action, Cell, PlannedRun
from runmanager.records.ownership import claim_run
from runmanager.records.paths import SweepPaths
from runmanager.records.run import RunRecord
from runmanager.records.states import Status
from runmanager.tracking.provenance import commit_of


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (1, "About 30s one after the other, at 10s a run so far."),
        (2, "About 20s with 2 at once, at 10s a run so far."),
        (8, "About 10s with 3 at once, at 10s a run so far."),
    ],
)
def test_the_estimate_counts_workers(tmp_path: Path, workers: int, said: str) -> None:
    sweep = SweepPaths(tmp_path / "grid")
    record = RunRecord(name="x", signature="y", status=Status.FINISHED, config={}, run_seconds=10.0)
    claim_run(sweep.run("x"), record)
    cells = [Cell(str(number), f"lr={number}-0", {}, ()) for number in range(3)]
    plan = [PlannedRun(cell, Action.START, "new", sweep.run(cell.name)) for cell in cells]
    out = io.StringIO()
    Console(width=200, file=out).print(plan_table(plan, sweep, workers=workers))
    assert said in out.getvalue()


@pytest.fixture
def at_commit(command: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Carries out a command as if the code were at a commit, which a process otherwise asks for once."""

    def run(commit: str, *words: str) -> Any:
        commit_of.cache_clear()
        return command(*words, RUNMANAGER_COMMIT=commit * 40)

    yield run
    commit_of.cache_clear()


def test_changed_code_is_named_and_rerun_where_that_is_asked_for(
    at_commit: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    words = ("-m", *tiny, "lr=0.1", "name=changed")
    assert at_commit("a", *words).status == 0
    wider = at_commit("b", *words, "lr=0.1,0.2,0.3", "hydra.launcher.workers=2", "--dry-run")
    assert "finished, with other versions: commit aaaaaaaa, now bbbbbbbb" in wider.out
    assert "3 cells: 1 keep, 2 start" in wider.out
    assert "s with 2 at once, at " in wider.out
    assert at_commit("b", *words).status == 0
    assert sweep("changed").records[0].attempt == 1
    assert at_commit("b", *words, "rerun_changed=true").status == 0
    (record,) = sweep("changed").records
    assert (record.attempt, record.environment.commit) == (2, "b" * 40)
