"""Tests of the best cell: which it is, how sure that is, and that the claims are not too strong."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from runmanager.errors import UsageError
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.sweep_record import SweepCommand, add_cells
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.findings.answer_sentences import answers
from runmanager.results.findings.best import BestCell, find_best
from runmanager.results.findings.best_text import best_document, best_headline, best_sections, best_sentences
from runmanager.results.findings.outcomes import RANKED_BY_SHARED_SEEDS
from runmanager.results.stats.noise_model import critical_value
from runmanager.results.table_model.formatting import format_sections
from runmanager.results.tables.results_table import result_rows

OPTIONS: dict[str, Any] = {"metric": "val_accuracy"}


def reaching(accuracy: float, *, seconds: float = 2.0) -> list[EpochRecord]:
    return [
        EpochRecord(
            epoch=number,
            val_accuracy=accuracy * number / 6,
            epoch_seconds=seconds,
            samples=1000,
            warmup=number == 1,
        )
        for number in range(1, 7)
    ]


@pytest.fixture
def seeds(contents: Callable[..., SweepContents]) -> Callable[..., SweepContents]:
    """Factory of sweeps from the accuracies that each learning rate's seeds reached."""

    def make(**reached: Sequence[float]) -> SweepContents:
        return contents(
            *(
                ({"lr": lr, "seed": seed}, reaching(accuracy), {})
                for lr, accuracies in reached.items()
                for seed, accuracy in enumerate(accuracies)
            )
        )

    return make


def test_best_is_the_best_mean_not_the_best_run(seeds: Callable[..., SweepContents]) -> None:
    found = find_best(seeds(low=[0.80, 0.81, 0.79], high=[0.90, 0.91, 0.89], lucky=[0.95, 0.70, 0.72]), None, **OPTIONS)
    assert found.winner.settings == {"lr": "high"}
    assert best_headline(found) == "the best val_accuracy is 0.9000 ± 0.0100 (n=3) with lr=high."
    assert [run.record.config["seed"] for run, _ in found.winner.runs] == [1, 0, 2]


@pytest.mark.parametrize("metric", ["val_accuracy", "epoch_seconds"])
def test_cells_with_other_seeds_are_ranked_by_those_that_they_share(
    contents: Callable[..., SweepContents], metric: str
) -> None:
    """Seed 2 is worse for all: the mean of the cell without it says nothing about the cell."""
    of_seed, of_cell = (1.0, 0.95, 0.6), {"few": 0.90, "all": 0.92, "bad": 0.80}
    sweep = contents(
        *(
            ({"lr": lr, "seed": seed}, reaching(level * own, seconds=1 / (level * own)), {})
            for lr, level in of_cell.items()
            for seed, own in enumerate(of_seed[: 2 if lr == "few" else 3])
        )
    )
    found = find_best(sweep, None, metric=metric)
    assert found.winner.settings == {"lr": "all"}
    assert found.runner_up is not None and found.runner_up.settings == {"lr": "few"}
    assert best_sentences(found)[0] == RANKED_BY_SHARED_SEEDS
    answer = next(each for each in answers(result_rows(sweep, None), compare(sweep, None)) if "best" in each)
    assert "The best val_accuracy is " in answer and " with lr=all. " in answer and RANKED_BY_SHARED_SEEDS in answer


def test_clear_winner_is_outside_the_noise(seeds: Callable[..., SweepContents]) -> None:
    found = find_best(seeds(low=[0.60, 0.61, 0.62], high=[0.90, 0.905, 0.91]), None, **OPTIONS)
    assert found.verdict == "better"
    low = f"{found.effect.estimate.low:.4f}"
    level = "(one-sided 95%; `compare` is two-sided)"
    assert f"The difference is outside the noise: 0.2950, at least {low} {level}." in best_sentences(found)


def test_runner_up_within_the_noise_is_a_rival(seeds: Callable[..., SweepContents]) -> None:
    found = find_best(seeds(one=[0.85, 0.95, 0.90], two=[0.86, 0.94, 0.89]), None, **OPTIONS)
    assert found.verdict == "inconclusive"
    assert "One cell is not shown to be worse than the best one: lr=two." in best_sentences(found)


