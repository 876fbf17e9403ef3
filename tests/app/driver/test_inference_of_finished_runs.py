"""`infer.batch_sizes` of the built-in job: with the training, or afterwards from the weights of a finished run."""

import csv
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

INFER = ("infer.batch_sizes=[1,4]", "infer.seconds=0.001")


@pytest.fixture
def job(command: Callable[..., Any], tiny: tuple[str, ...]) -> Callable[..., Any]:
    def run(*words: str) -> Any:
        return command("-m", *tiny, "lr=0.01,0.1", "name=timed", *words)

    return run


def sizes(stored: Any) -> list[int]:
    text = (stored.paths.root / "inference.csv").read_text()
    return [int(row["batch_size"]) for row in csv.DictReader(io.StringIO(text))]


def kept_of(stored: Any) -> list[Any]:
    """What a measurement of inference must not change."""
    epochs = [stored.paths.run(each.name).epochs.read_text() for each in stored.records]
    facts = [(each.run_seconds, each.environment, each.status, each.config["epochs"]) for each in stored.records]
    return [epochs, facts]


def test_it_is_timed_after_training(job: Any, sweep: Any) -> None:
    assert job(*INFER).status == 0
    assert sizes(sweep("timed")) == [1, 4, 1, 4]
    assert [each.attempt for each in sweep("timed").records] == [1, 1]


def test_a_finished_run_is_timed_without_training_again(job: Any, sweep: Any) -> None:
    assert job().status == 0
    before = kept_of(sweep("timed"))
    planned = job(*INFER, "--dry-run")
    assert planned.out.count("measure again") == 3, planned.out  # a line for each run, and their number
    assert "finished; inference with batches of 1, 4 is measured" in " ".join(planned.out.split())
    done = job(*INFER)
    assert done.status == 0
    assert len(re.findall(r"batch of 1: [\d.]+ [µm]s  batch of 4: [\d.]+ [µm]s", done.out)) == 2
    assert sizes(sweep("timed")) == [1, 4, 1, 4]
    assert kept_of(sweep("timed")) == before
    assert "2 runs to do" not in (again := job(*INFER)).out and again.status == 0
    assert job("infer.batch_sizes=[4,8]", "infer.seconds=0.001").status == 0  # only what is not known yet
    assert sizes(sweep("timed")) == [1, 4, 8, 1, 4, 8]
    assert [each.attempt for each in sweep("timed").records] == [3, 3]


def test_a_finished_run_without_weights_says_why_it_is_not_timed(job: Any, sweep: Any) -> None:
    assert job("checkpoint.every=0").status == 0
    done = job(*INFER)
    assert done.status == 0
    said = "inference with batches of 1, 4 is not measured: it left no checkpoint"
    assert said in " ".join(done.out.split())
    assert not (sweep("timed").paths.root / "inference.csv").exists()
    assert [each.attempt for each in sweep("timed").records] == [1, 1]


def test_a_run_of_other_code_is_not_timed(job: Any, sweep: Any) -> None:
    assert job().status == 0
    for each in sweep("timed").records:
        path = sweep("timed").paths.run(each.name).record
        stored = json.loads(path.read_text())
        stored["environment"]["libraries"]["torch"] = "1.0"
        path.write_text(json.dumps(stored))
    done = job(*INFER)
    assert "is not measured: `rerun_changed=true` runs it again" in " ".join(done.out.split())
    assert not (sweep("timed").paths.root / "inference.csv").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("infer.batch_sizes=[0]",), "`infer.batch_sizes` must hold sizes of at least 1"),
        (("infer.batch_sizes=[1]", "infer.seconds=0"), "`infer.seconds` must be above 0"),
        (("infer.seconds=2",), "`infer.seconds` must be given with `infer.batch_sizes`"),
    ],
)
def test_what_cannot_be_timed_is_refused(job: Any, words: tuple[str, ...], says: str) -> None:
    refused = job(*words)
    assert refused.status == 2
    assert says in refused.err
