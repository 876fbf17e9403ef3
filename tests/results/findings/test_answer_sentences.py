"""Answers in sentences."""

import dataclasses

import msgspec
import pytest

from runmanager.records.run.run_record import Environment, Turn
from runmanager.records.run.status import Reason, Status
from runmanager.results.compare.comparison import compare, compare_with_stand_in
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.findings.answer_sentences import answers, duel_answers, duel_rates
from runmanager.results.load.loader import read_results
from runmanager.results.tables.results_table import result_rows
from runmanager.results.tables.text_formats import to_markdown

CPU, CUDA = {"lr": 0.1, "device": "cpu"}, {"lr": 0.1, "device": "cuda"}
RATES = (("cpu", 8.0), ("cuda", 1.0))


@pytest.fixture
def answers_of(contents, timed):
    """Factory of the answers for runs given as (config, seconds an epoch, fields)."""

    def say(*runs):
        sweep = contents(*((config, timed([9.0] + [s] * 5), fields) for config, s, fields in runs))
        return answers(result_rows(sweep, None), compare_with_stand_in(sweep, None))

    return say


def test_answer_names_both_sides_with_ratio_and_interval(answers_of):
    assert answers_of((CPU, 8.0, {}), (CUDA, 1.0, {})) == [
        "cuda is 8.0 times as fast as cpu [5.5, 11.6].",
        "The best val_accuracy is 0.8750 with device=cuda, and 1 other run reached the same.",
        "2 runs: 2 finished.",
    ]


def test_a_reason_that_ends_in_a_question_ends_the_sentence(contents, timed):
    sweep = contents(
        *(
            ({"lr": lr, "seed": seed}, [msgspec.structs.replace(epoch, loss=lr) for epoch in timed([1.0] * 3)], {})
            for lr in (0.5, 0.25)
            for seed in range(3)
        )
    )
    found = answers(result_rows(sweep, None), compare(sweep, None, CompareOptions("lr", metric="loss")))
    assert any(line.startswith("lr=0.25 and lr=0.5 could not be compared: ") for line in found)
    assert any(line.endswith("so their noise is not known; does the seed change anything?") for line in found)


def test_faster_side_is_named_first_with_its_location(answers_of):
    other = {"batch_size": 7}
    first = answers_of((CPU, 1.0, {}), (CUDA, 4.0, {}), (CPU | other, 1.0, {}), (CUDA | other, 1.0, {}))[0]
    assert first == (
        "cuda is 0.25 to 1.00 times as fast as cpu, depending on batch_size: 0.25 at batch_size=null, 1.00 at "
        "batch_size=7. Of 2 measured pairs: 1 slower, 1 inconclusive."
    )
    assert answers_of((CPU, 1.0, {}), (CUDA, 4.0, {}))[0] == "cpu is 4.0 times as fast as cuda [2.8, 5.8]."


def test_interval_end_is_not_rounded_to_1(contents, timed):
    def compared(seconds):
        sides = (("cpu", seconds), ("cuda", 1.0))
        return contents(
            *(
                ({"device": device, "seed": seed}, timed([9.0] + [taken] * 5), {})
                for seed in range(5)
                for device, taken in sides
            )
        )

    (row,) = compare(compared(1.0), None).rows
    sweep = compared(1.002 / row["ci_low"])
    (row,) = compare(sweep, None).rows
    assert row["verdict"] == "faster"
    first = answers(result_rows(sweep, None), compare(sweep, None))[0]
    assert first == f"cuda is {row['speedup']:.4f} times as fast as cpu [1.0020, {row['ci_high']:.4f}]."


def pairs_of(seconds):
    """Return a pair at each learning rate: 8 seconds an epoch on CPU, faster by the given ratio on CUDA."""
    return [
        (side | {"lr": lr}, each, {})
        for lr, fast in enumerate(seconds, start=1)
        for side, each in ((CPU, 8.0), (CUDA, fast))
    ]


def test_agreeing_pairs_are_answered_by_their_geometric_mean(answers_of):
    first = answers_of(*pairs_of([2.0, 2.2, 1.8]))[0]
    assert first == (
        "cuda is 4.0 times as fast as cpu [3.4, 4.7], the geometric mean over 3 pairs. Of 3 measured pairs: 3 faster."
    )


def test_disagreeing_pairs_are_answered_by_their_range_and_its_cause(answers_of):
    assert answers_of(*pairs_of([2.0, 1.0, 8.0, 20.0]))[0] == (
        "cuda is 0.40 to 8.00 times as fast as cpu, depending on lr: 0.40 at lr=4, 8.00 at lr=2. "
        "Of 4 measured pairs: 2 faster, 1 slower, 1 inconclusive."
    )


