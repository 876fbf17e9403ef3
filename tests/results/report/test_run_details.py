"""Tests of the account of one run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runmanager.records.run.measurements import Measurements
from runmanager.records.run.record import Attempt, Environment
from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.reader import read_run
from runmanager.results.model.sections import as_text
from runmanager.results.report.run_details import run_headline, run_sections


@pytest.fixture
def said(sweep: Any, host: Environment, timed: Callable[..., Any]) -> Callable[..., str]:
    """The account of one stored run of `fields`, with these epochs and files."""

    def make(num_epochs: int = 3, files: dict[str, str | Path] | None = None, **fields: Any) -> str:
        epochs = timed([2.0] * num_epochs, data_seconds=0.5, compute_seconds=1.5)
        name = sweep.run({"lr": 0.1, "model": {"name": "cnn"}}, epochs, **fields)
        folder = sweep.paths.run(name).root
        for file, content in (files or {}).items():
            if isinstance(content, Path):
                (folder / file).symlink_to(content)
            else:
                (folder / file).write_text(content)
        run = read_run(sweep.paths.run(name))
        return as_text(run_headline(run), run_sections(run))

    return make


def test_says_everything_in_order(said: Callable[..., str]) -> None:
    text = said(files={"run.log": "one\ntwo\n", "checkpoint.pt": ""}, notes=("no graph",), epochs_planned=3)
    titles = ["Run", "Settings", "Epochs", "Times by phase", "Environment", "Notes", "Files", "run.log"]
    places = [text.index(f"\n\n{title}") for title in titles]
    assert places == sorted(places)
    assert "epochs     3 of 3" in text
    assert "model.name  cnn" in text
    assert "warm-up" in text
    assert "data     0.5000   20.0%" in text
    assert "Zen 4" in text
    assert "  no graph\n" in text
    assert "/checkpoint.pt\n" in text
    assert text.endswith("run.log\n  one\n  two\n")


def test_training_of_which_no_phase_is_known_is_a_part_of_the_time(
    sweep: Any, timed: Callable[..., Any], said: Callable[..., str]
) -> None:
    name = sweep.run({"lr": 0.2}, timed([2.0] * 3, eval_seconds=0.375))
    run = read_run(sweep.paths.run(name))
    lines = as_text(run_headline(run), run_sections(run)).partition("\nTimes by phase")[2].splitlines()
    assert ["training", "2.000", "80.0%"] in [line.split() for line in lines]
    assert "\n  training" not in said(), "where its phases are known they are its time"


def test_what_was_done_otherwise_than_asked_is_said(said: Callable[..., str]) -> None:
    text = said(deviations=("out of memory with 8 samples at once: steps are made in pieces of 4",))
    assert "\n\nDeviations from the settings\n  out of memory with 8 samples" in text


def test_what_is_not_there_has_no_section(said: Callable[..., str]) -> None:
    text = said(num_epochs=0)
    assert all(f"\n{title}" not in text for title in ("Epochs", "Times", "Notes", "error.txt", "Earlier", "Measured"))


def test_state_stands_first_with_reason_message_and_error(said: Callable[..., str]) -> None:
    text = said(
        status=Status.FAILED,
        reason=Reason.EXCEPTION,
        message="ValueError: no",
        files={"error.txt": "".join(f"line {number}\n" for number in range(50))},
    )
    assert text.splitlines()[0].endswith(": failed (exception): ValueError: no")
    assert "error.txt (the last 20 lines)\n  line 30\n" in text


def test_many_epochs_are_shortened(said: Callable[..., str]) -> None:
    lines = said(num_epochs=30).partition("\nEpochs\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines[1:]] == [*"12345", "…", "26", "27", "28", "29", "30"]


def test_attempts_and_measurements_are_told(said: Callable[..., str], host: Environment) -> None:
    elsewhere = msgspec.structs.replace(host, host="bench")
    begun, ended = "2026-11-21T11:00", "2026-11-21T11:30"
    text = said(
        attempt=2,
        earlier=(Attempt(started_at=begun, ended_at=ended, last_epoch=1, environment=elsewhere),),
        measurements=Measurements(flop_per_step=1234567, precision="fp32"),
    )
    assert "1  2026-11-21T11:00 to 2026-11-21T11:30, up to epoch 1, bench" in text
    assert "epoch 1 was made in another environment (host bench, now anvil)" in text
    assert "flop_per_step  1,234,567" in text


def test_log_that_is_a_device_holds_nobody_up(said: Callable[..., str]) -> None:
    assert "run.log" not in said(files={"run.log": Path("/dev/zero")}).splitlines()


def test_log_of_any_length_is_read_from_its_end(said: Callable[..., str]) -> None:
    text = said(files={"run.log": "x" * 200_000 + "\nthe end\n"})
    assert text.endswith("  the end\n")
    assert len(text) < 100_000