def test_cells_are_ranked_and_compared_by_one_estimand(seeds: Callable[..., SweepContents]) -> None:
    """By the mean the first is worse, though it is better by the median: it must not be claimed to be better."""
    sweep = seeds(first=[0.98, 0.981, 0.979, 0.98, 0.1], second=[0.90, 0.901, 0.902, 0.899, 0.9])
    found = find_best(sweep, None, **OPTIONS)
    assert found.winner.settings == {"lr": "second"} and found.verdict == "inconclusive"
    assert "seed=4 with 0.1000 fell far behind the median of 0.9800" in " ".join(best_sentences(found))
    (row,) = compare(sweep, None, CompareOptions(axis="lr", metric="val_accuracy")).rows
    assert row["verdict"] == "inconclusive"


def test_all_indistinguishable_cells_are_named(seeds: Callable[..., SweepContents]) -> None:
    sweep = seeds(a=[0.90, 0.92, 0.94], b=[0.91, 0.92, 0.92], c=[0.1, 0.12, 0.11], d=[0.93, 0.92, 0.915])
    found = find_best(sweep, None, **OPTIONS)
    assert found.winner.settings == {"lr": "d"}
    assert [each.settings["lr"] for each in found.rivals] == ["a", "b"]
    assert "2 cells are not shown to be worse than the best one: lr=a; lr=b." in best_sentences(found)
    assert best_document(found, command=["python"])["rivals"] == [{"lr": "a"}, {"lr": "b"}]


def test_rival_is_named_though_the_runner_up_is_significantly_behind(seeds: Callable[..., SweepContents]) -> None:
    steps = np.random.default_rng(1).normal(0, 0.0001, (5, 4)).tolist()
    quiet = {f"q{at}": [0.90 - 0.02 * at + each for each in of_cell] for at, of_cell in enumerate(steps)}
    found = find_best(seeds(**quiet, wild=[0.99, 0.70, 0.95, 0.76]), None, **OPTIONS)
    assert found.verdict == "better" and found.runner_up is not None
    assert found.runner_up.settings == {"lr": "q1"}
    assert "One cell is not shown to be worse than the best one: lr=wild." in best_sentences(found)


def sweep_of_20(seeds: Callable[..., SweepContents], generator: np.random.Generator, step: float) -> SweepContents:
    """Twenty cells of three seeds that differ by 0.01, each cell worse than the one before by `step`."""
    noise = generator.normal(0, 0.01, (20, 3))
    return seeds(**{f"c{at}": (0.95 - step * at + noise[at]).tolist() for at in range(20)})


def test_the_best_of_twenty_is_among_few(seeds: Callable[..., SweepContents]) -> None:
    """Comparisons with the best alone leave far fewer than the intervals of all 190 pairs."""
    generator, num_rivals, num_by_pairs, missed = np.random.default_rng(1), 0, 0, 0
    for _ in range(8):
        sweep = sweep_of_20(seeds, generator, 0.005)
        found = find_best(sweep, None, **OPTIONS)
        named = {cell.settings["lr"] for cell in [found.winner, *found.rivals]}
        missed += "c0" not in named
        num_rivals += len(found.rivals)
        best = found.winner.settings["lr"]
        table = compare(sweep, None, CompareOptions(axis="lr", baseline=best, **OPTIONS))
        rows = table.rows
        assert {row["baseline"] for row in rows} == {best} and len(rows) == 19
        ends = [(row["difference"], row["ci_high"]) for row in rows]
        # Šidák's level of 190 pairs over that of 19, at the degrees of freedom of many cells.
        factor = critical_value(30.0, 190) / critical_value(30.0, 19)
        num_by_pairs += sum(value + factor * (high - value) >= 0 for value, high in ends)
    assert missed <= 1
    assert num_rivals < 8 * 8 and num_rivals < 0.75 * num_by_pairs


def test_equal_cells_are_all_rivals_in_nearly_all_sweeps(seeds: Callable[..., SweepContents]) -> None:
    generator = np.random.default_rng(2)
    found = [find_best(sweep_of_20(seeds, generator, 0.0), None, **OPTIONS) for _ in range(12)]
    assert sum(len(each.rivals) < 19 for each in found) <= 3  # at most 10%, as both directions are looked at


