"""Tests of `measure=paired`: invalid commands, whole sweeps, and stopped and resumed ones."""

import signal
import socket
from dataclasses import replace

import pytest

from runmanager.launching.plan import Action, Cell, PlannedRun
from runmanager.race.pairing import Pairing
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import Environment, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_sweep
from runmanager.results.load.contention import OVERLAP, contention, exposure_of
from runmanager.training.options.groups import PairedOptions

# Any interval is narrow enough, so that a busy machine does not matter.
QUICK = ("measure.block_steps=2", "measure.min_rounds=6", "measure.half_width=0.9", "measure.max_seconds=60")
PAIRED = ("-m", "measure=paired", *QUICK)

REFUSED = {
    "no axis": ([], "A sweep with `measure=paired` must have an axis, got none; `device=cpu,cuda` compares these two."),
    "only seeds": (["seed=1,2"], "A sweep with `measure=paired` must have an axis, got none"),
    "two axes": (
        ["lr=0.1,0.2", "batch_size=16,32"],
        "`measure.axis` must name which of the axes is compared with `measure=paired`, got null; "
        "it may be batch_size or lr.",
    ),
    "an unknown axis": (
        ["lr=0.1,0.2", "measure.axis=rate"],
        "`measure.axis` must be a setting of the runs, got 'rate'",
    ),
    "an axis of one value": (["lr=0.1,0.2", "measure.axis=batch_size"], "`batch_size` must vary with `measure=paired`"),
    "several workers": (
        ["lr=0.1,0.2", "hydra.launcher.workers=2"],
        "`hydra.launcher.workers` must be 1 with `measure=paired`, got 2; "
        "all runs of a comparison exist at once, and one works at a time.",
    ),
    "another launcher": (
        ["lr=0.1,0.2", "hydra/launcher=basic"],
        "`measure` must be single with this launcher, got paired; "
        "the runs take turns on one machine: use `hydra/launcher=local`.",
    ),
    "paired and single": (["lr=0.1,0.2", "measure=single,paired"], "must be the same for all cells of a sweep"),
    "a setting of sides and both": (
        ["lr=0.3", "hydra.sweeper.sides=['lr=0.1','lr=0.2']"],
        "`lr` must be given either for the sides or for both, got both.",
    ),
    "a grid on a side": (
        ["hydra.sweeper.sides=['lr=0.1,0.2','lr=0.3']"],
        "`lr=0.1,0.2` must be one value on a side of a duel, got several.",
    ),
    "sides of two seeds": (
        ["hydra.sweeper.sides=['seed=1','seed=2']"],
        "The sides of a duel must differ in more than the seed, got nothing else; seeds are repetitions.",
    ),
    "equal sides": (
        ["hydra.sweeper.sides=['lr=0.1','lr=0.10']"],
        "The sides of a duel must differ, got the same settings on both.",
    ),
    "sides that give other settings, at their defaults": (
        ["hydra.sweeper.sides=['lr=0.01','seed=0']"],
        "got the same settings on both; what one side leaves out has its default there.",
    ),
    "blocks with workers": (
        ["num_workers=0,2", "measure.block_steps=5"],
        "`measure.block_steps` must be null where `num_workers` is above 0, got 5; "
        "a turn is then an epoch, as workers would load ahead during the turns of other runs.",
    ),
}


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED)
def test_invalid_paired_sweeps_are_rejected_before_anything_runs(command, tiny, tmp_path, words, said):
    is_mixed = "measure=single,paired" in words
    done = command(*(["-m"] if is_mixed else PAIRED), *tiny, *words)
    assert done.status == 2
    assert any(said in line for line in done.faults), done.err
    assert not (tmp_path / "outputs").exists()


