"""Tests of the differences between two runs."""

from collections.abc import Callable
from typing import Any

import msgspec

from runmanager.records.run.run_record import Environment
from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.reader import SweepContents
from runmanager.results.findings.run_diff import Difference, diff_runs, difference_document, difference_sections
from runmanager.results.table_model.formatting import format_sections


def two(contents: Callable[..., SweepContents], host: Environment, steady: Callable[..., Any], **fields: Any) -> Any:
    other = msgspec.structs.replace(
        host,
        commit="fedcba",
        commit_clean=False,
        libraries={"torch": "2.9.0", "numpy": "2.0"},
        cpu_model="Xeon",
        code={"own.py": "1a", "same.py": "0b"},
    )
    one = msgspec.structs.replace(host, code={"own.py": "0a", "same.py": "0b", "first.py": "0c"})
    return contents(
        ({"lr": 0.1, "model": {"name": "cnn"}}, steady(2.0), {"environment": one}),
        ({"lr": 0.01, "model": {"name": "mlp", "hidden": [3]}}, steady(4.0), {"environment": other, **fields}),
    ).runs


def found(differences: list[Difference], kind: str) -> dict[str, tuple[Any, Any]]:
    return {each.name: (each.one, each.other) for each in differences if each.kind == kind}


def test_logged_metrics_units_and_results_of_the_run_differ(
    contents: Callable[..., SweepContents], steady: Callable[..., Any]
) -> None:
    def epochs(f1: float, tokens: int) -> Any:
        return [
            msgspec.structs.replace(each, metrics={"val/f1": f1, "fid": 30.0}, units={"tokens": tokens})
            for each in steady(2.0)
        ]

    runs = contents(
        ({"lr": 0.1}, epochs(0.5, 1000), {"summary": {"bleu": 20.0, "fid": 4.0}}),
        ({"lr": 0.2}, epochs(0.50001, 3000), {"summary": {"bleu": 25.0, "fid": None}}),
    ).runs
    differences = diff_runs(*runs)
    assert found(differences, "logged") == {"val/f1": (0.5, 0.50001), "fid": (4.0, None), "bleu": (20.0, 25.0)}
    assert found(differences, "throughput") == {"tokens_per_second": (500.0, 1500.0)}
    text = format_sections("", difference_sections(differences)).partition("Logged\n")[2].splitlines()
    words = [line.split() for line in text if line]
    assert ["val/f1", "0.5000", "0.5000", "+1.000e-05"] in words
    assert ["bleu", "20.00", "25.00", "+5.000"] in words and ["fid", "4.000", "N/A"] in words
    assert ["tokens_per_second", "500.0", "1,500", "x", "3"] in words


def test_only_differences_are_listed_by_kind(
    contents: Callable[..., SweepContents], host: Environment, steady: Callable[..., Any]
) -> None:
    differences = diff_runs(*two(contents, host, steady))
    assert found(differences, "settings") == {
        "lr": (0.1, 0.01),
        "model.name": ("cnn", "mlp"),
        "model.hidden": (None, [3]),
    }
    assert found(differences, "code") == {
        "Commit": ("0123456789abcdef", "fedcba"),
        "No uncommitted changes": (True, False),
        "own.py": ("0a", "1a"),
    }
    assert found(differences, "packages") == {"torch": ("2.15.0", "2.9.0"), "numpy": (None, "2.0")}
    assert found(differences, "hardware") == {"CPU": ("Zen 4", "Xeon")}
    metrics = {each.name: each.change for each in differences if each.kind == "metrics"}
    assert metrics["epoch_seconds"] == "x 2"
    assert metrics["samples_per_second"] == "x 0.5"
    assert "accuracy" not in metrics
    assert found(differences, "state") == {}


def test_changes_of_accuracies_are_differences(
    contents: Callable[..., SweepContents], host: Environment, timed: Callable[..., Any]
) -> None:
    short, long = contents(({"lr": 1}, timed([1.0, 1.0]), {}), ({"lr": 1}, timed([1.0] * 4), {})).runs
    changes = {each.name: each.change for each in diff_runs(short, long)}
    assert changes["val_accuracy"] == "+0.1875"
    assert changes["epochs"] == "+2"


def test_different_states_are_listed(
    contents: Callable[..., SweepContents], host: Environment, steady: Callable[..., Any]
) -> None:
    fields = {"status": Status.KILLED, "reason": Reason.TIMEOUT}
    differences = diff_runs(*two(contents, host, steady, **fields))
    assert found(differences, "state") == {"status": ("finished", "killed"), "reason": (None, "timeout")}


def test_run_does_not_differ_from_itself(
    contents: Callable[..., SweepContents], host: Environment, steady: Callable[..., Any]
) -> None:
    one, _ = two(contents, host, steady)
    assert diff_runs(one, one) == []


def test_text_and_json_have_both_sides(
    contents: Callable[..., SweepContents], host: Environment, steady: Callable[..., Any]
) -> None:
    sides = two(contents, host, steady)
    text = format_sections("first", difference_sections(diff_runs(*sides), names=("one", "other")))
    assert "Settings\n                one   other\n  lr            0.1   0.01\n" in text
    assert "  model.hidden  null  [3]\n" in text
    plain = difference_document(*sides)
    assert plain["settings"]["model.hidden"] == [None, [3]]
    assert plain["runs"] == [str(side.paths.root) for side in sides]
    assert plain["metrics"]["epoch_seconds"] == [2.0, 4.0]
