"""Recommended next steps."""

from pathlib import Path

import msgspec
import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import Environment
from runmanager.records.run.status import Reason, Status
from runmanager.results.compare.comparison import compare
from runmanager.results.findings.recommendations import next_steps
from runmanager.results.tables.results_table import result_rows

SETTINGS = {"epochs": 3, "seed": 0, "measure.name": "single"}
COMMAND = ("python", "-m", "runmanager", "-m", "lr=0.1,0.2", "name=my sweep")
OURS, NAME = COMMAND[:4], "name=x"
TYPED = "runmanager sweep lr=0.1,0.2 'name=my sweep'"


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """A machine with a GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")


@pytest.fixture
def steps(contents, timed):
    """Factory of the steps for runs given as (config, number of epochs, fields)."""

    def make(*runs, **options):
        sweep = contents(*((config, timed([9.0] + [2.0] * (count - 1)), fields) for config, count, fields in runs))
        results, given = result_rows(sweep, None), options.pop("command", COMMAND)
        commands = given if callable(given) else lambda row: given
        folder = SweepPaths(Path(options.pop("sweep", "outputs/my sweep")))
        options = {"sweep": folder, "settings": SETTINGS, **options}
        options["commands"] = {row["run"]: commands(row) for row in results.rows}
        return next_steps(results, compare(sweep, None), **options)

    return make


def test_failed_run_is_to_be_fixed_and_its_command_repeated(steps):
    failed = {"status": Status.FAILED, "reason": Reason.EXCEPTION}
    (first,) = steps(({"lr": 0.1}, 2, failed))
    assert first == (
        "Fix what ended 1 run early (`runmanager show RUN` has the log and the error), then repeat the same command, "
        f"which runs only what is missing: `{TYPED}`"
    )
    (unnamed,) = steps(({"lr": 0.1}, 2, failed), command=("python", "train.py"))
    assert "train.py" not in unnamed  # would start another sweep
    assert "`runmanager show RUN`" in unnamed


def test_repeated_command_is_the_cells_own_without_rerun_settings(steps):
    def given(row):
        return (*OURS, f"lr={row['lr']},9", *(("rerun_changed=true", "resume=never") if row["lr"] == 0.1 else ()), NAME)

    failed = {"status": Status.FAILED, "reason": Reason.EXCEPTION}
    (first,) = steps(({"lr": 0.1}, 2, failed), command=given, sweep="outputs/x")
    assert first.endswith("what is missing: `runmanager sweep lr=0.1,9 name=x`")
    (renamed,) = steps(({"lr": 0.1}, 2, failed), command=given, sweep="outputs/y")
    assert renamed.endswith("what is missing: `runmanager sweep lr=0.1,9 name=y`")
    runs = (({"lr": 0.1}, 2, failed), ({"lr": 0.2}, 2, {}), ({"lr": 0.3}, 2, failed))
    both = steps(*runs, command=given, sweep="outputs/x")[0]
    assert both.endswith(
        "then repeat the same commands, which run only what is missing: "
        "`runmanager sweep lr=0.1,9 name=x` and `runmanager sweep lr=0.3,9 name=x`"
    )


@pytest.mark.parametrize(
    ("sweep", "added"),
    [("outputs/2026-11-22_12-00-00", "name=2026-11-22_12-00-00"), ("/data/here/s", "name=s output_root=/data/here")],
)
def test_sweep_without_a_name_is_named_by_its_folder(steps, sweep, added):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    text = steps(({"lr": 1, "device": "cuda"}, 0, skipped), command=(*OURS, "lr=1"), sweep=sweep)
    assert text == [
        "1 run was skipped because the host has no cuda: repeat the same command on one that has, "
        f"`runmanager sweep lr=1 {added}`"
    ]


def test_missing_device_is_named(steps):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    loaded = {"environment": Environment(outside_cpu_share=0.9)}
    runs = [({"lr": lr, "device": "cpu", "seed": seed}, 7, loaded) for lr in (1, 2) for seed in (1, 2, 3)]
    runs += [({"lr": lr, "device": "cuda", "seed": 1}, 0, skipped) for lr in (1, 2)]
    assert steps(*runs) == [
        f"2 runs were skipped because the host has no cuda: repeat the same command on one that has, `{TYPED}`",
        "Measure again when the machine is quiet: other load was on it during 6 of 6 runs.",  # cuda cannot take turns
        "`runmanager best 'my sweep'` prints the command that repeats the best cell.",
    ]


def test_running_and_skipped_runs_have_a_step(steps):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    text = steps(
        ({"lr": 0.1}, 2, {"status": Status.PENDING, "started_at": None}), ({"lr": 0.2, "device": "mps"}, 0, skipped)
    )
    assert text == [
        "Wait for 1 run: `runmanager watch 'my sweep'` follows them.",
        f"1 run was skipped because the host has no mps: repeat the same command on one that has, `{TYPED}`",
    ]


def test_interrupted_sweep_is_to_be_repeated_without_fixing(steps):
    runs = [
        ({"lr": 0.1}, 2, {"status": Status.KILLED, "reason": Reason.INTERRUPTED}),
        ({"lr": 0.2}, 0, {"status": Status.PENDING, "started_at": None}),
    ]
    again = f"`{TYPED}`"
    assert steps(*runs, is_attended=False) == [f"Repeat the same command for 2 runs still missing: {again}"]
    (unnamed,) = steps(*runs, is_attended=False, command=("python", "train.py"))
    assert "train.py" not in unnamed and "no driver is running" in unnamed
    attended = steps(*runs)
    assert [line.split(":")[0] for line in attended] == [
        "Wait for 1 run",
        "Repeat the same command for 1 run still missing",
    ]
    failed = ({"lr": 0.3}, 2, {"status": Status.FAILED, "reason": Reason.EXCEPTION})
    (mend,) = steps(*runs, failed, is_attended=False)
    assert mend.startswith("Fix what ended 1 run early") and mend.endswith(again)


def test_seed_is_not_extended(steps):
    runs = [({"seed": seed, "lr": lr}, 2 + seed, {}) for seed, lr in ((0, 0.1), (1, 0.4), (2, 0.2))]
    assert not [line for line in steps(*runs) if line.startswith("Try")]


def test_too_few_epochs_or_seeds_or_contention_have_a_step(steps):
    loaded = {"environment": Environment(outside_cpu_share=0.9)}
    runs = [({"lr": 0.1, "device": device}, 3, loaded) for device in ("cpu", "cuda")]
    text = steps(*(({**config, "seed": 0}, *rest) for config, *rest in runs))
    assert [line.partition(",")[0].partition(":")[0] for line in text] == [
        *("Measure again when the machine is quiet", "Train for more epochs", "Run several seeds"),
        "`runmanager best 'my sweep'` prints the command that repeats the best cell.",
    ]
    assert "`measure=paired`" in text[0]
    elsewhere = steps(*runs, settings={"lr": 0.1})  # a custom loop has none of these settings
    assert [line.partition(":")[0] for line in elsewhere[:-1]] == ["Measure again when the machine is quiet"]


@pytest.mark.parametrize(
    ("planned", "count", "wanted"),
    [(3, 3, 7), (8, 4, 10), (50, 3, 53)],
)
def test_recommended_epochs_exceed_the_requested_ones(steps, planned, count, wanted):
    runs = [({"device": device}, count, {}) for device in ("cpu", "cuda")]
    requested = {**SETTINGS, "epochs": planned}
    (text,) = [line for line in steps(*runs, settings=requested) if "more epochs" in line]
    assert f"`epochs={wanted}`" in text
    stopped = [(config, count, {"reason": Reason.EARLY_STOPPED}) for config, count, _ in runs]
    assert not [line for line in steps(*stopped, settings=requested) if "more epochs" in line]


@pytest.mark.parametrize(
    ("values", "is_said"),
    [((0.0, 0.1, 0.2), False), ((0, 5, 9), False), ((1, 2, 4), False), ((2, 4, 8), True), ((1.0, 2.0, 4.0), True)],
)
def test_values_below_the_lower_bound_are_not_recommended(steps, values, is_said):
    runs = [({"width": value}, count, {}) for value, count in zip(values, (9, 3, 2), strict=True)]
    assert any("Try a smaller `width`" in line for line in steps(*runs)) is is_said


def test_three_seeds_are_enough_and_causes_are_steps(steps):
    runs = [({"lr": lr, "seed": seed}, 7, {}) for lr in (1, 2) for seed in (1, 2, 3)]
    assert steps(*runs, causes=["cpu (input): `loader=resident`."]) == [
        "cpu (input): `loader=resident`.",
        "Whether a GPU is worth it is not known, as every run used Zen 4: `device=cpu,cuda` compares both.",
        "`runmanager best 'my sweep'` prints the command that repeats the best cell.",
    ]
    assert any("several seeds" in line for line in steps(*runs[1:2], *runs[4:]))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((2, 3, 9), "larger `lr`: the best val_accuracy is at the largest tried, 0.4"),
        ((9, 3, 2), "smaller `lr`: the best val_accuracy is at the smallest tried, 0.1"),
        ((2, 9, 3), None),
        ((9, 9, 9), None),
        ((9, 2, 9), None),
    ],
)
def test_values_beyond_the_best_end_of_an_axis_are_recommended(steps, counts, expected):
    runs = [
        ({"lr": lr, "num_workers": at}, count, {})
        for at, (lr, count) in enumerate(zip((0.1, 0.2, 0.4), counts, strict=True))
    ]
    found = [line for line in steps(*runs) if line.startswith("Try")]
    assert found == ([] if expected is None else [f"Try a {expected}."])


def test_contention_has_a_step_without_a_comparison(steps):
    loaded = {"environment": Environment(outside_cpu_share=0.9)}
    text = "Measure again when the machine is quiet: other load was on it during"
    assert f"{text} the run." in steps(({"lr": 1}, 7, loaded))
    quiet = {"environment": Environment(outside_cpu_share=0.0)}
    assert f"{text} 1 of 2 runs." in steps(({"seed": 1}, 7, loaded), ({"seed": 2}, 7, quiet))
    died = loaded | {"status": Status.FAILED, "reason": Reason.EXCEPTION}
    assert not [line for line in steps(({"lr": 1}, 7, died), ({"lr": 2}, 7, quiet)) if "quiet" in line]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("train.py", "a`b"), "``python train.py 'a`b'``"),
        (("train.py", "`"), "``python train.py '`'``"),
        (("mine", "$(reboot)"), "`mine '$(reboot)'`"),
    ],
)
def test_command_is_quoted_for_the_shell(steps, command, expected):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    (step,) = steps(({"lr": 0.1, "device": "mps"}, 0, skipped), command=command)
    assert step.endswith(f", {expected}")
    (step,) = steps(({"lr": 0.1, "device": "mps"}, 0, skipped), command=())
    assert step == "1 run was skipped because the host has no mps: repeat the same command on one that has."


def test_custom_loop_is_not_told_of_settings_that_it_lacks(steps):
    runs = [({"lr": lr}, 7, {}) for lr in (1, 2)]
    assert any("Whether a GPU is worth it" in line for line in steps(*runs))
    assert not any("Whether a GPU is worth it" in line for line in steps(*runs, settings={"lr": 0.1}))


def test_a_gpu_is_recommended_only_where_there_is_one(steps, monkeypatch):
    def advice(device):
        runs = [({"lr": lr, "device": device}, 7, {}) for lr in (1, 2)]
        return [line for line in steps(*runs) if "Whether a GPU" in line]

    assert len(advice("cpu")) == len(advice("cuda")) == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert advice("cpu") == [], "no device that this machine lacks and the sweep has not measured"
    assert "`device=cpu,cuda` compares both" in advice("cuda")[0], "the sweep was run where there is one"


def test_axis_of_lists_is_not_extended(steps):
    runs = [({"betas": [beta, 0.99], "num_workers": 0}, 2, {}) for beta in (0.7, 0.8, 0.9)]
    assert not [line for line in steps(*runs) if line.startswith("Try")]


def test_command_of_the_best_cell_names_an_existing_metric(contents, timed):
    cases = ((["val_accuracy"], " --metric val_loss"), (["val_accuracy", "val_loss"], " --metric accuracy"))
    for missing, by in cases:
        epochs = [msgspec.structs.replace(epoch, **dict.fromkeys(missing)) for epoch in timed([9.0, 2.0])]
        sweep = contents(*(({"lr": lr}, epochs, {}) for lr in (1, 2)))
        *_, last = next_steps(result_rows(sweep, None), compare(sweep, None), sweep=SweepPaths(Path("mine")))
        assert last == f"`runmanager best mine{by}` prints the command that repeats the best cell."
