"""What to do next, as the results suggest it."""

import msgspec
import pytest

from runmanager.records.run import Environment
from runmanager.records.states import Reason, Status
from runmanager.results.comparison import compare
from runmanager.results.next_steps import next_steps
from runmanager.results.table import result_rows

SETTINGS = {"epochs": 3, "seed": 0, "measure.name": "single"}
COMMAND = ("python", "-m", "runmanager", "-m", "lr=0.1,0.2", "name=my sweep")


@pytest.fixture
def steps(contents, timed):
    """The steps for runs given as (config, number of epochs, fields)."""

    def make(*runs, **options):
        sweep = contents(*((config, timed([9.0] + [2.0] * (count - 1)), fields) for config, count, fields in runs))
        options = {"sweep": "outputs/my sweep", "command": COMMAND, "settings": SETTINGS, **options}
        return next_steps(result_rows(sweep, None), compare(sweep, None), **options)

    return make


def test_a_failed_run_is_to_be_mended_and_the_same_command_given_again(steps):
    failed = {"status": Status.FAILED, "reason": Reason.EXCEPTION}
    (first,) = steps(({"lr": 0.1}, 2, failed))
    assert first == (
        "Mend what ended 1 run early (`runmanager show RUN` has the log and the error), then give the same command "
        "again, which does only what is missing: `python -m runmanager -m lr=0.1,0.2 'name=my sweep'`"
    )
    (unnamed,) = steps(({"lr": 0.1}, 2, failed), command=("python", "train.py"))
    assert "train.py" not in unnamed  # would begin another sweep
    assert "`runmanager show RUN`" in unnamed


def test_where_a_device_is_missing_it_is_named_and_what_else_can_be_compared_is_said(steps):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    loaded = {"environment": Environment(outside_cpu_share=0.9)}
    runs = [({"lr": lr, "device": "cpu", "seed": seed}, 7, loaded) for lr in (1, 2) for seed in (1, 2, 3)]
    runs += [({"lr": lr, "device": "cuda", "seed": 1}, 0, skipped) for lr in (1, 2)]
    assert steps(*runs) == [
        "Give the same command on a machine that has cuda: 2 runs were skipped for want of it.",
        "Measure again when the machine is quiet: other load was on it.",  # cuda cannot take turns here
        "`runmanager compare 'outputs/my sweep' --axis lr` compares what varies.",
        "`runmanager best 'outputs/my sweep'` gives the command that makes the best cell again.",
    ]


def test_who_waits_is_told_how_to_follow_and_who_lacks_a_device_where_to_go(steps):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    said = steps(
        ({"lr": 0.1}, 2, {"status": Status.PENDING, "started_at": None}), ({"lr": 0.2, "device": "mps"}, 0, skipped)
    )
    assert said == [
        "Wait for 1 run: `runmanager watch 'outputs/my sweep'` follows them.",
        "Give the same command on a machine that has mps: 1 run was skipped for want of it.",
    ]


def test_who_interrupted_a_sweep_has_nothing_to_wait_for_and_nothing_to_mend(steps):
    runs = [
        ({"lr": 0.1}, 2, {"status": Status.KILLED, "reason": Reason.INTERRUPTED}),
        ({"lr": 0.2}, 0, {"status": Status.PENDING, "started_at": None}),
    ]
    again = "`python -m runmanager -m lr=0.1,0.2 'name=my sweep'`"
    assert steps(*runs, is_attended=False) == [f"Give the same command again for the 2 runs that it lacks: {again}"]
    (unnamed,) = steps(*runs, is_attended=False, command=("python", "train.py"))
    assert "train.py" not in unnamed and "nobody is at work" in unnamed
    attended = steps(*runs)
    assert [line.split(":")[0] for line in attended] == [
        "Wait for 1 run",
        "Give the same command again for the 1 run that it lacks",
    ]
    failed = ({"lr": 0.3}, 2, {"status": Status.FAILED, "reason": Reason.EXCEPTION})
    (mend,) = steps(*runs, failed, is_attended=False)
    assert mend.startswith("Mend what ended 1 run early") and mend.endswith(again)