def test_invalid_values_are_reported_together(command, tiny):
    wrong = ("half_width=0", "max_seconds=0", "min_rounds=0", "block_steps=0", "warmup_epochs=0")
    done = command(*PAIRED, *tiny, "lr=0.1,0.2", *(f"measure.{word}" for word in wrong))
    assert done.status == 2
    assert [line.split()[1] for line in done.faults] == [
        *("`measure.warmup_epochs`", "`measure.half_width`", "`measure.max_seconds`"),
        *("`measure.min_rounds`", "`measure.block_steps`"),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["num_workers=1"],
            "so 18 such epochs; `measure.max_seconds`=90 is enough if one takes up to 5 s, and",
        ),
        (["num_workers=0,1", "measure.axis=num_workers"], "so 9 such epochs; `measure.max_seconds`=90 is enough"),
        (["num_workers=0"], None),
    ],
)
def test_epochs_as_turns_are_announced_before_the_start(command, tiny, words, said):
    axis = [] if "measure.axis=num_workers" in words else ["lr=0.1,0.2"]
    done = command("-m", "measure=paired", "measure.max_seconds=90", *tiny, *axis, *words, "--dry-run")
    assert done.status == 0
    assert (said in " ".join(done.out.split())) if said else ("whole epoch" not in done.out)


@pytest.fixture(scope="module")
def paired(elsewhere, tiny, tmp_path_factory):
    """Two groups of two runs each, one after the other."""
    words = (*PAIRED, *tiny, "batch_size=16,32", "seed=1", "lr=0.1,0.2", "measure.axis=batch_size", "name=paired")
    return elsewhere(tmp_path_factory.mktemp("paired"), *words)


def test_each_group_has_separate_rounds_and_whole_epochs(paired):
    runs = read_sweep(paired.paths).runs
    sessions = {run.record.settings["lr"]: set() for run in runs}
    for run in runs:
        assert [epoch.epoch for epoch in run.epochs] == [1, 2]
        assert len({turn.session for turn in run.turns}) == 1
        sessions[run.record.settings["lr"]].add(run.record.session)
        assert {turn.warmup for turn in run.turns} == {True, False}
    assert [len(names) for names in sessions.values()] == [1, 1]
    assert sessions[0.1] != sessions[0.2]


def test_the_comparison_uses_the_rounds(paired):
    rows = paired.rows("comparison.csv")
    assert [(row["axis"], row["baseline"], row["candidate"]) for row in rows] == [("batch_size", "16", "32")] * 2
    for row in rows:
        assert "1 pair of processes, " in row["reason"] and "a difference must lie outside 1 ± 1%" in row["reason"]
        assert float(row["ci_low"]) <= float(row["speedup"]) <= float(row["ci_high"])
        assert row["baseline_epochs"] == row["candidate_epochs"]


def test_paired_runs_are_not_contended(paired):
    runs = read_sweep(paired.paths).runs
    assert all(OVERLAP not in causes for causes in contention(list(map(exposure_of, runs))))


def test_a_stopped_measurement_is_repeated(start, finish, wait, own_module, sweep, tiny, tmp_path):
    model = ("model=custom", "model._target_=own.Net")
    common = [word for word in tiny if not word.startswith(("model=", "epochs="))]
    words = (*PAIRED, *common, *model, "epochs=1", "batch_size=32", "lr=0.1,0.2", "name=stopped")
    (tmp_path / "gate").touch()  # the first measured step, the third of all, waits here
    process = start(*words)
    wait((tmp_path / "waiting").exists, "the first measured turn")
    process.send_signal(signal.SIGINT)
    assert any("Stopping after this epoch" in line for line in process.stdout)  # it may come late on a busy machine
    (tmp_path / "gate").unlink()
    assert finish(process).status == 130
    stopped = sweep("stopped")
    assert set(stopped.states().values()) == {("killed", "interrupted")}
    assert [stopped.num_epochs(record) for record in stopped.records] == [1, 1]
    assert finish(start(*words)).status == 0
    assert set(stopped.states().values()) == {("finished", None)}
    (row,) = stopped.rows("comparison.csv")
    assert row["verdict"] != "not measured"
    assert [stopped.num_epochs(record) for record in stopped.records] == [1, 1]


