"""Tests of `runmanager duel`."""

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest

TINY = ("dataset=fake", "dataset.size=64", "dataset.val_size=32", "model=logistic", "batch_size=32", "device=cpu")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["device=cpu"], "Missing argument 'SIDE'"),
        (["cpu", "device=cuda"], "A side of a duel must be overrides like device=cuda, got 'cpu'."),
        (["lr=1", "lr=2", "measure=single"], "`measure` must be paired in a duel, got 'single'; leave it out."),
        (["lr=1", "lr=2", "--format", "text", "--format", "github"], "`--format` must be given once, got it 2 times"),
        (
            ["model=mlp", "model=cnn", "lr=0.1", "lr=0.01"],
            "`lr` must be given once after the sides of a duel, got lr=0.1 and lr=0.01; the first two words are the "
            "sides: `runmanager duel lr=0.1 lr=0.01 …`.",
        ),
        (["device=cpu", "--quiet"], "A side of a duel must be overrides like device=cuda, got '--quiet'."),
    ],
)
def test_an_invalid_side_is_rejected(command: Callable, words: list[str], expected: str) -> None:
    done = command("duel", *words)
    assert done.status == 2
    assert expected in done.err


@pytest.mark.parametrize("also", [(), ("--dry-run",)])
def test_a_side_with_a_missing_device_is_rejected_before_the_other_runs(
    process: Callable, tmp_path: Path, also: tuple[str, ...]
) -> None:
    done = process("duel", "device=cpu", "device=cuda", *TINY[:-1], "name=d", *also, CUDA_VISIBLE_DEVICES="")
    assert done.status == 2
    assert "Device 'cuda' was asked for but PyTorch sees no CUDA device" in done.err
    assert "Each side first trains" not in done.out + done.err
    assert not (tmp_path / "outputs").exists()


def test_a_duel_of_any_settings_ends_in_one_sentence(process: Callable, tmp_path: Path) -> None:
    sides = ("batch_size=16 optimizer=sgd", "batch_size=32 optimizer.eps=1e-7")
    words = [word for word in TINY if not word.startswith("batch_size")]
    # Nearly any interval is narrow enough; on a busy machine a second pair of processes may be needed.
    quick = ("measure.block_steps=2", "measure.min_rounds=6", "measure.half_width=0.9")
    done = process("duel", *sides, *words, *quick, "name=d", OMP_NUM_THREADS="1")
    assert done.status == 0, done.err
    *before, last = done.out.splitlines()
    answer = r"(.+) is \d\.\d\d\d times as fast as (.+) \(95% interval \d\.\d+ to \d\.\d+\): "
    match = re.match(
        answer + r"(faster|slower|inconclusive), after \d+ rounds side by side in \d+ pairs? of processes\.", last
    )
    assert match, done.out
    with (tmp_path / "outputs" / "d" / "comparison.csv").open(newline="") as lines:
        (row,) = csv.DictReader(lines)
    assert row["axis"] == "batch_size+optimizer+optimizer.eps"
    assert match.groups()[:2] == (row["candidate"], row["baseline"])
    assert row["baseline"].startswith("batch_size=16, optimizer=sgd")
    assert row["verdict"] == match[3]
    rates = [line for line in before if line.endswith(" samples per second")]
    ended = [line for line in before if line.startswith("✓")]
    assert len(ended) == 2 and not any(line.endswith(" s") for line in ended), "the time of one pair of many"
    assert [line.partition(": ")[0] for line in rates] == [row["baseline"], row["candidate"]]
    # One answer: no warm-up epochs, no best accuracy, and no second table.
    assert not any(word in line for line in before for word in ("warm-up", "best", "times", "speedup"))
    assert "the ratio of their samples per second in each round" in (tmp_path / "outputs/d/report.html").read_text()
