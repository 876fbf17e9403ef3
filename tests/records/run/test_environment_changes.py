"""Epochs and sessions of earlier attempts that ran in other environments."""

import datetime
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from runmanager.records.run.environment_changes import describe_attempts, epochs_in_other_environments
from runmanager.records.run.run_record import Attempt, Environment, RunRecord

NOON = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)
HERE = Environment(host="anvil", torch_threads=1, device_name="Zen 4", libraries={"torch": "2.15.0"})
ELSEWHERE = msgspec.structs.replace(HERE, host="bellows", torch_threads=2)

MakeRecord = Callable[..., RunRecord]


def at(seconds: float) -> str:
    return (NOON + datetime.timedelta(seconds=seconds)).isoformat()


def attempt(start: float, end: float, last_epoch: int, environment: Environment = HERE) -> Attempt:
    return Attempt(started_at=at(start), ended_at=at(end), last_epoch=last_epoch, environment=environment)


def resumed(record: MakeRecord, *earlier: Attempt, **fields: Any) -> RunRecord:
    usual = {"started_at": at(0), "resumed_at": at(100), "environment": HERE, "earlier": earlier}
    return record(**{**usual, **fields})


def test_epochs_of_attempts_in_other_environments(record: MakeRecord) -> None:
    same = resumed(record, attempt(0, 10, 3))
    assert epochs_in_other_environments(same) == set() and describe_attempts(same) == []
    moved = resumed(record, attempt(0, 10, 3, ELSEWHERE), attempt(20, 30, 5))
    assert epochs_in_other_environments(moved) == {1, 2, 3}
    assert describe_attempts(moved) == [
        "epochs 1 to 3 were made in another environment (host bellows, now anvil; torch threads 2, now 1); "
        "they count as warm-up"
    ]
    newer = msgspec.structs.replace(HERE, libraries={"torch": "2.16.0"})
    back = resumed(record, attempt(0, 10, 3), attempt(20, 30, 4, newer))
    assert epochs_in_other_environments(back) == {4}
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
    assert epochs_in_other_environments(run) == {1}


@pytest.mark.parametrize("change", [{"load_at_start": 3.0}, {"command": ("other",)}, {"steal_share": 0.5}], ids=str)
def test_irrelevant_changes(record: MakeRecord, change: dict[str, Any]) -> None:
    run = resumed(record, attempt(0, 10, 1, msgspec.structs.replace(HERE, **change)))
    assert epochs_in_other_environments(run) == set()


def test_changed_code_is_relevant_and_unknown_code_is_not(record: MakeRecord) -> None:
    now = msgspec.structs.replace(HERE, code={"own.py": "0a", "part.py": "0b"})
    for code, description in (
        ({"own.py": "0a", "part.py": "1b"}, "epoch 1 was made in another environment (code changed (part.py))"),
        ({"own.py": "0a"}, None),
        (None, None),
    ):
        run = resumed(record, attempt(0, 10, 1, msgspec.structs.replace(HERE, code=code)), environment=now)
        assert epochs_in_other_environments(run) == ({1} if description else set())
        assert describe_attempts(run) == ([f"{description}; it counts as warm-up"] if description else [])


def test_consecutive_attempts_in_one_other_environment_are_one_range(record: MakeRecord) -> None:
    run = resumed(record, attempt(0, 10, 2, ELSEWHERE), attempt(20, 30, 2, HERE), attempt(30, 40, 4, ELSEWHERE))
    assert [line.partition(" were")[0] for line in describe_attempts(run)] == ["epochs 1 to 4"]