def test_settings_are_printed_as_in_commands(contents, timed):
    """`null` settings are printed, absent ones are not, and settings have their own names, not those of columns."""
    chosen = {"micro_batch": None, "epochs": 7, "graphs": True}
    others = [{"micro_batch": 8, "epochs": 3, "graphs": False}, {"momentum": 0.9}]
    sweep = contents(*((config, timed([1.0] * (7 - at)), {}) for at, config in enumerate([chosen, *others])))
    best = answers(result_rows(sweep, None), compare(sweep, None))[0]
    assert best == "The best val_accuracy is 0.8929 with micro_batch=null, epochs=7, graphs=true."


def test_best_is_the_smallest_loss_without_accuracies(contents, timed):
    def epochs(loss):
        return [msgspec.structs.replace(timed([1.0])[0], accuracy=None, val_accuracy=None, loss=1.0, val_loss=loss)]

    sweep = contents(*(({"lr": lr}, epochs(loss), {}) for lr, loss in ((1, 0.5), (2, 0.25), (3, float("nan")))))
    assert answers(result_rows(sweep, None), compare(sweep, None))[0] == "The best val_loss is 0.2500 with lr=2."


def test_labels_of_other_axes_include_the_setting(contents, timed):
    sweep = contents(*(({"batch_size": size}, timed([9.0] + [s] * 5), {}) for size, s in ((10, 3.0), (20, 1.0))))
    comparison = compare(sweep, None, CompareOptions(axis="batch_size"))
    first = answers(result_rows(sweep, None), comparison)[0]
    assert first == "batch_size=20 is 3.0 times as fast as batch_size=10 [2.1, 4.4]."


def test_answers_distinguish_no_difference_from_inconclusive(answers_of):
    assert answers_of((CPU, 1.0, {}), (CUDA, 1.02, {}))[0] == (
        "Whether cuda and cpu differ in speed is not known: cuda is 0.98 times as fast as cpu [0.67, 1.43]."
    )
    twenty = [(side | {"seed": seed}, 1.0, {}) for seed in range(20) for side in (CPU, CUDA)]
    assert answers_of(*twenty)[0] == (
        "No difference in speed between cuda and cpu: cuda is 1.00 times as fast as cpu [1.00, 1.00]."
    )


def test_contention_is_a_caution_and_never_a_cause(answers_of):
    loaded = {"environment": Environment(outside_cpu_share=0.9)}
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    measured = answers_of((CPU, 8.0, loaded), (CUDA, 1.0, loaded))[0]
    assert measured.startswith("cuda is 8.0 times as fast as cpu [5.5, 11.6]. Its runs were contended")
    assert answers_of((CPU, 1.0, loaded), (CUDA, 1.0, skipped))[1] == (
        "cuda and cpu could not be compared: cuda: skipped (device_unavailable)."
    )


def test_unmeasured_pairs_have_their_cause_and_runs_are_counted_by_state(answers_of):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    best, why_not, last = answers_of((CPU, 1.0, {}), (CUDA, 1.0, skipped))
    assert best == "The best val_accuracy is 0.8750 with device=cpu."
    assert why_not == "cuda and cpu could not be compared: cuda: skipped (device_unavailable)."
    assert last == "2 runs: 1 finished, 1 skipped."


def test_several_causes_have_their_shares(answers_of):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    failed = {"status": Status.FAILED, "reason": Reason.EXCEPTION}
    pairs = [(side | {"lr": lr}, 1.0, fields) for lr, fields in ((1, failed), (2, skipped)) for side in (CPU, CUDA)]
    assert answers_of(*pairs)[0] == (
        "cuda and cpu could not be compared: cpu: failed (exception); cuda: failed (exception) (1 of 2 pairs); "
        "cpu: skipped (device_unavailable); cuda: skipped (device_unavailable) (1 of 2 pairs)."
    )


def test_interval_has_the_decimals_of_its_lower_end(contents, timed):
    sweep = contents((CPU, timed([9.0, 1.6, 1.8, 2.2, 2.3, 2.4]), {}), (CUDA, timed([9.0] + [1.0] * 5), {}))
    first = answers(result_rows(sweep, None), compare(sweep, None))[0]
    assert first.startswith("cuda is 2.20 times as fast as cpu [1.45, 3.33]. The medians hide ")


