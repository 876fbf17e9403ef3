"""The plan of a sweep, given what is stored of it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runmanager.errors import RecordError
from runmanager.launching.plan import Action, Cell, PlannedRun, PlanRules, Resume, is_still_to_run, plan_runs
from runmanager.records.files.paths import RunPaths, SweepPaths, refuse_linked_run
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import Environment, EpochRecord, RunRecord
from runmanager.records.run.status import Reason, Status
from runmanager.records.settings.signature import short_signature, signature
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import Damage, StoredRun, read_sweep

THEN = Environment(commit="0123456789abcdef", libraries={"torch": "2.15.0", "numpy": "2.3"})


def cell(lr: float, name: str | None = None) -> Cell:
    config = {"lr": lr}
    return Cell(signature(config), name or f"lr={lr}-{signature(config)[:8]}", config, (f"lr={lr}",))


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    return SweepPaths(tmp_path / "grid")


@pytest.fixture
def store(sweep: SweepPaths) -> Callable[..., StoredRun]:
    """Write a run of `cell(0.1)` to disk and read it as a new command does."""

    def put(
        status: Status, reason: Reason | None = None, *, epochs: int = 0, checkpoint: bool = False, name: str = "kept"
    ) -> StoredRun:
        record = RunRecord(
            name=name,
            signature=cell(0.1).signature,
            status=status,
            reason=reason,
            config={"lr": 0.1},
            owner=ProcessIdentity.current(),
            environment=THEN,
        )
        folder = claim_run(sweep.run(name), record)
        for epoch in range(1, epochs + 1):
            folder.append(EpochRecord(epoch=epoch))
        folder.close()
        if checkpoint:
            folder.paths.checkpoint.touch()
        (run,) = (run for run in read_sweep(sweep).runs if run.record.name == name)
        return run

    return put


def plan_one(sweep: SweepPaths, *stored: StoredRun, damaged: Iterable[Damage] = (), **rules: Any) -> PlannedRun:
    (planned,) = plan_runs([cell(0.1)], stored, sweep, PlanRules(**{"now": THEN, **rules}), damaged=damaged)
    return planned


def test_a_new_cell_starts_in_a_folder_of_its_name(sweep: SweepPaths) -> None:
    planned = plan_one(sweep)
    assert (planned.action, planned.why, planned.is_to_run) == (Action.START, "new", True)
    assert planned.paths.name == f"lr_0.1-{short_signature(planned.cell.signature)}"
    assert planned.name == planned.pending_record().name == cell(0.1).name


@pytest.mark.parametrize(
    ("status", "reason", "checkpoint", "action", "why"),
    [
        (Status.FINISHED, None, True, Action.KEEP, "finished"),
        (Status.FINISHED, Reason.EARLY_STOPPED, True, Action.KEEP, "finished (early_stopped)"),
        (Status.KILLED, Reason.SIGNAL, True, Action.RESUME, "killed (signal) after epoch 2"),
        (Status.KILLED, Reason.INTERRUPTED, True, Action.RESUME, "killed (interrupted) after epoch 2"),
        (Status.KILLED, Reason.INTERRUPTED, False, Action.START_AGAIN, "killed (interrupted)"),
        (Status.CRASHED, Reason.VANISHED, True, Action.RESUME, "crashed (vanished) after epoch 2"),
        (Status.CRASHED, Reason.VANISHED, False, Action.START_AGAIN, "crashed (vanished)"),
        (Status.FAILED, Reason.EXCEPTION, True, Action.START_AGAIN, "failed (exception)"),
        (Status.FAILED, Reason.DIVERGED, False, Action.START_AGAIN, "failed (diverged)"),
        (Status.SKIPPED, Reason.DEVICE_UNAVAILABLE, False, Action.START, "skipped (device_unavailable); tried again"),
        (Status.PENDING, None, False, Action.START_AGAIN, "pending"),
    ],
)
@pytest.mark.parametrize("resume", [Resume.AUTO, Resume.MUST])
def test_each_state_has_its_action(
    sweep: SweepPaths,
    store: Callable[..., StoredRun],
    status: Status,
    reason: Reason | None,
    checkpoint: bool,
    action: Action,
    why: str,
    resume: Resume,
) -> None:
    run = store(status, reason, epochs=2, checkpoint=checkpoint)
    planned = plan_one(sweep, run, resume=resume)
    assert (planned.action, planned.why) == (action, why)
    assert planned.is_to_run is (action is not Action.KEEP)
    again = plan_one(sweep, run, resume=Resume.NEVER)
    assert again.action is Action.START_AGAIN and again.why.endswith("; resume=never")


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ("NoRoomError: run.json must find room on the disk at /", Action.RESUME),
        ("OSError: [Errno 28] No space left on device: 'own.txt'", Action.RESUME),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", Action.RESUME),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'own.txt'", Action.START_AGAIN),
        ("ValueError: OSError: [Errno 28]", Action.START_AGAIN),
    ],
)
def test_a_run_goes_on_if_the_machine_refused_something(
    sweep: SweepPaths, store: Callable[..., StoredRun], message: str, action: Action
) -> None:
    run = store(Status.FAILED, Reason.EXCEPTION, epochs=2, checkpoint=True)
    failed = msgspec.structs.replace(run.record, message=message)
    planned = plan_one(sweep, StoredRun(run.paths, failed, run.epochs))
    assert planned.action is action and planned.why.startswith("failed (exception)")


@pytest.mark.parametrize("resume", list(Resume))
def test_a_run_of_another_process_is_left_alone(
    sweep: SweepPaths, store: Callable[..., StoredRun], resume: Resume
) -> None:
    run = store(Status.RUNNING, checkpoint=True)
    planned = plan_one(sweep, run, resume=resume)
    assert (planned.action, planned.is_to_run) == (Action.LEAVE, False)
    assert planned.why == f"running in process {ProcessIdentity.current().pid}"


def test_a_run_on_another_host_is_left_alone_and_reported(sweep: SweepPaths, store: Callable[..., StoredRun]) -> None:
    run = store(Status.RUNNING, checkpoint=True)
    remote = ProcessIdentity(pid=7, start_ticks=1, boot_id="other", host="elsewhere")
    planned = plan_one(sweep, StoredRun(run.paths, msgspec.structs.replace(run.record, owner=remote), run.epochs))
    assert planned.action is Action.LEAVE
    assert planned.why == "running in process 7 on elsewhere, by its own record; taken over if it shows no sign of life"


def test_resuming_with_other_versions_is_reported(sweep: SweepPaths, store: Callable[..., StoredRun]) -> None:
    now = Environment(libraries={"torch": "2.15.0"})
    run = store(Status.KILLED, Reason.SIGNAL, epochs=2, checkpoint=True)
    then = msgspec.structs.replace(run.record, environment=Environment(libraries={"torch": "2.14.0"}))
    planned = plan_one(sweep, StoredRun(run.paths, then, run.epochs), now=now)
    why = "killed (signal) after epoch 2, made with other versions: torch 2.14.0, now 2.15.0"
    assert (planned.action, planned.why) == (Action.RESUME, why)


def test_every_status_has_a_plan(sweep: SweepPaths, store: Callable[..., StoredRun]) -> None:
    assert {plan_one(sweep, store(status, name=status)).action for status in Status} <= set(Action)


def test_a_run_killed_before_its_first_epoch_resumes_after_epoch_0(
    sweep: SweepPaths, store: Callable[..., StoredRun]
) -> None:
    assert plan_one(sweep, store(Status.KILLED, checkpoint=True)).why == "killed after epoch 0"


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        (THEN, ""),
        (Environment(commit=THEN.commit, libraries={"torch": "2.15.0", "scipy": "1"}), ""),
        (Environment(commit="fedcba9876543210"), "commit 01234567, now fedcba98"),
        (Environment(libraries={"torch": "2.16.0", "numpy": "2.3"}), "torch 2.15.0, now 2.16.0"),
        (Environment(libraries={"torch": "3", "numpy": "3"}), "torch 2.15.0, now 3; numpy 2.3, now 3"),
    ],
)
def test_a_finished_run_of_other_versions_is_reported_and_rerun_on_request(
    sweep: SweepPaths, store: Callable[..., StoredRun], now: Environment, changes: str
) -> None:
    run = store(Status.FINISHED)
    kept = plan_one(sweep, run, now=now)
    assert kept.action is Action.KEEP
    again = f", with other versions: {changes}; rerun_changed=true runs it again"
    assert kept.why == "finished" + (again if changes else "")
    rerun = plan_one(sweep, run, now=now, rerun_changed=True)
    assert rerun.action is (Action.START_AGAIN if changes else Action.KEEP)
    assert not changes or rerun.why == f"finished with other versions: {changes}"


def test_a_run_is_found_by_its_signature_under_any_name(sweep: SweepPaths, store: Callable[..., StoredRun]) -> None:
    run = store(Status.FINISHED, name="renamed-by-hand")
    planned = plan_one(sweep, run)
    assert (planned.action, planned.paths) == (Action.KEEP, RunPaths(sweep.runs / "renamed-by-hand"))


def test_the_folder_of_another_cell_is_not_used(sweep: SweepPaths, store: Callable[..., StoredRun]) -> None:
    run = store(Status.FINISHED)
    (planned,) = plan_runs([cell(0.2)], [run], sweep, PlanRules(THEN))
    assert planned.action is Action.START


def test_a_cell_with_an_unreadable_folder_says_so(sweep: SweepPaths) -> None:
    folder = sweep.runs / f"of-an-earlier-grid-{short_signature(cell(0.1).signature)}"
    planned = plan_one(sweep, damaged=[Damage(folder, "run.json is damaged.")])
    assert (planned.action, planned.paths.root, planned.is_to_run) == (Action.REFUSE, folder, False)
    way_out = "move its folder away to run the cell again, or `runmanager rm` it and add `--restore`"
    assert planned.why == f"run.json is damaged; {way_out}"


def test_a_cell_with_a_link_in_the_place_of_its_folder_says_so_in_the_words_of_its_run(
    sweep: SweepPaths, tmp_path: Path
) -> None:
    link = sweep.run(f"lr=0.1-{short_signature(cell(0.1).signature)}")
    link.root.parent.mkdir(parents=True)
    link.root.symlink_to(tmp_path)
    with pytest.raises(RecordError) as refused:
        refuse_linked_run(link)
    planned = plan_one(sweep, damaged=read_sweep(sweep).damaged)
    assert planned.why == f"{str(refused.value).removesuffix('.')} to run the cell again"


def test_equal_cells_are_planned_once_in_the_order_of_the_first(sweep: SweepPaths) -> None:
    cells = [cell(0.3), cell(0.1, "first"), cell(0.2), cell(0.1, "again"), cell(0.3)]
    plan = plan_runs(cells, [], sweep, PlanRules(THEN))
    assert [each.cell.config["lr"] for each in plan] == [0.3, 0.1, 0.2]
    assert plan[1].cell.name == "first"


@pytest.mark.parametrize(
    ("stored", "now", "expected"),
    [
        (None, None, True),
        (None, (Status.RUNNING, None, 1), False),
        (None, (Status.FINISHED, None, 1), False),
        (None, (Status.FAILED, Reason.EXCEPTION, 1), False),
        (None, (Status.KILLED, Reason.SIGNAL, 1), False),
        (None, (Status.KILLED, Reason.INTERRUPTED, 1), True),
        (None, (Status.CRASHED, Reason.VANISHED, 1), True),
        ((Status.FAILED, Reason.EXCEPTION, 1), (Status.FAILED, Reason.EXCEPTION, 1), True),
        ((Status.FAILED, Reason.EXCEPTION, 1), (Status.FAILED, Reason.EXCEPTION, 2), False),
        ((Status.FAILED, Reason.EXCEPTION, 1), (Status.RUNNING, None, 1), False),
        ((Status.KILLED, Reason.SIGNAL, 3), (Status.KILLED, Reason.SIGNAL, 3), True),
        ((Status.FINISHED, None, 1), (Status.FINISHED, None, 1), True),
        ((Status.FINISHED, None, 1), (Status.FINISHED, None, 2), False),
    ],
)
def test_a_cell_that_another_driver_has_run_meanwhile_does_not_run_again(
    sweep: SweepPaths,
    stored: tuple[Status, Reason | None, int] | None,
    now: tuple[Status, Reason | None, int] | None,
    expected: bool,
) -> None:
    def record(state: tuple[Status, Reason | None, int] | None) -> RunRecord | None:
        if state is None:
            return None
        status, reason, attempt = state
        return RunRecord(name="x", signature="y", status=status, reason=reason, config={}, attempt=attempt)

    planned = PlannedRun(cell(0.1), Action.START, "", sweep.run("x"), record(stored))
    assert is_still_to_run(planned, record(now)) is expected


AGAIN = "; rerun_changed=true runs it again"


@pytest.mark.parametrize(
    ("then", "now", "why"),
    [
        (True, False, "finished, with other versions: uncommitted changes now" + AGAIN),
        (False, True, "finished, with other versions: uncommitted changes then" + AGAIN),
        (True, True, "finished"),
        (None, False, "finished; whether its code is the same is not known"),
        (False, False, "finished; whether its code is the same is not known"),
    ],
)
def test_uncommitted_changes_are_reported(
    sweep: SweepPaths, store: Callable[..., StoredRun], then: bool | None, now: bool, why: str
) -> None:
    run = store(Status.FINISHED)
    environment = msgspec.structs.replace(THEN, commit_clean=then)
    run = StoredRun(run.paths, msgspec.structs.replace(run.record, environment=environment))
    assert plan_one(sweep, run, now=msgspec.structs.replace(THEN, commit_clean=now)).why == why


CODE = {"own.py": "0a", "part.py": "0b"}


@pytest.mark.parametrize(
    ("then", "now", "why"),
    [
        (CODE, CODE, "finished"),
        ({}, {}, "finished"),
        (CODE, {**CODE, "part.py": "1b"}, "finished, with other versions: code changed (part.py)" + AGAIN),
        (CODE, {**CODE, "part.py": ""}, "finished, with other versions: code changed (part.py)" + AGAIN),
        (None, None, "finished; whether its code is the same is not known"),
        (CODE, None, "finished; whether its code is the same is not known"),
        (
            {f"{name}.py": "0" for name in "abcde"},
            {f"{name}.py": "1" for name in "abcde"},
            "finished, with other versions: code changed (a.py, b.py, c.py and 2 more)" + AGAIN,
        ),
    ],
)
@pytest.mark.parametrize("commit", [{"commit": None}, {"commit_clean": False}], ids=["no git", "dirty then and now"])
def test_code_is_changed_unchanged_or_unknown(
    sweep: SweepPaths,
    store: Callable[..., StoredRun],
    then: dict[str, str] | None,
    now: dict[str, str] | None,
    why: str,
    commit: dict[str, Any],
) -> None:
    run = store(Status.FINISHED)
    here = msgspec.structs.replace(THEN, **commit)
    environment = msgspec.structs.replace(here, code=then)
    run = StoredRun(run.paths, msgspec.structs.replace(run.record, environment=environment))
    options: dict[str, Any] = {"now": here, "code_of": lambda code: now if code is then else {}}
    assert plan_one(sweep, run, **options).why == why
    rerun = plan_one(sweep, run, rerun_changed=True, **options)
    assert rerun.action is (Action.START_AGAIN if "changed" in why else Action.KEEP)
