"""Bottlenecks: each kind on a record built for it, and none where it is not clear."""

import msgspec
import pytest

from runmanager.records.host.gpus import DevicePeaks
from runmanager.records.run.run_record import Measurements
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.matched_pairs import match_sides
from runmanager.results.findings.bottleneck import bottleneck_notes, find_bottleneck

CONFIG = {
    "batch_size": 100,
    "num_workers": 0,
    "device": "cpu",
    "loader": {"name": "dataloader"},
    "dataset": {"name": "mnist"},
}
# Ten steps of 100 samples in an epoch of a second, of which 0.9 are compute unless a test says otherwise.
CEILINGS = DevicePeaks(
    device_name="Zen 4",
    threads=2,
    flops_per_second={"fp32": 1e12},
    copy_bytes_per_second=1e11,
    dispatch_seconds=1e-5,
)
LITTLE = Measurements(
    steps_per_epoch=10,
    precision="fp32",
    flop_per_step=10**9,  # 0.01 s an epoch
    operations_per_step=100,  # 0.01 s
    bytes_per_step=10**9,  # 0.1 s, 10 MB an operation
    ceilings=CEILINGS,
)


@pytest.fixture
def run(contents, timed, host):
    """A run whose epochs train for a second, so much of it data and transfer, with what was measured of its work.

    The wall time of an epoch is that second, evaluation and tracking, and half a second that nothing accounts for.
    """

    def make(data=0.05, transfer=0.05, *, config=CONFIG, environment=host, evaluation=0.0, tracking=0.0, **facts):
        phases = {"data_seconds": data, "transfer_seconds": transfer, "compute_seconds": 1 - data - transfer}
        phases |= {"eval_seconds": evaluation, "tracking_seconds": tracking}
        fields = {"measurements": msgspec.structs.replace(LITTLE, **facts), "environment": environment}
        wall = 1.5 + evaluation + tracking
        epochs = [msgspec.structs.replace(each, wall_seconds=wall) for each in timed([9.0] + [1.0] * 5, **phases)]
        return contents((config, epochs, fields)).runs[0]

    return make


@pytest.mark.parametrize(
    ("facts", "kind", "seconds", "left"),
    [
        ({"data": 0.38}, "input", 0.43, 0.57),  # the cure removes the transfer as well
        ({"transfer": 0.5}, "transfer", 0.55, 0.45),
        ({"data": 0.38, "config": {"lr": 0.1}}, "input", 0.38, 0.62),  # without a cure, each is separate
        ({"transfer": 0.5, "config": {"lr": 0.1}}, "transfer", 0.5, 0.5),
        ({"operations_per_step": 6000}, "launch", 0.6, 0.4),
        ({"flop_per_step": 8 * 10**10}, "compute", 0.8, 0.8),  # that work stays, the rest can be saved
        ({"bytes_per_step": 7 * 10**9}, "memory", 0.7, 0.7),
    ],
)
def test_each_kind_has_its_shares_and_amdahls_bounds(run, facts, kind, seconds, left):
    found = find_bottleneck(run(**facts))
    assert (found.kind, found.share, found.at_most) == (kind, pytest.approx(seconds), pytest.approx(1 / left))
    assert (found.whole_share, found.whole_at_most) == (pytest.approx(seconds / 1.5), pytest.approx(1.5 / (left + 0.5)))


@pytest.mark.parametrize(
    ("facts", "kind", "share"),
    [
        ({"evaluation": 11.0}, "eval", 11 / 12.5),
        ({"tracking": 3.0}, "tracking", 3 / 4.5),
        ({"data": 0.5, "evaluation": 1.0}, "eval", 1 / 2.5),  # half of the training epoch, a fifth of all
        ({"data": 0.9, "evaluation": 0.8}, "input", 0.95 / 2.3),
    ],
)
def test_phases_outside_training_bound_the_wall_time(run, facts, kind, share):
    found = find_bottleneck(run(**facts))
    assert (found.kind, found.whole_share) == (kind, pytest.approx(share))
    assert found.whole_at_most == pytest.approx(1 / (1 - share))
    assert (found.share is None, found.at_most is None) == ((kind != "input"),) * 2


def test_evaluation_is_found_in_a_loop_without_other_phases(contents, timed):
    (one,) = contents(({"lr": 0.1}, timed([9.0] + [1.0] * 5, eval_seconds=9.0), {})).runs
    found = find_bottleneck(one)
    assert (found.kind, found.whole_share, found.cure) == ("eval", pytest.approx(0.9), "")  # its wall time is too short