def test_a_collapsed_seed_of_a_loser_changes_neither_the_luck_nor_the_rivals(
    seeds: Callable[..., SweepContents],
) -> None:
    values = np.random.default_rng(3).normal(0.9, 0.002, (12, 4))
    values[0] += 0.002
    cells = {f"c{at}": row.tolist() for at, row in enumerate(values)}
    before = find_best(seeds(**cells), None, **OPTIONS)
    loser = next(name for name in ("c11", "c10") if name != before.winner.settings["lr"])
    after = find_best(seeds(**cells | {loser: [*cells[loser][:3], 0.1]}), None, **OPTIONS)
    assert before.selection_bias is not None and after.selection_bias is not None
    assert after.selection_bias == pytest.approx(before.selection_bias, rel=0.1)
    assert after.selection_bias < 0.003

    def rivals(found: BestCell) -> set[str]:
        return {each.settings["lr"] for each in found.rivals} - {loser}

    assert rivals(after) == rivals(before)


def test_luck_is_by_the_noise_of_the_winner_alone(seeds: Callable[..., SweepContents]) -> None:
    """Of two cells every comparison has the collapsed seed of the loser in it."""
    found = find_best(seeds(good=[0.95, 0.951, 0.949, 0.95], bad=[0.94, 0.941, 0.939, 0.1]), None, **OPTIONS)
    assert found.winner.settings == {"lr": "good"} and len(found.rivals) == 1
    assert found.selection_bias is not None and found.selection_bias < 0.001


def test_cells_that_one_more_seed_would_rule_out_are_counted(seeds: Callable[..., SweepContents]) -> None:
    """The width of the interval falls with more runs; a cell just within it will be out, an equal one will not."""
    noise, other = [-0.004, 0.004, 0.001, -0.001], [0.002, 0.003, -0.004, -0.001]
    cells = {"a": [0.95 + each for each in noise], "b": [0.9495 + each for each in other]}
    close = find_best(seeds(**cells), None, **OPTIONS)
    assert (len(close.rivals), close.num_decided_by_a_seed) == (1, 0)
    assert "One more seed of both would likely not rule it out." in best_sentences(close)
    assert close.effect is not None
    reach = close.effect.estimate.high - close.effect.estimate.value
    cells["b"] = [0.95 - 0.95 * reach + each for each in other]
    further = find_best(seeds(**cells), None, **OPTIONS)
    assert (len(further.rivals), further.num_decided_by_a_seed) == (1, 1)
    assert "One more seed of both would likely rule it out." in best_sentences(further)


def test_cells_with_too_few_runs_are_named(seeds: Callable[..., SweepContents]) -> None:
    found = find_best(seeds(a=[0.90, 0.92, 0.94], b=[0.91, 0.92, 0.92], c=[0.89], d=[0.1, 0.12, 0.11]), None, **OPTIONS)
    text = best_sentences(found)
    assert "One cell is not shown to be worse than the best one: lr=b." in text
    assert "One more cell could not be compared: lr=c." in text
    assert best_document(found, command=None)["unmeasured"] == [{"lr": "c"}]
    of_next = find_best(seeds(a=[0.91, 0.92, 0.94], b=[0.908, 0.919], c=[0.91, 0.92, 0.915]), None, **OPTIONS)
    assert of_next.verdict == "not measured"
    assert "One cell is not shown to be worse than the best one: lr=c." in best_sentences(of_next)


def test_size_of_the_selection_bias(seeds: Callable[..., SweepContents]) -> None:
    """The best mean of equal cells exceeds the truth by the reported bias, on average."""
    generator = np.random.default_rng(1)
    text, true = [], []
    for _ in range(40):
        sweep = seeds(**{f"c{at}": generator.normal(0.9, 0.01, 3).tolist() for at in range(8)})
        found = find_best(sweep, None, **OPTIONS)
        assert found.selection_bias is not None
        text.append(found.selection_bias)
        true.append(float(found.value) - 0.9)
    assert np.mean(text) == pytest.approx(np.mean(true), rel=0.2)
    assert " is likely a little too good: by 0.00" in " ".join(best_sentences(found))
    assert find_best(seeds(a=[0.5], b=[0.6], c=[0.7]), None, **OPTIONS).selection_bias is None


