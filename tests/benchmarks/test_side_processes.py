"""Sides in separate processes: they work only in their turns and report numbers."""

import time
from pathlib import Path

import pytest

from benchmarks.interleaving import StoppingRule
from benchmarks.side_processes import Side, run_sides_interleaved

COUNTS = """
import sys
from benchmarks.side_processes import Turns
turns, count = Turns(), 0
print("not a number")
while turns.wait():
    count += 1
    print("not a number either")
    turns.report(count * float(sys.argv[1]))
open(sys.argv[2], "w").write(str(count))
"""
DIES = "from benchmarks.side_processes import Turns; Turns().wait(); raise ValueError('no more')"
HANGS = "import time; time.sleep(600)"


def test_sides_work_in_their_turns_and_exit_at_the_end(tmp_path: Path) -> None:
    ends = {name: tmp_path / name for name in ("one", "two")}
    sides = {name: ("-c", COUNTS, step, str(ends[name])) for name, step in (("one", "0.5"), ("two", "2"))}
    seconds = run_sides_interleaved(
        sides, folder=tmp_path, stopping_rule=StoppingRule(min_rounds=3, max_rounds=3), seed=0
    )
    assert seconds == {"one": [1.0, 1.5, 2.0], "two": [4.0, 6.0, 8.0]}  # without the warm-up turn
    assert [path.read_text() for path in ends.values()] == ["4", "4"]


def test_sides_are_restarted_after_some_rounds(tmp_path: Path) -> None:
    sides = {name: ("-c", COUNTS, "1", str(tmp_path / name)) for name in ("one", "two")}
    seconds = run_sides_interleaved(
        sides, folder=tmp_path, stopping_rule=StoppingRule(min_rounds=5, max_rounds=5), seed=0
    )
    first, second = [2.0, 3.0, 4.0], [2.0, 3.0]  # without the warm-up turn of each process
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


def test_round_has_a_turn_for_each_part(tmp_path: Path) -> None:
    ends = {name: tmp_path / name for name in ("one", "two")}
    sides = {name: ("-c", COUNTS, "1", str(end)) for name, end in ends.items()}
    stopping_rule = StoppingRule(min_rounds=3, max_rounds=3)
    seconds = run_sides_interleaved(sides, folder=tmp_path, stopping_rule=stopping_rule, seed=0, parts=5)
    assert [len(each) for each in seconds.values()] == [3, 3]
    assert [path.read_text() for path in ends.values()] == ["20", "20"]  # including the warm-up round


def test_dead_side_is_an_error_with_its_output(tmp_path: Path) -> None:
    with Side("-c", DIES, folder=tmp_path) as side:
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"has ended:\n(.|\n)*ValueError: no more"):
                side()


def test_hanging_side_times_out_and_is_killed(tmp_path: Path) -> None:
    began = time.monotonic()
    with (
        pytest.raises(RuntimeError, match=r"has reported nothing for 0.2 s"),
        Side("-c", HANGS, folder=tmp_path, timeout_seconds=0.2) as side,
    ):
        side()
    assert time.monotonic() - began < 300  # it did not wait for the sleep