def test_largest_share_is_the_bottleneck(run):
    assert find_bottleneck(run(data=0.3, flop_per_step=6 * 10**10)).kind == "compute"
    assert find_bottleneck(run(data=0.6, flop_per_step=3 * 10**10)).kind == "input"


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"data": 0.19},
        {"evaluation": 0.3},  # of 1.8 seconds
        {"flop_per_step": 4 * 10**10},  # less than half of the compute time
        {"flop_per_step": 6 * 10**10, "operations_per_step": 5000},  # 0.6 and 0.5 seconds: not clearly ahead
        {"flop_per_step": 2 * 10**11},  # twice the available time: not this run's ceiling
        {"bytes_per_step": 7 * 10**9, "operations_per_step": 4000},  # 1.75 MB an operation: in caches
        {"flop_per_step": 8 * 10**10, "precision": "bf16"},  # no ceiling of that precision
        {"flop_per_step": 8 * 10**10, "ceilings": None},
        {"flop_per_step": 8 * 10**10, "steps_per_epoch": None},
        {"flop_per_step": 8 * 10**10, "ceilings": msgspec.structs.replace(CEILINGS, device_name="H200")},
        {"flop_per_step": 8 * 10**10, "ceilings": msgspec.structs.replace(CEILINGS, threads=1)},
    ],
)
def test_unclear_bottleneck_is_none(run, facts):
    assert find_bottleneck(run(**facts)) is None


@pytest.mark.parametrize(
    ("facts", "setting", "is_said"),
    [
        ({"operations_per_step": 6000}, {"graphs": True}, False),
        ({"operations_per_step": 6000}, {"graphs": "auto"}, False),
        ({"operations_per_step": 6000}, {"compile": True}, False),
        ({"bytes_per_step": 7 * 10**9}, {"compile": True}, False),
        ({"bytes_per_step": 7 * 10**9}, {"graphs": True}, True),
        ({"flop_per_step": 8 * 10**10}, {"compile": True, "graphs": True}, True),
        ({"operations_per_step": 6000}, {"compile": False, "graphs": False}, True),
        ({"operations_per_step": 6000}, {"micro_batch": 10}, False),
        ({"bytes_per_step": 7 * 10**9}, {"micro_batch": "auto"}, False),
        ({"bytes_per_step": 7 * 10**9, "chosen": {"micro_batch": None}}, {"micro_batch": "auto"}, True),
        ({"bytes_per_step": 7 * 10**9, "chosen": {"micro_batch": 400}}, {"micro_batch": "auto"}, False),
        ({"flop_per_step": 8 * 10**10}, {"micro_batch": "auto"}, True),
        ({"bytes_per_step": 7 * 10**9}, {"precision": "bf16"}, False),
        ({"operations_per_step": 6000}, {"precision": "bf16"}, True),
        ({"bytes_per_step": 7 * 10**9}, {"precision": "fp32", "micro_batch": None}, True),
    ],
)
def test_counts_of_a_plain_step_apply_to_plain_steps_only(run, facts, setting, is_said):
    assert (find_bottleneck(run(config=CONFIG | setting, **facts)) is not None) is is_said


@pytest.mark.parametrize(
    ("capability", "graphs", "is_offered"), [("9.0", False, True), (None, False, False), ("9.0", "auto", False)]
)
def test_captured_steps_are_the_cure_for_launching_on_cuda(run, host, capability, graphs, is_offered):
    on_gpu = msgspec.structs.replace(host, compute_capability=capability)
    found = find_bottleneck(run(config=CONFIG | {"graphs": graphs}, operations_per_step=6000, environment=on_gpu))
    assert (found is not None and found.cure.startswith("`graphs=true`, ")) is is_offered
    halving = CONFIG | {"graphs": graphs, "on_oom": "halve"}  # which is rejected together with `graphs`
    found = find_bottleneck(run(config=halving, operations_per_step=6000, environment=on_gpu))
    assert found is None or "graphs" not in found.cure


def test_run_without_phases_or_measured_epochs_has_no_bottleneck(contents, timed):
    for epochs in (timed([9.0, 1.0]), timed([9.0], data_seconds=8.0), []):
        assert find_bottleneck(contents((CONFIG, epochs, {})).runs[0]) is None


def test_smaller_last_batch_counts_as_a_fraction(run):
    # 1000 samples are two batches of 400 and one of 200: 2.5 full ones, not 3.
    found = find_bottleneck(run(config=CONFIG | {"batch_size": 400}, steps_per_epoch=3, flop_per_step=24 * 10**10))
    assert found.share == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("config", "cure"),
    [
        ({}, "`loader=resident`"),
        ({"num_workers": 2}, "`loader=resident` with `num_workers=0`"),
        ({"loader": {"name": "resident"}}, ""),
        ({"dataset": {"name": "custom"}}, "a larger `num_workers` than 0"),
        ({"dataset": {"name": "custom"}, "num_workers": 2}, ""),
    ],
)
def test_cure_for_waiting_fits_the_run(run, host, config, cure):
    two_cores = msgspec.structs.replace(host, num_cores=2)
    assert find_bottleneck(run(data=0.5, config=CONFIG | config, environment=two_cores)).cure == cure


