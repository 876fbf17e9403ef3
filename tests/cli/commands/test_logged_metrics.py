"""`runmanager compare` and `runmanager best` on a sweep whose program logged metrics of its own."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ...results.conftest import SweepMaker, timed_epochs
from ..conftest import rows_of

COLUMNS = dict.fromkeys(("loss", "accuracy", "val_loss", "val_accuracy"))


@pytest.fixture
def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepMaker:
    """A sweep `outputs/own` over two learning rates and three seeds; `val/f1` is 0.1 higher in epoch 3."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").mkdir()
    sweep = SweepMaker(tmp_path / "outputs" / "own")
    configs = [{"lr": lr, "seed": seed} for seed in (1, 2, 3) for lr in (0.1, 0.2)]
    sweep.plan(*configs)
    for config in configs:
        sweep.run(config, _epochs(config["lr"], int(config["seed"])))
    return sweep


def _epochs(lr: float, seed: int) -> list[msgspec.Struct]:
    noise = 0.001 * (seed * seed * round(10 * lr) % 7)
    values = [lr + 0.5 + noise + (0.1 if epoch == 3 else 0) for epoch in range(1, 8)]
    return [
        msgspec.structs.replace(
            epoch, **COLUMNS, metrics={"zeal": value, "val/f1": value}, units={"tokens": round(1e6 * lr)}
        )
        for epoch, value in zip(timed_epochs([2.0 + noise] * 7), values, strict=True)
    ]


def test_a_logged_metric_is_compared_by_its_difference(command: Callable, logged: SweepMaker) -> None:
    words = ["compare", "own", "--axis", "lr", "--metric", "val/f1"]
    (row,) = rows_of(command(*words, "--format", "csv").out)
    assert (row["metric"], row["verdict"], row["baseline_runs"]) == ("val/f1", "better", "3")
    assert float(row["difference"]) == pytest.approx(0.1, abs=0.005)
    (turned,) = rows_of(command(*words, "--better", "smaller", "--format", "csv").out)
    assert turned["verdict"] == "worse"
    text = " ".join(command(*words).out.split())
    assert "lr=0.2 is better than lr=0.1: its val/f1 is 0.1" in text
    assert "The best val/f1 is 0.70" in text


def test_the_best_settings_are_those_by_the_requested_metric(command: Callable, logged: SweepMaker) -> None:
    for path in logged.paths.runs.glob("*/epochs.jsonl"):
        path.write_text(path.read_text().replace('"zeal"', '"f1"'))
    text = " ".join(command("compare", "own", "--axis", "lr", "--metric", "val/f1").out.split())
    assert "The best val/f1 is 0.70" in text and "The best f1" not in text
    assert "The best f1 is 0.70" in " ".join(command("compare", "own", "--axis", "lr", "--metric", "f1").out.split())


def test_a_unit_is_compared_by_its_speedup(command: Callable, logged: SweepMaker) -> None:
    words = ["compare", "own", "--axis", "lr", "--metric", "tokens_per_second", "--format", "csv"]
    (row,) = rows_of(command(*words).out)
    assert (row["verdict"], row["baseline_epochs"]) == ("faster", "18")
    assert float(row["speedup"]) == pytest.approx(2, rel=0.01)


def test_the_best_epoch_is_chosen_named_and_said_to_flatter(command: Callable, logged: SweepMaker) -> None:
    plain = json.loads(command("best", "own", "--metric", "val/f1", "--at", "best", "--format", "json").out)
    assert plain["best"]["mean"] == pytest.approx(0.8, abs=0.005)
    assert [run["epoch"] for run in plain["best"]["runs"]] == [3, 3, 3]
    text = " ".join(command("best", "own", "--at", "best").out.split())
    assert "with lr=0.2, at epoch 3." in text and "flatters the result" in text
    (row,) = rows_of(
        command("compare", "own", "--axis", "lr", "--metric", "val/f1", "--at", "best", "--format", "csv").out
    )
    assert float(row["candidate_value"]) == pytest.approx(0.8, abs=0.005)
    assert "picked after looking" in row["reason"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--metric", "zeal"], "`--better` must be max or min for 'zeal'"),
        (["--metric", "val/f2"], "did you mean 'val/f1'?"),
        (["--metric", "val/f1", "--better", "up"], "`--better` must be one of max, min, larger, smaller, got up"),
        (["--metric", "val/f1", "--at", "first"], "--at"),
        (["--metric", "tokens_per_second", "--better", "max"], "its direction is known"),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(
    command: Callable, logged: SweepMaker, words: list[str], expected: str
) -> None:
    for name in ("best", "compare"):
        done = command(name, "own", *words)
        assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
        assert expected in done.err


def test_a_direction_on_request_ranks_by_any_metric(command: Callable, logged: SweepMaker) -> None:
    for word, lr in (("larger", 0.2), ("max", 0.2), ("min", 0.1), ("smaller", 0.1)):
        found = command("best", "own", "--metric", "zeal", "--better", word, "--format", "json")
        assert json.loads(found.out)["best"]["settings"] == {"lr": lr}


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (("--fail-if", "worse:zeal:0.01", "--better", "max"), 0, "`--fail-if worse:zeal:0.01` passed"),
        (("--fail-if", "worse:zeal:0.01", "--better", "min"), 1, "`--fail-if worse:zeal:0.01` failed"),
        (("--fail-if", "worse:zeal:0.01", "--better", "max", "--at", "best"), 0, "passed: zeal of lr=0.2 is 0.1000"),
        (("--metric", "zeal", "--better", "max", "--fail-if", "slower:50%"), 0, "`--fail-if slower:50%` passed"),
        # What tells a direction of its own keeps it.
        (("--metric", "zeal", "--better", "min", "--fail-if", "worse:val/f1:0.01"), 0, "worse:val/f1:0.01` passed"),
        (("--fail-if", "worse:val/f1:0.01", "--better", "min"), 2, "`--better` must go with a metric of epochs"),
        (("--fail-if", "slower", "--better", "min"), 2, "`--better` must go with a metric of epochs"),
        (("--fail-if", "slower", "--at", "best"), 2, "`--at` must go with a metric of epochs"),
        (("--fail-if", "worse:zeal", "--better", "up"), 2, "`--better` must be one of max, min, larger, smaller"),
        (("--fail-if", "worse:zeal"), 2, "`--better` must be max or min for 'zeal'"),
    ],
)
def test_a_direction_on_request_counts_for_the_metric_that_needs_it(
    command: Callable, logged: SweepMaker, words: tuple[str, ...], status: int, expected: str
) -> None:
    done = command("compare", "own", "--axis", "lr", *words)
    assert (done.status, expected in done.out + done.err) == (status, True), done.out + done.err
