"""The best cell by a logged metric, and by the best epoch of each run."""

import msgspec
import pytest

from runmanager.errors import UsageError
from runmanager.results.compare.comparison import compare
from runmanager.results.findings.answer_sentences import answers
from runmanager.results.findings.best import find_best
from runmanager.results.findings.best_text import best_document, best_headline, best_sections, best_sentences
from runmanager.results.table_model.formatting import format_sections
from runmanager.results.tables.results_table import result_rows

LEAST_ZEAL = {"metric": "zeal", "better": "min"}
COLUMNS = dict.fromkeys(("loss", "accuracy", "val_loss", "val_accuracy"))


@pytest.fixture
def logged(contents, timed):
    """Factory of sweeps without columns of metrics: `val/f1` peaks in epoch 3 + seed, where it is 0.1 higher."""

    def make(reached, *, name="val/f1", num_seeds=3, **fields):
        def epochs(value, seed):
            noise = 0.003 * ((seed * seed + int(100 * value)) % 7)
            return [
                msgspec.structs.replace(
                    epoch, **COLUMNS, metrics={name: value + noise + (0.1 if epoch.epoch == 3 + seed else 0)}
                )
                for epoch in timed([1.0] * 7)
            ]

        return contents(
            *(
                ({"lr": lr, "seed": seed}, epochs(value, seed), fields)
                for lr, value in reached.items()
                for seed in range(num_seeds)
            )
        )

    return make


def test_a_logged_metric_is_the_default_where_no_cell_has_a_column(logged):
    found = find_best(logged({"low": 0.5, "high": 0.8}), None)
    assert (found.metric.name, found.settings, found.verdict) == ("val/f1", {"lr": "high"}, "better")
    assert "No cell has a val_accuracy in each of its finished runs, so this is by val/f1." in best_sentences(found)


def test_a_default_needs_a_known_direction(logged):
    undirected = logged({"low": 0.5}, name="zeal")
    with pytest.raises(UsageError, match=r"whether more or less zeal is better.*as in `--metric zeal --better max`\."):
        find_best(undirected, None)
    said = answers(result_rows(undirected, None), compare(undirected, None), runs=undirected.runs)
    assert said[0].startswith(
        "No cell is ranked, as it is not known whether more or less zeal is better: `runmanager best "
    )
    least = answers(result_rows(undirected, None), compare(undirected, None), runs=undirected.runs, **LEAST_ZEAL)
    assert least[0].startswith("The best zeal is ")
    assert find_best(logged({"low": 0.5}, name="zeal", better={"zeal": "min"}), None).metric.name == "zeal"


def test_declared_and_requested_directions_choose_the_winner(logged):
    values = {"low": 0.5, "high": 0.8}
    assert find_best(logged(values), None, metric="val/f1").settings == {"lr": "high"}
    declared = logged(values, better={"val/f1": "min"})
    assert find_best(declared, None, metric="val/f1").settings == {"lr": "low"}
    assert find_best(declared, None, metric="val/f1", better="larger").settings == {"lr": "high"}
    with pytest.raises(UsageError, match="`--better` must go with a metric, got none"):
        find_best(declared, None, better="max")
    with pytest.raises(UsageError, match="`--at` must be one of last, best"):
        find_best(declared, None, at="first")


def test_the_best_epoch_is_named_and_said_to_flatter(logged):
    found = find_best(logged({"low": 0.5, "high": 0.8}), None, at="best")
    assert float(found.value) == pytest.approx(0.9, abs=0.02)
    assert best_headline(found).endswith(" with lr=high, at epochs 3 to 5.")
    assert "flatters the result" in best_sentences(found)[1]
    runs = format_sections("", best_sections(found)).partition("Settings")[0]
    assert [f"(epoch {number})" in runs for number in (2, 3, 4, 5, 6)] == [False, True, True, True, False]
    plain = best_document(found, command=None)
    assert plain["at"] == "best"
    assert sorted(run["epoch"] for run in plain["best"]["runs"]) == [3, 4, 5]


def test_values_that_were_not_finite_are_said(contents, timed):
    def epochs(values):
        return [
            msgspec.structs.replace(epoch, **COLUMNS, metrics={"val/f1": value})
            for epoch, value in zip(timed([1.0] * len(values)), values, strict=True)
        ]

    runs = (({"lr": 1}, epochs([0.4, 0.5]), {}), ({"lr": 2}, epochs([0.9, None]), {"name": "broken"}))
    last, at_best = (find_best(contents(*runs), None, metric="val/f1", at=at) for at in ("last", "best"))
    assert last.settings == {"lr": 1} and at_best.settings == {"lr": 2}
    assert "The last val/f1 is not finite in broken, so its cell is left out." in best_sentences(last)
    assert "Epochs whose val/f1 was not finite do not count: there are some in broken." in best_sentences(at_best)
    assert best_document(last, command=None)["not_finite"] == ["broken"]
    column = [
        msgspec.structs.replace(epoch, val_loss=None) if epoch.epoch == 3 else epoch for epoch in timed([1.0] * 3)
    ]
    by_loss = find_best(
        contents(({"lr": 1}, column, {"name": "b"}), ({"lr": 2}, timed([1.0]), {})), None, metric="val_loss"
    )
    assert "The last val_loss is missing or not finite in b, so its cell is left out." in best_sentences(by_loss)
    healthy = find_best(contents(runs[0]), None, metric="val/f1")
    assert not any("finite" in line for line in best_sentences(healthy))
    assert "not_finite" not in best_document(healthy, command=None)