def test_one_run_a_cell_is_not_measured(seeds: Callable[..., SweepContents]) -> None:
    found = find_best(seeds(one=[0.99], two=[0.10]), None, **OPTIONS)
    assert found.verdict == "not measured"
    text = " ".join(best_sentences(found))
    assert "not known: too few runs: 1 of the next, 1 of the best, 3 needed" in text
    assert "add seeds" in text


def test_best_of_many_has_a_warning_about_selection(seeds: Callable[..., SweepContents]) -> None:
    two = find_best(seeds(a=[0.5], b=[0.6]), None, **OPTIONS)
    assert "after looking" not in " ".join(best_sentences(two))
    three = find_best(seeds(a=[0.5], b=[0.6], c=[0.7]), None, **OPTIONS)
    assert "The best of 3 cells was picked after looking" in " ".join(best_sentences(three))


def test_cells_of_the_same_mean_are_counted(seeds: Callable[..., SweepContents]) -> None:
    assert "1 other cell has exactly the same mean." in best_sentences(
        find_best(seeds(a=[0.5], b=[0.5]), None, **OPTIONS)
    )
    three = find_best(seeds(a=[0.5], b=[0.5], c=[0.5], d=[0.1]), None, **OPTIONS)
    assert "2 other cells have exactly the same mean." in best_sentences(three)


def test_smaller_times_and_losses_are_better(contents: Callable[..., SweepContents]) -> None:
    sweep = contents(
        ({"lr": 1}, reaching(0.9, seconds=4.0), {}),
        ({"lr": 2}, reaching(0.5, seconds=1.0), {}),
    )
    assert find_best(sweep, None, metric="epoch_seconds").winner.settings == {"lr": 2}
    by_speed = find_best(sweep, None, metric="samples_per_second")
    assert by_speed.winner.settings == {"lr": 2}
    assert "The difference is outside the noise: 4.000 times as fast, at least " in " ".join(best_sentences(by_speed))


def test_geometric_mean_is_named(contents: Callable[..., SweepContents]) -> None:
    """The table has 2.5 for the same runs."""
    runs = (({"lr": 1, "seed": seed}, reaching(0.9, seconds=seconds), {}) for seed, seconds in ((0, 1.0), (1, 4.0)))
    sweep = contents(*runs, ({"lr": 2, "seed": 0}, reaching(0.9, seconds=8.0), {}))
    found = find_best(sweep, None, metric="epoch_seconds")
    assert "is 2.000 ± 2.121 (geometric mean, n=2) with lr=1." in best_headline(found)
    assert "with 8.000 (n=1)." in best_sentences(found)[0]
    assert "(n=2)" in best_headline(find_best(sweep, None, metric="val_accuracy"))


def test_cells_with_a_run_without_the_metric_are_left_out(contents: Callable[..., SweepContents]) -> None:
    sweep = contents(
        ({"lr": 1, "seed": 0}, reaching(0.9, seconds=1.0), {}),
        ({"lr": 1, "seed": 1}, reaching(0.3, seconds=1.0), {}),  # never reaches the accuracy
        ({"lr": 2, "seed": 0}, reaching(0.9, seconds=9.0), {}),
    )
    found = find_best(sweep, None, metric="time_to_accuracy=0.8")
    assert found.winner.settings == {"lr": 2}
    assert found.num_left_out == 1
    assert "1 cell is left out" in format_sections("", best_sections(found))
    with pytest.raises(UsageError, match=r"got 'time_to_accuracy=0\.99' and a run without it in every cell"):
        find_best(sweep, None, metric="time_to_accuracy=0.99")


def test_unfinished_runs_are_counted_separately(contents: Callable[..., SweepContents]) -> None:
    failed = {"status": Status.FAILED, "reason": Reason.EXCEPTION}
    sweep = contents(
        ({"lr": 1, "seed": 0}, reaching(0.5), {}),
        ({"lr": 1, "seed": 1}, reaching(0.9), failed),
        ({"lr": 2, "seed": 0}, reaching(0.99), failed),
    )
    found = find_best(sweep, None, **OPTIONS)
    assert (found.winner.settings, found.num_cells, found.winner.num_unfinished) == ({"lr": 1}, 1, 1)
    assert best_sentences(found) == ["It is the only cell with this metric, so there is nothing to compare it with."]
    assert "1 more of its runs did not finish." in format_sections("", best_sections(found))
    with pytest.raises(UsageError, match="no finished run"):
        find_best(contents(({"lr": 1}, reaching(0.5), failed)), None, **OPTIONS)