def test_a_side_whose_partner_died_is_measured_again_with_it(command, own_module, sweep, tiny, tmp_path):
    common = [word for word in tiny if not word.startswith(("model=", "epochs="))]
    model = ("model=custom", "model._target_=own.Net", "+model.way=dies_once")
    words = (*PAIRED, *common, *model, "epochs=1", "lr=0.1,0.2", "name=outlived")
    (tmp_path / "deadly").touch()
    assert command(*words).status == 1
    stored = sweep("outlived")
    assert sorted(stored.states().values()) == [("finished", None), ("killed", "signal")]
    (alive,) = (run for run in read_sweep(stored.paths).runs if run.record.status == "finished")
    planned = command(*words, "--dry-run")
    assert planned.status == 0
    assert "2 cells: " in planned.out and "1 measure again" in planned.out, planned.out
    assert "finished; takes turns with what is run now" in " ".join(planned.out.split())
    assert command(*words).status == 0
    (row,) = stored.rows("comparison.csv")
    assert row["verdict"] != "not measured"
    again = next(run for run in read_sweep(stored.paths).runs if run.record.signature == alive.record.signature)
    assert again.epochs == alive.epochs
    assert (again.record.attempt, len(again.record.earlier)) == (2, 1)
    # Both were measured side by side: nothing is left to do.
    assert "2 cells: 2 keep" in command(*words, "--dry-run").out


# One session is never so precise, so further ones start while time is left.
RESTARTED = ("-m", "measure=paired", "measure.block_steps=4", "measure.half_width=0.088", "lr=0.1,0.2")


def test_processes_are_restarted_to_measure_their_spread(command, sweep, tiny):
    words = (*RESTARTED, *tiny, "measure.max_seconds=60", "name=restarted")
    done = command(*words)
    assert done.status == 0
    stored = sweep("restarted")
    runs = read_sweep(stored.paths).runs
    sessions = [dict.fromkeys(turn.session for turn in run.turns) for run in runs]
    assert len(sessions[0]) >= 2 and sessions[0] == sessions[1]
    for run in runs:
        assert [epoch.epoch for epoch in run.epochs] == [1, 2]
        assert run.record.attempt == len(sessions[0])  # each in a new process
        assert len({(each.started_at, each.ended_at) for each in run.record.earlier}) == len(sessions[0]) - 1
    (row,) = stored.rows("comparison.csv")
    pairs = len(sessions[0])
    assert row["reason"].startswith((f"{pairs} pairs of processes, ", f"{pairs - 1} pair", "contended:")), row["reason"]
    # A run is one row of the display, however many processes it has.
    assert [sum(line.endswith(" started") for line in done.out.splitlines()), done.out.count("✓")] == [2, 2]
    assert "2 cells: 2 keep" in command(*words, "--dry-run").out


def test_without_a_checkpoint_only_one_session_runs(command, sweep, tiny):
    assert command(*RESTARTED, *tiny, "measure.max_seconds=1.5", "checkpoint.every=0", "name=once").status == 0
    (row,) = sweep("once").rows("comparison.csv")
    assert "1 pair of processes, " in row["reason"]
    assert "`checkpoint.every`=0 leaves nothing to restart processes from" in row["reason"]


def test_a_session_that_does_not_fit_into_the_time_is_not_started(command, sweep, tiny):
    assert command(*RESTARTED, *tiny, "measure.max_seconds=0.05", "name=short").status == 0
    assert {run.record.attempt for run in read_sweep(sweep("short").paths).runs} == {1}


