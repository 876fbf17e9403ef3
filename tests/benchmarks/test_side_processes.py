"""Sides that live in processes of their own: they work in their turns only, and what they tell is a figure."""

import time
from pathlib import Path

import pytest

from benchmarks.interleaving import StoppingRule
from benchmarks.side_processes import Side, run_sides_interleaved

COUNTS = """
import sys
from benchmarks.side_processes import Turns
turns, count = Turns(), 0
print("this is no figure")
while turns.wait():
    count += 1
    print("nor is this")
    turns.report(count * float(sys.argv[1]))
open(sys.argv[2], "w").write(str(count))
"""
DIES = "from benchmarks.side_processes import Turns; Turns().wait(); raise ValueError('no more')"
HANGS = "import time; time.sleep(600)"


def test_sides_work_in_their_turns_and_end_at_the_end(tmp_path: Path) -> None:
    ends = {name: tmp_path / name for name in ("one", "two")}
    sides = {name: ("-c", COUNTS, step, str(ends[name])) for name, step in (("one", "0.5"), ("two", "2"))}
    seconds = run_sides_interleaved(
        sides, folder=tmp_path, stopping_rule=StoppingRule(min_rounds=3, max_rounds=3), seed=0
    )
    assert seconds == {"one": [1.0, 1.5, 2.0], "two": [4.0, 6.0, 8.0]}  # the first turn was the warm-up
    assert [path.read_text() for path in ends.values()] == ["4", "4"]


def test_sides_are_begun_anew_after_some_rounds(tmp_path: Path) -> None:
    sides = {name: ("-c", COUNTS, "1", str(tmp_path / name)) for name in ("one", "two")}
    seconds = run_sides_interleaved(
        sides, folder=tmp_path, stopping_rule=StoppingRule(min_rounds=5, max_rounds=5), seed=0
    )
    first, second = [2.0, 3.0, 4.0], [2.0, 3.0]  # each life's first turn was a warm-up
    assert seconds == {"one": first + second, "two": first + second}
    without_time = StoppingRule(min_rounds=1, max_rounds=100, max_seconds=0)
    assert (
        len(
            run_sides_interleaved(sides, folder=tmp_path, stopping_rule=without_time, seed=0, rounds_per_process=2)[
                "one"
            ]
        )
        == 2
    )


def test_a_round_has_a_turn_for_each_part_of_a_sides_work(tmp_path: Path) -> None:
    ends = {name: tmp_path / name for name in ("one", "two")}
    sides = {name: ("-c", COUNTS, "1", str(end)) for name, end in ends.items()}
    stopping_rule = StoppingRule(min_rounds=3, max_rounds=3)
    seconds = run_sides_interleaved(sides, folder=tmp_path, stopping_rule=stopping_rule, seed=0, parts=5)
    assert [len(each) for each in seconds.values()] == [3, 3]
    assert [path.read_text() for path in ends.values()] == ["20", "20"]  # with the round that warmed up


def test_a_side_that_dies_says_why(tmp_path: Path) -> None:
    with Side("-c", DIES, folder=tmp_path) as side:
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"has ended:\n(.|\n)*ValueError: no more"):
                side()


def test_a_side_that_hangs_is_given_up_and_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    with (
        pytest.raises(RuntimeError, match=r"has reported nothing for 0.2 s"),
        Side("-c", HANGS, folder=tmp_path, timeout_seconds=0.2) as side,
    ):
        side()
    assert time.monotonic() - began < 300  # nobody waited for its sleep
