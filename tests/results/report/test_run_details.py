"""The details of one run as text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runmanager.records.run.run_record import Attempt, Environment, Measurements
from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.reader import read_run
from runmanager.results.report.run_details import run_headline, run_sections
from runmanager.results.table_model.formatting import format_sections


@pytest.fixture
def details(sweep: Any, host: Environment, timed: Callable[..., Any]) -> Callable[..., str]:
    """A function that stores a run with these epochs, files and record fields and returns its details."""

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
        return format_sections(run_headline(run), run_sections(run, shows_all=True))

    return make


def test_intervals_of_steps_are_called_so(details: Callable[..., str]) -> None:
    text = details(interval="steps")
    assert "interval seconds" in text and "epoch" not in text.partition("Intervals")[2].partition("\n\n")[0]


def test_sections_are_complete_and_in_order(details: Callable[..., str]) -> None:
    text = details(files={"run.log": "one\ntwo\n", "checkpoint.pt": ""}, notes=("no graph",), epochs_planned=3)
    titles = ["Run", "Settings", "Epochs", "Times by phase", "Environment", "Notes", "Files", "run.log"]
    positions = [text.index(f"\n\n{title}") for title in titles]
    assert positions == sorted(positions)
    assert "epochs     3 of 3" in text and "epoch seconds" in text
    assert "model.name  cnn" in text
    assert "warm-up" in text
    assert "data     0.5000   20.0%" in text
    assert "Zen 4" in text
    assert "  no graph\n" in text
    assert "/checkpoint.pt\n" in text
    assert text.endswith("run.log\n  one\n  two\n")


def test_the_training_part_is_one_row_if_its_phases_are_unknown(
    sweep: Any, timed: Callable[..., Any], details: Callable[..., str]
) -> None:
    name = sweep.run({"lr": 0.2}, timed([2.0] * 3, eval_seconds=0.375))
    run = read_run(sweep.paths.run(name))
    text = format_sections(run_headline(run), run_sections(run, shows_all=True))
    lines = text.partition("\nTimes by phase")[2].splitlines()
    assert ["training", "2.000", "80.0%"] in [line.split() for line in lines]
    assert "\n  training" not in details(), "its phases are known"


def test_what_the_program_logged_has_a_section(sweep: Any, timed: Callable[..., Any]) -> None:
    logged = [{"val/f1": 0.25, "fid": 30.0}, {"val/f1": 0.5}, {"psnr": None}]
    epochs = [
        msgspec.structs.replace(epoch, metrics=metrics, units={"tokens": 1000})
        for epoch, metrics in zip(timed([2.0] * 3), logged, strict=True)
    ]
    run = read_run(sweep.paths.run(sweep.run({"lr": 0.1}, epochs, summary={"bleu": 27.5, "fid": 4.0})))
    text = format_sections(run_headline(run), run_sections(run, shows_all=True))
    section = text.partition("\n\nLogged by the program\n")[2].partition("\n\n")[0]
    assert [" ".join(line.split()) for line in section.splitlines()] == [
        *("val/f1 0.5000 epoch 2", "fid 4.000 of the whole run", "psnr N/A epoch 3", "bleu 27.50 of the whole run"),
        *("tokens 3,000 in all epochs", "tokens_per_second 500.0 median over measured epochs"),
    ]
    rows = text.partition("\nEpochs\n")[2].splitlines()
    assert rows[0].split()[-3:] == ["val/f1", "fid", "psnr"]
    assert rows[1].split()[-2:] == ["30.00", "warm-up"] and rows[3].split()[-1] == "N/A"


def test_deviations_have_a_section(details: Callable[..., str]) -> None:
    text = details(deviations=("out of memory with 8 samples at once: steps are made in pieces of 4",))
    assert "\n\nDeviations from the settings\n  out of memory with 8 samples" in text


def test_empty_sections_are_omitted(details: Callable[..., str]) -> None:
    text = details(num_epochs=0)
    assert all(f"\n{title}" not in text for title in ("Epochs", "Times", "Notes", "error.txt", "Earlier", "Measured"))


def test_the_headline_has_status_reason_and_message(details: Callable[..., str]) -> None:
    text = details(
        status=Status.FAILED,
        reason=Reason.EXCEPTION,
        message="ValueError: no",
        files={"error.txt": "".join(f"line {number}\n" for number in range(50))},
    )
    assert text.splitlines()[0].endswith(": failed (exception): ValueError: no")
    assert "error.txt (the last 20 lines)\n  line 30\n" in text


def test_many_epochs_are_shortened(details: Callable[..., str]) -> None:
    lines = details(num_epochs=30).partition("\nEpochs\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines[1:]] == [*"12345", "…", "26", "27", "28", "29", "30"]


def test_earlier_attempts_and_measurements_are_shown(details: Callable[..., str], host: Environment) -> None:
    elsewhere = msgspec.structs.replace(host, host="bench")
    begun, ended = "2026-11-21T11:00", "2026-11-21T11:30"
    text = details(
        attempt=2,
        earlier=(Attempt(started_at=begun, ended_at=ended, last_epoch=1, environment=elsewhere),),
        measurements=Measurements(flop_per_step=1234567, precision="fp32"),
    )
    assert "1  2026-11-21T11:00 to 2026-11-21T11:30, up to epoch 1, bench" in text
    assert "epoch 1 was made in another environment (host bench, now anvil)" in text
    assert "flop_per_step  1,234,567" in text


def test_a_log_that_is_a_device_is_not_read(details: Callable[..., str]) -> None:
    assert "run.log" not in details(files={"run.log": Path("/dev/zero")}).splitlines()


def test_a_long_log_is_read_from_its_end(details: Callable[..., str]) -> None:
    text = details(files={"run.log": "x" * 200_000 + "\nthe end\n"})
    assert text.endswith("  the end\n")
    assert len(text) < 100_000


def test_a_line_that_was_redrawn_counts_once_in_its_last_state(details: Callable[..., str]) -> None:
    states = "".join(f"\r{share:3}%|{'#' * (share // 10):10}|" for share in range(0, 101, 10))
    nested = "outer 0\n\rinner 0\x1b[A\router 1\n\rinner 1"
    text = details(files={"run.log": f"begins\n{states}\n{nested}\nends\r\n"})
    lines = [line.strip() for line in text.partition("run.log")[2].splitlines()]
    assert "100%|##########|" in lines and not [line for line in lines if "50%" in line]
    assert lines[lines.index("outer 1") :][:3] == ["outer 1", "inner 1", "ends"] and "outer 0" not in lines
    assert "begins" in lines and "(the last" not in text
