"""Epochs and sessions of earlier attempts that ran in other environments."""

import datetime
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from runmanager.records.run.environment_changes import (
    changed_code,
    describe_attempts,
    describe_files,
    epochs_in_other_environments,
    is_same_code,
    sessions_in_other_environments,
)
from runmanager.records.run.run_record import Attempt, Environment, RunRecord

NOON = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)
HERE = Environment(host="anvil", usable_cores=2.0, torch_threads=1, device_name="Zen 4", libraries={"torch": "2.15.0"})
ELSEWHERE = msgspec.structs.replace(HERE, host="bellows", torch_threads=2)

MakeRecord = Callable[..., RunRecord]


def at(seconds: float) -> str:
    return (NOON + datetime.timedelta(seconds=seconds)).isoformat()


def attempt(start: float, end: float, last_epoch: int, environment: Environment = HERE) -> Attempt:
    return Attempt(started_at=at(start), ended_at=at(end), last_epoch=last_epoch, environment=environment)


def resumed(record: MakeRecord, *earlier: Attempt, **fields: Any) -> RunRecord:
    usual = {"started_at": at(0), "resumed_at": at(100), "environment": HERE, "earlier": earlier}
    return record(**{**usual, **fields})


def test_what_would_compute_something_else_now_is_described() -> None:
    then, now = {"torch": "2.14.0", "own": "1.0"}, {"torch": "2.15.0", "own": "1.1", "new": "3"}
    earlier = Environment(libraries=then, code={"own.py": "0a"})
    assert changed_code(earlier, earlier) == ""
    assert changed_code(earlier, Environment(libraries=then | {"new": "3"}, code={"own.py": "0a"})) == ""
    libraries = Environment(libraries=now, code={"own.py": "0a"})
    assert changed_code(earlier, libraries) == "it was made with torch 2.14.0, now 2.15.0; own 1.0, now 1.1"
    everything = Environment(libraries=now, code={"own.py": "1a"})
    assert changed_code(earlier, everything) == "its code has changed (own.py)"


def test_epochs_of_attempts_in_other_environments(record: MakeRecord) -> None:
    same = resumed(record, attempt(0, 10, 3))
    assert epochs_in_other_environments(same) == [] and describe_attempts(same) == []
    moved = resumed(record, attempt(0, 10, 3, ELSEWHERE), attempt(20, 30, 5))
    assert epochs_in_other_environments(moved) == [range(1, 4)]
    assert describe_attempts(moved) == [
        "epochs 1 to 3 were made in another environment (host bellows, now anvil; torch threads 2, now 1); "
        "they count as warm-up"
    ]
    newer = msgspec.structs.replace(HERE, libraries={"torch": "2.16.0"})
    back = resumed(record, attempt(0, 10, 3), attempt(20, 30, 4, newer))
    assert epochs_in_other_environments(back) == [range(4, 5)]
    assert describe_attempts(back) == [
        "epoch 4 was made in another environment (torch 2.16.0, now 2.15.0); it counts as warm-up"
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"host": "x"},
        {"device_name": "x"},
        {"cpu_model": "x"},
        {"torch_threads": 7},
        {"usable_cores": 1.5},
        {"python": "3.12.1"},
        {"commit": "0123456789"},
        {"tf32_matmul": True},
        {"cuda": "13.0"},
        {"libraries": {"torch": "2.15.0", "numpy": "2.3"}},
    ],
    ids=str,
)
def test_relevant_changes(record: MakeRecord, change: dict[str, Any]) -> None:
    run = resumed(record, attempt(0, 10, 1, msgspec.structs.replace(HERE, **change)))
    assert epochs_in_other_environments(run) == [range(1, 2)]


@pytest.mark.parametrize(
    "change", [{"load_at_start": 3.0}, {"command": ("other",)}, {"steal_share": 0.5}, {"usable_cores": None}], ids=str
)
def test_irrelevant_changes(record: MakeRecord, change: dict[str, Any]) -> None:
    run = resumed(record, attempt(0, 10, 1, msgspec.structs.replace(HERE, **change)))
    assert epochs_in_other_environments(run) == []