def test_a_seed_is_no_axis_with_an_end(steps):
    runs = [({"seed": seed, "lr": lr}, 2 + seed, {}) for seed, lr in ((0, 0.1), (1, 0.4), (2, 0.2))]
    assert not [line for line in steps(*runs) if line.startswith("Try")]


def test_too_few_epochs_or_seeds_or_a_busy_machine_are_said_with_a_cure(steps):
    loaded = {"environment": Environment(outside_cpu_share=0.9)}
    runs = [({"lr": 0.1, "device": device}, 3, loaded) for device in ("cpu", "cuda")]
    said = steps(*runs)
    assert [line.partition(",")[0].partition(":")[0] for line in said] == [
        *("Measure again when the machine is quiet", "Train for more epochs", "Run several seeds"),
        "`runmanager best 'outputs/my sweep'` gives the command that makes the best cell again.",
    ]
    assert "`measure=paired`" in said[0]
    elsewhere = steps(*runs, settings={"lr": 0.1})  # a loop of somebody's own has none of these settings
    assert [line.partition(":")[0] for line in elsewhere[:-1]] == ["Measure again when the machine is quiet"]


def test_three_seeds_are_enough_and_what_bounds_the_runs_is_said(steps):
    runs = [({"lr": lr, "seed": seed}, 7, {}) for lr in (1, 2) for seed in (1, 2, 3)]
    assert steps(*runs, causes=["cpu (input): `loader=resident`."]) == [
        "cpu (input): `loader=resident`.",
        "`runmanager compare 'outputs/my sweep' --axis lr` compares what varies.",
        "`runmanager best 'outputs/my sweep'` gives the command that makes the best cell again.",
    ]
    assert any("several seeds" in line for line in steps(*runs[1:2], *runs[4:]))


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((2, 3, 9), "larger `lr`: the best val_accuracy is at the largest tried, 0.4"),
        ((9, 3, 2), "smaller `lr`: the best val_accuracy is at the smallest tried, 0.1"),
        ((2, 9, 3), None),
        ((9, 9, 9), None),
        ((9, 2, 9), None),
    ],
)
def test_beyond_the_best_end_of_an_axis_there_may_be_better(steps, counts, said):
    runs = [
        ({"lr": lr, "num_workers": at}, count, {})
        for at, (lr, count) in enumerate(zip((0.1, 0.2, 0.4), counts, strict=True))
    ]
    found = [line for line in steps(*runs) if line.startswith("Try")]
    assert found == ([] if said is None else [f"Try a {said}."])


def test_an_axis_of_any_name_is_one_word_of_a_command(steps):
    (said,) = [line for line in steps(({"a b;c": 1}, 2, {}), ({"a b;c": 2}, 2, {})) if "--axis" in line]
    assert "--axis 'a b;c'`" in said


def test_an_axis_of_lists_has_no_end(steps):
    runs = [({"betas": [beta, 0.99], "num_workers": 0}, 2, {}) for beta in (0.7, 0.8, 0.9)]
    assert not [line for line in steps(*runs) if line.startswith("Try")]


def test_the_best_cell_is_asked_for_by_a_metric_that_the_runs_have(contents, timed):
    cases = ((["val_accuracy"], " --metric accuracy"), (["val_accuracy", "accuracy"], " --metric val_loss"))
    for missing, by in cases:
        epochs = [msgspec.structs.replace(epoch, **dict.fromkeys(missing)) for epoch in timed([9.0, 2.0])]
        sweep = contents(*(({"lr": lr}, epochs, {}) for lr in (1, 2)))
        *_, last = next_steps(result_rows(sweep, None), compare(sweep, None), sweep="mine")
        assert last == f"`runmanager best mine{by}` gives the command that makes the best cell again."