def test_stand_in_axis_is_answered_by_one_candidate_after_the_best(answers_of):
    runs = [({"batch_size": size, "device": "cpu"}, seconds, {}) for size, seconds in ((1, 4.0), (2, 2.0), (3, 1.0))]
    assert answers_of(*runs) == [
        "The best val_accuracy is 0.8750 with batch_size=3, and 2 other runs reached the same.",
        "batch_size=3 is 4.0 times as fast as batch_size=1 [2.5, 6.5]. It is shown because it differs most, which "
        "makes it look larger than it may be. Also faster: batch_size=2.",
        "3 runs: 3 finished.",
    ]
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    assert answers_of(*runs, *(({**config, "device": "cuda"}, 1.0, skipped) for config, _, _ in runs))[1:3] == [
        "batch_size=3 is 4.0 times as fast as batch_size=1 at device=cpu [2.5, 6.5]. It is shown because it differs "
        "most, which makes it look larger than it may be. Also faster: batch_size=2.",
        "cuda and cpu could not be compared: cuda: skipped (device_unavailable).",
    ]
    assert answers_of(*(({"lr": lr}, 1.0, {}) for lr in range(9)))[1] == (
        "A difference in speed along lr is neither shown nor ruled out in 8 pairs."
    )
    cells = [{"lr": lr, "batch_size": size} for lr in range(3) for size in range(2)]
    assert answers_of(*((cell, 1.0 + cell["batch_size"] / 4, {}) for cell in cells))[1] == (
        "A difference in speed along batch_size is neither shown nor ruled out by any of 3 pairs alone; "
        "`runmanager compare mine --axis batch_size` judges them together."
    )


def test_one_device_needs_no_comparison(answers_of):
    assert answers_of((CPU, 1.0, {})) == ["The best val_accuracy is 0.8750.", "1 run: 1 finished."]


def test_answer_without_runs(answers_of):
    assert answers_of() == ["No runs yet."]


def test_unreadable_runs_are_counted(sweep):
    for lr in (1, 2, 3):
        name = sweep.run({"lr": lr})
        if lr == 1:
            sweep.paths.run(name).record.write_text("{")
        if lr == 2:
            sweep.paths.run(name).epochs.write_text("{\n")  # its record is intact
    read = read_results(sweep.paths)
    results = result_rows(*read)
    assert answers(results, compare(*read))[-1] == "3 runs: 2 finished, 1 not read."
    assert [(row["lr"], row["epochs"]) for row in results.rows] == [
        (3, 7),
        (2, None),
    ]
    sweep.paths.record.write_text("{")  # not a record
    assert result_rows(*read_results(sweep.paths)).num_unread == 1


def test_setting_may_have_the_name_of_a_column_of_another_table(contents, timed):
    """Such a setting has a column under `settings.` in every table."""
    names = ("metric", "nulls", "seeds", "note", "baseline_value")
    runs = [({"device": device, **dict.fromkeys(names, "f1")}, timed([9.0] + [s] * 5), {}) for device, s in RATES]
    runs += [({"device": device, **dict.fromkeys(names, 3)}, timed([9.0] + [s] * 5), {}) for device, s in RATES]
    sweep = contents(*runs)
    results, comparison = result_rows(sweep, None), compare(sweep, None)
    assert {row[f"settings.{name}"] for row in results.rows for name in names} == {"f1", 3}
    assert answers(results, comparison)[0].startswith("cuda is 8.0 times as fast as cpu [6.7, 9.5], the geometric mean")
    assert "settings.metric" in to_markdown(comparison)


def test_duel_is_answered_with_ratio_interval_verdict_and_rounds(contents):
    paired = {"measure": {"name": "paired"}}
    sweep = contents((CPU | paired, [], {}), (CUDA | paired, [], {}))
    rates = [1000.0] * 7, [2500.0] * 7
    turns = [[Turn("a", number, 1, 1, 1000, 1000 / rate) for number, rate in enumerate(of_run)] for of_run in rates]
    runs = [dataclasses.replace(run, turns=taken) for run, taken in zip(sweep.runs, turns, strict=True)]
    comparison = compare(dataclasses.replace(sweep, runs=runs), None)
    assert duel_rates(comparison) == ["cpu: 1,000 samples per second", "cuda: 2,500 samples per second"]
    assert duel_answers(comparison) == [
        "cuda is 2.500 times as fast as cpu (95% interval 2.214 to 2.822): faster, after 7 rounds side by side in "
        "1 pair of processes."
    ]


def test_duel_with_a_missing_device_names_it(contents, host):
    loaded = {"environment": msgspec.structs.replace(host, outside_cpu_share=0.9)}
    missing = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    paired = {"measure": {"name": "paired"}}
    sweep = contents((CPU | paired, [], loaded), (CUDA | paired, [], missing))
    assert duel_answers(compare(sweep, None)) == [
        "cuda and cpu could not be compared: cuda: skipped (device_unavailable)."
    ]