@pytest.mark.parametrize(
    ("facts", "config", "cure"),
    [
        ({"evaluation": 9.0}, {"dataset": {"name": "digits", "val_size": None}}, "fewer samples to evaluate on"),
        ({"evaluation": 9.0}, {"dataset": {"name": "digits", "holdout": 500, "val_size": None}}, "`dataset.holdout`"),
        ({"evaluation": 9.0}, {"dataset": {"name": "custom"}}, ""),
        ({"tracking": 9.0}, {"checkpoint": {"every": 1}}, "a larger `checkpoint.every` than 1"),
        ({"tracking": 9.0}, {"checkpoint": {"every": 0}}, ""),
    ],
)
def test_cure_for_phases_outside_training_is_a_setting_of_the_run(run, facts, config, cure):
    text = find_bottleneck(run(config=CONFIG | config, **facts)).cure
    assert cure in text and bool(cure) == bool(text)


def test_custom_loop_has_evidence_without_a_cure(run):
    found = find_bottleneck(run(data=0.5, config={"lr": 0.1}))
    assert (found.kind, found.cure) == ("input", "")


def test_similar_runs_of_a_side_share_a_line(contents, timed):
    phases = {"transfer_seconds": 0.0, "compute_seconds": 0.6}
    runs = [
        (CONFIG | {"lr": lr, "device": device}, timed([9.0] + [1.0] * 5, data_seconds=data, **phases), {})
        for lr, data in ((1, 0.31), (2, 0.38), (3, 0.1))
        for device in ("cpu", "cuda")
        if (lr, device) != (1, "cuda")
    ]
    lines = bottleneck_notes(match_sides(contents(*runs), None, CompareOptions()))
    gain = "`loader=resident`; at most 1.61 times as fast in training, and so at most 1.34 times as fast as a whole."
    assert lines == [
        "cpu, 2 of 3 runs (input): 31 to 38% of the training epoch waits for data (21 to 25% of the wall time): "
        + gain,
        "cuda, 1 of 2 runs (input): 38% of the training epoch waits for data (25% of the wall time): " + gain,
    ]
    for metric in ("val_accuracy", "latency_p50_seconds"):
        assert bottleneck_notes(match_sides(contents(*runs), None, CompareOptions(metric=metric))) == []
    on_cpu = [run for run in runs if run[0]["device"] == "cpu"]  # for any number of sides of a stand-in axis
    assert bottleneck_notes(match_sides(contents(*on_cpu), None, CompareOptions())) == lines[:1]
    for device in ("auto", None):
        left_open = [(config | {"device": device}, *others) for config, *others in on_cpu]
        assert bottleneck_notes(match_sides(contents(*left_open), None, CompareOptions())) == [
            lines[0].replace("cpu", "Zen 4")
        ]


@pytest.mark.parametrize(
    ("epoch", "phases", "expected"),
    [
        (  # training only: both shares are equal, and printed once
            {"epoch_seconds": 1.0, "wall_seconds": 1.0},
            {"data_seconds": 0.4, "transfer_seconds": 0.1},
            "(input): 50% of the epoch waits for data and its transfer: `loader=resident`; at most 2.00 times as fast.",
        ),
        (  # a case from practice: data are 30% of training, which is an eighth of all
            {"epoch_seconds": 1.0, "wall_seconds": 8.0},
            {"data_seconds": 0.3, "eval_seconds": 7.0},
            "(eval): 88% of the epoch's wall time is evaluation; at most 8.00 times as fast as a whole.",
        ),
        (
            {"epoch_seconds": 1.0, "wall_seconds": 1.0},
            {"data_seconds": 0.9995},
            "(input): 100% of the epoch waits for data: `loader=resident`; over 100 times as fast at best.",
        ),
        (
            {"epoch_seconds": 1.0, "wall_seconds": 1.0},
            {"data_seconds": 1.0},
            "(input): 100% of the epoch waits for data: `loader=resident`; over 100 times as fast at best.",
        ),
    ],
)
def test_gains_name_the_epoch_or_its_training_part(contents, timed, epoch, phases, expected):
    epochs = [msgspec.structs.replace(each, **epoch, **phases) for each in timed([9.0] + [1.0] * 5)]
    sweep = contents(*((CONFIG | {"device": device}, epochs, {}) for device in ("cpu", "cuda")))
    assert bottleneck_notes(match_sides(sweep, None, CompareOptions()))[0] == f"cpu {expected}"


def test_few_measured_epochs_are_named(contents, timed):
    def lines(measured):
        epochs = [msgspec.structs.replace(each, data_seconds=0.5) for each in timed([9.0] + [1.0] * measured)]
        sweep = contents(*((CONFIG | {"device": device}, epochs, {}) for device in ("cpu", "cuda")))
        return bottleneck_notes(match_sides(sweep, None, CompareOptions()))

    few = "{} (only {} a run)."
    assert lines(1) == [few.format(line.removesuffix("."), "1 epoch") for line in lines(5)]
    assert lines(4) == [few.format(line.removesuffix("."), "4 epochs") for line in lines(5)] != []