def test_a_side_that_dies_in_a_later_session_keeps_its_measurements(command, own_module, sweep, tiny, tmp_path):
    common = [word for word in tiny if not word.startswith(("model=", "epochs="))]
    model = ("model=custom", "model._target_=own.Net", "+model.way=dies_again")
    words = (*RESTARTED, *common, *model, "epochs=1", "measure.max_seconds=30", "name=later")
    (tmp_path / "deadly").touch()
    assert command(*words).status == 1
    stored = sweep("later")
    assert sorted(stored.states().values()) == [("finished", None), ("killed", "signal")]
    before = [len({turn.session for turn in run.turns}) for run in read_sweep(stored.paths).runs]
    assert command(*words).status == 0
    (row,) = stored.rows("comparison.csv")
    assert row["verdict"] != "not measured"
    runs = read_sweep(stored.paths).runs
    after = [{turn.session for turn in run.turns} for run in runs]
    assert all(len(now) > then for now, then in zip(after, before, strict=True))
    assert len(after[0] & after[1]) >= 2  # the earlier session and the new one


HERE = Environment(host=socket.gethostname())


@pytest.fixture
def group(tmp_path):
    """Plan a group of two runs, each given by its action and record fields; return the changed plan."""

    def plan(*members, missing=(), changes=""):
        runs = []
        for name, (action, fields) in zip("ab", members, strict=True):
            paths = RunPaths(tmp_path / name)
            paths.root.mkdir(exist_ok=True)
            record = {"name": name, "signature": name, "status": Status.FINISHED, "config": {}, "environment": HERE}
            cell = Cell(name, name, {}, ())
            stored = RunRecord(**(record | fields))
            runs.append(PlannedRun(cell, action, "so it is", paths, stored, changes if action is Action.KEEP else ""))
        pairing = Pairing(PairedOptions(), [(frozenset("a"), frozenset("b"))])
        skipped = [replace(run, action=Action.SKIP) if run.cell.name in missing else run for run in runs]
        return pairing.with_partners(runs, lambda planned: [skipped["ab".index(run.cell.name)] for run in planned])

    return plan


def actions(planned):
    return [run.action for run in planned]


def test_a_finished_run_is_measured_again_with_a_new_partner(group, tmp_path):
    kept, lost = (Action.KEEP, {"session": "a1"}), (Action.START_AGAIN, {"status": Status.FAILED})
    # Without a checkpoint it starts again, and its old files are kept.
    assert actions(group(kept, lost)) == [Action.START_AGAIN, Action.START_AGAIN]
    (tmp_path / "a" / "checkpoint.pt").touch()
    assert actions(group(kept, lost)) == [Action.MEASURE, Action.START_AGAIN]
    assert actions(group(kept, lost, missing="b")) == [Action.KEEP, Action.START_AGAIN]
    assert actions(group(kept, (Action.LEAVE, {}))) == [Action.KEEP, Action.LEAVE]


def test_runs_measured_together_are_kept_and_others_are_measured_again(group, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "checkpoint.pt").touch()
    together, apart, never = {"session": "a1"}, {"session": "b2"}, {}
    assert actions(group((Action.KEEP, together), (Action.KEEP, together))) == [Action.KEEP] * 2
    assert actions(group((Action.KEEP, together), (Action.KEEP, apart))) == [Action.MEASURE] * 2
    assert actions(group((Action.KEEP, never), (Action.KEEP, never))) == [Action.MEASURE] * 2


def test_a_run_with_other_versions_or_host_is_kept_with_the_reason(group, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "checkpoint.pt").touch()
    lost = (Action.START_AGAIN, {"status": Status.FAILED})
    changed = group((Action.KEEP, {}), lost, changes="torch 2.9.0, now 2.15.0")[0]
    assert changed.action is Action.KEEP
    assert changed.why == "so it is; takes no turns with what is run now: `rerun_changed=true` runs it again"
    elsewhere = {"environment": Environment(host="bellows")}
    assert group((Action.KEEP, elsewhere), lost)[0].why.endswith(
        "takes no turns with what is run now: it was made on bellows"
    )
    assert actions(group((Action.KEEP, elsewhere), (Action.KEEP, {}))) == [Action.KEEP] * 2