def test_contradictory_directions_are_said_where_one_is_requested(logged):
    sweep = logged({"low": 0.5}, num_seeds=2)
    for run, word in zip(sweep.runs, ("max", "min"), strict=True):
        object.__setattr__(run, "record", msgspec.structs.replace(run.record, better={"val/f1": word}))
    with pytest.raises(UsageError, match="which the runs declare differently"):
        find_best(sweep, None, metric="val/f1")
    line = "The runs declare different directions of val/f1: max ("
    assert any(each.startswith(line) for each in best_sentences(find_best(sweep, None, metric="val/f1", better="max")))


def test_one_best_epoch_is_named_alone(logged):
    found = find_best(logged({"only": 0.5}, num_seeds=1), None, at="best")
    assert best_headline(found).endswith(", at epoch 3.")


def test_the_last_epoch_of_a_logged_metric_is_named_too(logged):
    found = find_best(logged({"low": 0.5}), None)
    assert "epoch" not in best_headline(found)
    assert format_sections("", best_sections(found)).count("(epoch 7)") == 3
    assert not any("flatters" in line for line in best_sentences(found))


def test_columns_at_the_last_epoch_are_described_as_before(contents, timed):
    sweep = contents(({"lr": 0.1}, timed([1.0] * 7), {}), ({"lr": 0.2}, timed([1.0] * 5), {}))
    found = find_best(sweep, None)
    plain = best_document(found, command=None)
    assert "at" not in plain and set(plain["best"]["runs"][0]) == {"run", "value", "folder"}
    assert "epoch" not in best_headline(found) + format_sections("", best_sections(found))


def test_values_are_rounded_for_people(contents, timed):
    epochs = [msgspec.structs.replace(each, metrics={"ppl": 100 / 3}) for each in timed([1.0] * 7)]
    sweep = contents(({"lr": 0.1}, epochs, {}), ({"lr": 0.2}, epochs, {}))
    found = find_best(sweep, None, metric="ppl")
    assert best_headline(found) == "the best ppl is 33.33 (n=1) with lr=0.1."
    assert find_best(sweep, None, metric="time_to_ppl=40").metric.format_value(7.0) == "7.000"


def test_a_result_of_the_whole_run_has_no_best_epoch(contents, timed):
    runs = [({"lr": lr}, timed([1.0] * 7), {"summary": {"bleu": bleu}}) for lr, bleu in ((0.1, 20.0), (0.2, 25.0))]
    found = find_best(contents(*runs), None, metric="bleu", at="best")
    assert best_headline(found) == "the best bleu is 25.00 (n=1) with lr=0.2."
    assert not any("flatters" in line for line in best_sentences(found))
    assert "epoch" not in best_document(found, command=None)["best"]["runs"][0]


def test_values_of_intervals_of_steps_are_named_by_their_step(logged):
    found = find_best(logged({"only": 0.5}, num_seeds=1, interval="steps"), None, at="best")
    assert best_headline(found).endswith(", at step 3.")
    assert "(step 3)" in format_sections("", best_sections(found))


def test_cells_without_a_finite_value_are_told_from_those_without_any(contents):
    """A metric of the whole run, as a script prints it: NaN is stored as null."""
    summaries = ({"score": 0.9}, {"score": None}, {"other": 1.0})
    cells = [({"lr": lr}, [], {"summary": each, "name": f"lr{lr}"}) for lr, each in enumerate(summaries)]
    best = find_best(contents(*cells), None, metric="score", better="max")
    assert (best.num_left_out, best.num_not_finite) == (2, 1)
    said = format_sections("", best_sections(best))
    assert "1 cell is left out: the score of a finished run there is not finite." in said
    assert "1 cell is left out: not every finished run there has the metric." in said
    assert "The last score is not finite in lr1, so its cell is left out." in best_sentences(best)
    with pytest.raises(UsageError, match=r"a run whose value is not finite in every cell \(lr1, other\)"):
        find_best(
            contents(cells[1], ({"lr": 9}, [], {"summary": {"score": None, "other": 1.0}, "name": "other"})),
            None,
            metric="score",
            better="max",
        )
