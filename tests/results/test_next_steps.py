"""What to do next, as the results suggest it."""

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


def test_who_waits_is_told_how_to_follow_and_who_lacks_a_device_where_to_go(steps):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    said = steps(({"lr": 0.1}, 2, {"status": Status.PENDING, "started_at": None}), ({"lr": 0.2}, 0, skipped))
    assert said == [
        "Wait for 1 run: `runmanager watch 'outputs/my sweep'` follows them.",
        "Give the same command on a machine that has the device: 1 run was skipped for want of it.",
    ]


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
        ((9, 9, 2), None),  # at the smallest, and as good elsewhere
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