def test_changed_code_is_relevant_and_unknown_code_is_not(record: MakeRecord) -> None:
    now = msgspec.structs.replace(HERE, code={"own.py": "0a", "part.py": "0b"})
    for code, description in (
        ({"own.py": "0a", "part.py": "1b"}, "epoch 1 was made in another environment (code changed (part.py))"),
        ({"own.py": "0a"}, None),
        (None, None),
    ):
        run = resumed(record, attempt(0, 10, 1, msgspec.structs.replace(HERE, code=code)), environment=now)
        assert epochs_in_other_environments(run) == ([range(1, 2)] if description else [])
        assert describe_attempts(run) == ([f"{description}; it counts as warm-up"] if description else [])


def test_consecutive_attempts_in_one_other_environment_are_one_range(record: MakeRecord) -> None:
    run = resumed(record, attempt(0, 10, 2, ELSEWHERE), attempt(20, 30, 2, HERE), attempt(30, 40, 4, ELSEWHERE))
    assert [line.partition(" were")[0] for line in describe_attempts(run)] == ["epochs 1 to 4"]


FACTS = {
    "host": "host x, now anvil",
    "cpu_model": "CPU model x, now unknown",
    "device_name": "device x, now Zen 4",
    "torch_threads": "torch threads x, now 1",
    "usable_cores": "usable cores 1.5, now 2",
    "driver": "driver x, now unknown",
    "cuda": "CUDA x, now unknown",
    "cudnn": "cuDNN x, now unknown",
    "cudnn_benchmark": "cuDNN benchmark x, now unknown",
    "cudnn_deterministic": "cuDNN deterministic x, now unknown",
    "tf32_matmul": "TF32 in products x, now unknown",
    "tf32_cudnn": "TF32 in cuDNN x, now unknown",
    "python": "python x, now 3.12.1",
    "commit": "commit x, now unknown",
}


def test_each_fact_is_named_with_what_it_is_now(record: MakeRecord) -> None:
    now = msgspec.structs.replace(HERE, python="3.12.1")
    for name, said in FACTS.items():
        then = msgspec.structs.replace(now, **{name: 1.5 if name == "usable_cores" else "x"})
        (line,) = describe_attempts(resumed(record, attempt(0, 10, 1, then), environment=now))
        assert line == f"epoch 1 was made in another environment ({said}); it counts as warm-up"
    both = msgspec.structs.replace(now, host="bellows", code={"a.py": "0"})
    later = msgspec.structs.replace(now, code={"a.py": "1"})
    (line,) = describe_attempts(resumed(record, attempt(0, 10, 1, both), environment=later))
    assert "(host bellows, now anvil; code changed (a.py))" in line


def test_code_is_the_same_by_its_digests_or_a_clean_commit() -> None:
    def of(**facts: Any) -> Environment:
        return msgspec.structs.replace(HERE, **facts)

    assert is_same_code(of(code={"a": "1"}), of(code={"a": "1"})) is True
    assert is_same_code(of(code={"a": "1"}), of(code={"a": "2"})) is False
    clean, dirty = of(commit="c", commit_clean=True), of(commit="c", commit_clean=False)
    assert is_same_code(clean, clean) is True
    assert [is_same_code(*pair) for pair in ((clean, dirty), (dirty, clean), (of(), of()))] == [None] * 3
    assert is_same_code(clean, of(commit="d", commit_clean=True)) is None


def test_a_few_files_are_named_and_the_others_counted() -> None:
    assert describe_files(["a", "b"]) == "a, b"
    most = [str(number) for number in range(20)]
    named = describe_files(most).partition(" and ")[0].split(", ")
    assert named == most[: len(named)] and len(named) < 20
    assert describe_files(most[: len(named)]) == ", ".join(named)
    assert describe_files(most[: len(named) + 1]) == f"{', '.join(named)} and 1 more"


def test_sessions_in_other_environments(record: MakeRecord) -> None:
    def session(name: str | None, environment: Environment) -> Attempt:
        return msgspec.structs.replace(attempt(0, 10, 1, environment), session=name)

    run = resumed(record, session("a", HERE), session("b", ELSEWHERE), session(None, ELSEWHERE), session("c", HERE))
    assert sessions_in_other_environments(run) == {"b"}