def test_null_setting_is_printed_as_in_commands(contents: Callable[..., SweepContents]) -> None:
    sweep = contents(
        ({"micro_batch": None, "width": 3}, reaching(0.9), {}), ({"micro_batch": 8, "depth": 2}, reaching(0.5), {})
    )
    found = find_best(sweep, None, **OPTIONS)
    assert found.winner.side.label == "micro_batch=null, width=3"
    assert found.winner.settings == {"micro_batch": None, "width": 3}  # it has no depth
    assert "null" in format_sections("", best_sections(found))


def test_groups_have_the_name_that_a_command_takes(contents: Callable[..., SweepContents]) -> None:
    sweep = contents(*(({"optimizer.name": name}, reaching(0.9), {}) for name in ("adam", "sgd")))
    found = find_best(sweep, None, **OPTIONS)
    assert best_headline(found).endswith(" with optimizer=adam.")
    assert "Next is optimizer=sgd with" in " ".join(best_sentences(found))
    assert "\n  optimizer  adam\n" in format_sections("", best_sections(found))
    assert best_document(found, command=None)["best"]["settings"] == {"optimizer.name": "adam"}


def test_only_the_named_folders_count(seeds: Callable[..., SweepContents]) -> None:
    sweep = seeds(one=[0.5], two=[0.9])
    assert find_best(sweep, None, folders={sweep.runs[0].paths.root}, **OPTIONS).winner.settings == {"lr": "one"}


def test_missing_metric_is_rejected_with_the_existing_ones(contents: Callable[..., SweepContents]) -> None:
    epochs = [EpochRecord(epoch=number, accuracy=0.5, loss=1.0, samples=1, warmup=number == 1) for number in (1, 2)]
    with pytest.raises(UsageError, match=r"got 'val_accuracy' and a run without it.*; there is .*accuracy, loss"):
        find_best(contents(({"lr": 1}, epochs, {})), None, **OPTIONS)
    nothing = contents(({"lr": 1}, [EpochRecord(epoch=1)], {"run_seconds": None}))
    with pytest.raises(UsageError, match=r"got 'val_accuracy' and a run without it in every cell\.$"):
        find_best(nothing, None, **OPTIONS)


def test_default_metric_is_an_existing_one_and_named(contents: Callable[..., SweepContents]) -> None:
    def epochs(**last: float) -> list[EpochRecord]:
        return [EpochRecord(epoch=number, samples=1, warmup=number == 1, **last) for number in (1, 2)]

    def found(*lasts: dict[str, float], metric: str | None = None) -> Any:
        return find_best(
            contents(*(({"lr": at}, epochs(**last), {}) for at, last in enumerate(lasts))), None, metric=metric
        )

    whole, without = found({"val_accuracy": 0.5}, {"val_accuracy": 0.6}), found({"accuracy": 0.9}, {"accuracy": 0.8})
    assert (whole.metric.name, whole.settings, whole.preferred_metric) == ("val_accuracy", {"lr": 1}, None)
    assert (without.metric.name, without.settings) == ("accuracy", {"lr": 0})
    assert (
        best_sentences(without)[0] == "No cell has a val_accuracy in each of its finished runs, so this is by accuracy."
    )
    by_loss = found({"loss": 0.9}, {"loss": 0.8})
    assert (by_loss.metric.name, by_loss.settings) == ("loss", {"lr": 1})
    assert "No cell" not in " ".join(
        best_sentences(found({"loss": 1.0}, {"loss": 2.0}, metric="loss"))
    )  # it was asked for
    with pytest.raises(UsageError, match=r"got 'val_accuracy' and a run without it in every cell; there is"):
        found({"accuracy": 0.9}, metric="val_accuracy")
    with pytest.raises(UsageError, match=r"a metric that runs recorded, got none; there is run_seconds"):
        found({})


