"""The outcome of a sweep: columns first, then logged metrics whose direction is known; answers by it."""

import math

import msgspec
import pytest

from runmanager.results.compare.comparison import compare
from runmanager.results.findings.answer_sentences import answers, best_row
from runmanager.results.findings.outcomes import outcomes
from runmanager.results.findings.recommendations import next_steps
from runmanager.results.report.markdown_summary import headlines
from runmanager.results.tables.results_table import result_rows

COLUMNS = dict.fromkeys(("loss", "accuracy", "val_loss", "val_accuracy"))


@pytest.fixture
def logged(contents, timed):
    """Factory of sweeps that log `zeal`, then `fid`, from the values of each learning rate's seeds."""

    def make(reached, *, columns=COLUMNS, **fields):
        def epochs(value):
            plain = [msgspec.structs.replace(epoch, **columns) for epoch in timed([1.0] * 7)]
            return [msgspec.structs.replace(epoch, metrics={"zeal": 1.0, "fid": value}) for epoch in plain]

        return contents(
            *(
                ({"lr": lr, "seed": seed}, epochs(value), fields)
                for lr, values in reached.items()
                for seed, value in enumerate(values)
            )
        )

    return make


def answered(sweep):
    return answers(result_rows(sweep, None), compare(sweep, None), runs=sweep.runs)


def test_metrics_of_validation_come_first_and_columns_of_training_last(logged):
    sweep = logged({0.1: (3.0,)})
    names = [each.name for each in outcomes(result_rows(sweep, None), sweep.runs)]
    assert names == ["val_accuracy", "val_loss", "fid", "accuracy", "loss"]
    sweep = logged({0.1: (3.0,)}, better={"zeal": "max", "fid": "max"})
    zeal, fid = list(outcomes(result_rows(sweep, None), sweep.runs))[2:4]
    assert (zeal.name, fid.name, fid.metric.more_is_better) == ("zeal", "fid", True)
    assert answered(logged({0.1: (3.0,)}, columns={}))[0].startswith("The best val_accuracy is 0.8929")


def test_metrics_of_training_come_after_those_of_a_test(contents):
    summary = {"train_loss": 0.1, "Training/acc": 0.9, "trained_loss": 0.3, "test_loss": 0.2}
    sweep = contents(({"lr": 0.1}, (), {"summary": summary}))
    logged = [each.name for each in outcomes(result_rows(sweep, None), sweep.runs) if each.name in summary]
    assert logged == ["trained_loss", "test_loss", "train_loss", "Training/acc"]


def test_the_answer_is_the_best_mean_of_the_logged_outcome(logged):
    sweep = logged({0.1: (5.0, 7.0), 0.2: (3.0, 4.0), 0.3: (9.0, 2.0)})
    assert "The best fid is 3.500 ± 0.707 over 2 seeds with lr=0.2." in answered(sweep)
    assert not any("best" in line for line in answers(result_rows(sweep, None), compare(sweep, None)))
    text = headlines(sweep, None, results=result_rows(sweep, None), comparison=compare(sweep, None))
    assert any(line.startswith("Next is lr=0.3 with 5.500 ± 4.950 (n=2).") for line in text)


def test_a_value_that_is_not_finite_never_wins(logged):
    values = {0.1: (5.0,), 0.2: (None,), 0.3: (math.inf,)}
    for word in ("min", "max"):
        assert "The best fid is 5.000 with lr=0.1." in answered(logged(values, better={"fid": word}))


def test_ties_are_counted(logged):
    sweep = logged({0.1: (5.0,), 0.2: (5.0,), 0.3: (6.0,)})
    assert "The best fid is 5.000 with lr=0.1, and 1 other run reached the same." in answered(sweep)
    found = best_row(result_rows(sweep, None), sweep.runs)
    assert [row["lr"] for row in found.equally_good] == [0.1, 0.2]


def test_contradictory_declarations_give_no_outcome_and_no_error(logged, contents):
    one, other = (logged({lr: (3.0,)}, better={"fid": word}).runs[0] for lr, word in ((0.1, "max"), (0.2, "min")))
    sweep = logged({})
    sweep.runs.extend((one, other))
    assert not any("The best" in line for line in answered(sweep))


def test_next_steps_name_the_logged_outcome(logged):
    sweep = logged({0.1: (5.0,), 0.2: (4.0,), 0.3: (3.0,)})
    steps = next_steps(result_rows(sweep, None), compare(sweep, None), sweep=sweep.paths, runs=sweep.runs)
    assert "Try a larger `lr`: the best fid is at the largest tried, 0.3." in steps
    assert steps[-1].startswith("`runmanager best mine --metric fid` prints")
