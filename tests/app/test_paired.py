"""`measure=paired`: what is refused, whole sweeps side by side, and one that is stopped and gone on with."""

import signal

import pytest

from runmanager.records.store import read_sweep
from runmanager.results.contention import OVERLAP, contention, exposure_of

PAIRED = ("-m", "measure=paired", "measure.max_seconds=1")

REFUSED = {
    "no axis": ([], "A sweep with `measure=paired` must have an axis, got none; `device=cpu,cuda` compares these two."),
    "only seeds": (["seed=1,2"], "A sweep with `measure=paired` must have an axis, got none"),
    "two axes": (
        ["lr=0.1,0.2", "batch_size=16,32"],
        "`measure.axis` must name which of the axes is compared with `measure=paired`, got null; "
        "it may be batch_size or lr.",
    ),
    "an unknown axis": (["lr=0.1,0.2", "measure.axis=rate"], "The axis must be a setting of the runs, got 'rate'"),
    "an axis of one value": (["lr=0.1,0.2", "measure.axis=batch_size"], "`batch_size` must vary with `measure=paired`"),
    "several workers": (
        ["lr=0.1,0.2", "hydra.launcher.workers=2"],
        "`hydra.launcher.workers` must be 1 with `measure=paired`, got 2; "
        "all runs of a comparison live at once, and one works at a time.",
    ),
    "another launcher": (
        ["lr=0.1,0.2", "hydra/launcher=basic"],
        "`measure` must be single with this launcher, got paired; "
        "the runs take turns on one machine: use `hydra/launcher=local`.",
    ),
    "paired and single": (["lr=0.1,0.2", "measure=single,paired"], "must be the same for all cells of a sweep"),
    "a setting of sides and both": (
        ["lr=0.3", "hydra.sweeper.sides=['lr=0.1','lr=0.2']"],
        "`lr` must be given for the sides or for both in common, got both.",
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
    "blocks with workers": (
        ["num_workers=0,2", "measure.block_steps=5"],
        "`measure.block_steps` must be null where `num_workers` is above 0, got 5; "
        "a turn is then an epoch, as workers would load ahead while others have the machine.",
    ),
}


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_take_turns_is_refused_before_anything_runs(command, tiny, tmp_path, words, said):
    is_mixed = "measure=single,paired" in words
    done = command(*(["-m"] if is_mixed else PAIRED), *tiny, *words)
    assert done.status == 2
    assert any(said in line for line in done.faults), done.err
    assert not (tmp_path / "outputs").exists()


def test_values_that_cannot_be_are_said_all_at_once(command, tiny):
    wrong = ("half_width=0", "max_seconds=0", "min_rounds=0", "block_steps=0", "warmup_epochs=0")
    done = command(*PAIRED, *tiny, "lr=0.1,0.2", *(f"measure.{word}" for word in wrong))
    assert done.status == 2
    assert [line.split()[1] for line in done.faults] == [
        *("`measure.warmup_epochs`", "`measure.half_width`", "`measure.max_seconds`"),
        *("`measure.min_rounds`", "`measure.block_steps`"),
    ]


@pytest.fixture(scope="module")
def paired(elsewhere, tiny, tmp_path_factory):
    """Two groups of two runs each, one after the other."""
    words = (*PAIRED, *tiny, "batch_size=16,32", "seed=1", "lr=0.1,0.2", "measure.axis=batch_size", "name=paired")
    return elsewhere(tmp_path_factory.mktemp("paired"), *words)


def test_each_group_has_rounds_of_its_own_and_whole_epochs(paired):
    runs = read_sweep(paired.paths).runs
    sessions = {run.record.settings["lr"]: set() for run in runs}
    for run in runs:
        assert [epoch.epoch for epoch in run.epochs] == [1, 2]
        assert len({turn.session for turn in run.turns}) == 1
        sessions[run.record.settings["lr"]].add(run.record.session)
        assert {turn.warmup for turn in run.turns} == {True, False}
    assert [len(names) for names in sessions.values()] == [1, 1]
    assert sessions[0.1] != sessions[0.2]


def test_the_comparison_is_that_of_the_rounds(paired):
    rows = paired.rows("comparison.csv")
    assert [(row["axis"], row["baseline"], row["candidate"]) for row in rows] == [("batch_size", "16", "32")] * 2
    for row in rows:
        assert "rounds side by side: a difference must lie outside 1 ± 1%" in row["reason"]
        assert float(row["ci_low"]) <= float(row["speedup"]) <= float(row["ci_high"])
        assert row["baseline_epochs"] == row["candidate_epochs"]


def test_runs_side_by_side_have_not_met_each_other(paired):
    runs = read_sweep(paired.paths).runs
    assert all(OVERLAP not in causes for causes in contention(list(map(exposure_of, runs))))


def test_a_stopped_measurement_is_made_anew(start, finish, wait, own_module, sweep, tiny, tmp_path):
    model = ("model=custom", "model._target_=own.Net")
    common = [word for word in tiny if not word.startswith(("model=", "epochs="))]
    words = (*PAIRED, *common, *model, "epochs=1", "batch_size=32", "lr=0.1,0.2", "name=stopped")
    (tmp_path / "gate").touch()  # the first measured step, the third of all, waits here
    process = start(*words)
    wait((tmp_path / "waiting").exists, "the first measured turn")
    process.send_signal(signal.SIGINT)
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