def test_runs_that_lack_the_default_metric_in_every_cell_are_named(contents: Callable[..., SweepContents]) -> None:
    """No metric was asked for, and some runs have one: the message must not say otherwise."""
    has = {"summary": {"val_loss": 0.5}}
    sweep = contents(*(({"lr": lr, "seed": seed}, [], has if seed else {}) for lr in (1, 2) for seed in (0, 1)))
    lacking = ", ".join(run.record.name for run in sweep.runs if not run.record.summary)
    with pytest.raises(UsageError) as caught:
        find_best(sweep, None)
    assert str(caught.value) == (
        "The best must be by a metric that all finished runs of a cell have, got 'val_loss' and a run without it in "
        f"every cell ({lacking}); leave these out with `--where`; there is run_seconds."
    )
    folders = {run.paths.root for run in sweep.runs if run.record.summary}
    assert find_best(sweep, None, folders=folders).metric.name == "val_loss"


def test_unknown_metric_is_rejected(seeds: Callable[..., SweepContents]) -> None:
    with pytest.raises(UsageError, match=r"did you mean 'val_accuracy'\?"):
        find_best(seeds(one=[0.5]), None, metric="val_acuracy")


def test_json_of_the_best_cell(seeds: Callable[..., SweepContents]) -> None:
    found = find_best(seeds(one=[0.5], two=[0.6]), None, **OPTIONS)
    plain = json.loads(msgspec.json.encode(best_document(found, command=["python"])))
    assert plain["best"]["settings"] == {"lr": "two"}
    assert plain["best"]["deviation"] is None
    assert plain["best"]["runs"][0]["value"] == plain["best"]["mean"] == 0.6
    assert plain["runner_up"]["settings"] == {"lr": "one"}
    assert (plain["verdict"], plain["num_cells"], plain["command"]) == ("not measured", 2, ["python"])


def test_location_of_the_weights(sweep: Any) -> None:
    name = sweep.run({"lr": 1}, reaching(0.9))
    paths = sweep.paths.run(name)
    from runmanager.results.load.loader import read_results

    def text() -> str:
        return format_sections("", best_sections(find_best(*read_results(sweep.paths), **OPTIONS)))

    assert "none were kept" in text()
    paths.checkpoint.touch()
    assert f"{paths.checkpoint}\n" in text()
    assert f"load_model('{sweep.paths.root}/{name}')" in text()
    paths.best.touch()
    assert f"load_model('{sweep.paths.root}/{name}', best=True)" in text()


def test_custom_loop_is_not_told_of_the_setting_that_keeps_weights(contents: Callable[..., SweepContents]) -> None:
    for unsigned, told in ((None, True), ((), False)):
        sweep = contents(({"lr": 1}, reaching(0.9), {"unsigned": unsigned}))
        text = format_sections("", best_sections(find_best(sweep, None)))
        assert ("checkpoint.keep_best" in text, "what its program may have saved is not recorded" in text) == (
            told,
            not told,
        )


def test_no_call_is_given_that_could_not_load_the_weights_of_a_program(sweep: Any) -> None:
    """`load_model` builds models of the built-in job; the checkpoint of another loop is its own state."""
    name = sweep.run({"lr": 1}, reaching(0.9), unsigned=())
    from runmanager.results.load.loader import read_results

    paths = sweep.paths.run(name)
    for file, told in (
        (paths.checkpoint, "the state that its loop resumes from"),
        (paths.best, "the state_dict of the network in its best epoch is its `model`"),
    ):
        file.touch()
        text = format_sections("", best_sections(find_best(*read_results(sweep.paths), **OPTIONS)))
        assert str(file) in text and told in text
        assert "load_model" not in text


def test_the_metric_that_the_sweep_was_given_is_the_default(contents: Callable[..., SweepContents]) -> None:
    values = ({"val_accuracy": 0.9, "score": 0.1}, {"val_accuracy": 0.8, "score": 0.2})
    sweep = contents(*(({"lr": lr}, [], {"summary": summary}) for lr, summary in enumerate(values)))
    plan = msgspec.structs.replace(add_cells(None, [], SweepCommand(("runmanager", "sweep"), axes={})), metric="score")
    by_default, by_plan = find_best(sweep, None), find_best(sweep, plan)
    assert (by_default.metric.name, by_default.settings) == ("val_accuracy", {"lr": 0})
    assert (by_plan.metric.name, by_plan.settings, by_plan.preferred_metric) == ("score", {"lr": 1}, None)
