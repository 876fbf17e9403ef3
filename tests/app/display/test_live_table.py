"""Tests of the rows of the live table."""

import pytest

from runmanager.app.display.live_table import Layout, LiveRow, duration
from runmanager.records.run.run_record import EpochRecord

EPOCH = EpochRecord(
    epoch=3, loss=0.123456, accuracy=0.9, val_loss=1.5e31, val_accuracy=0.875, epoch_seconds=0.5, samples=1000
)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("label", ["lr=0.1", "lr=0.1," + "a_long_setting=1," * 8])
def test_rows_are_aligned_and_fit_into_the_terminal(width: int, label: str) -> None:
    layout = Layout.fitting(width, longest_label=len(label))
    rows = [
        layout.header(),
        layout.row(LiveRow(label, "running", epoch=EPOCH, planned=10, seconds=1.0, seconds_left=3700.0)),
        layout.row(LiveRow(label, "finished", epoch=EPOCH, planned=10, seconds=86400.0)),
    ]
    assert max(row.cell_len for row in rows) < width
    heading, running, finished = (row.plain for row in rows)
    for word, value in (("epoch", "3/10"), ("loss", "0.1235"), ("val_acc", "0.875")):
        if f" {word} " in f"{heading} ":
            end = f"{heading} ".index(f" {word} ") + len(word) + 1
            assert running[:end].endswith(value)
            assert finished[:end].endswith(value)


def test_a_wide_terminal_shows_every_column() -> None:
    row = Layout.fitting(200, longest_label=6).row(
        LiveRow("lr=0.1", "running", epoch=EPOCH, planned=10, seconds=1.0, seconds_left=3700.0)
    )
    words = [">", "lr=0.1", "━━━╌╌╌╌╌╌╌", "3/10", "0.1235", "0.900", "1.5e+31", "0.875", "2,000", "1.0s", "1h01m"]
    assert row.plain.split() == words


def test_a_shortened_label_keeps_its_values() -> None:
    layout = Layout.fitting(80, longest_label=99)
    row = layout.row(LiveRow("lr=0.01,precision=bf16,micro_batch=8,seed=7", "running"))
    assert row.plain.startswith("> 0.01,bf16,8,7 ")
    row = layout.row(LiveRow("lr=0.01," + "width=128," * 9 + "seed=7", "running"))
    assert row.plain.startswith("> …8,128,")
    assert ",128,7 " in row.plain


def test_a_run_without_an_epoch_shows_its_reason() -> None:
    row = Layout.fitting(80, longest_label=6).row(LiveRow("lr=0.1", "failed", reason="exception"))
    assert row.plain.split() == ["✗", "lr=0.1", "failed", "exception"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0s"),
        (8.44, "8.4s"),
        (9.96, "10s"),
        (59.6, "1:00"),
        (187, "3:07"),
        (3600, "1h00m"),
        (86399, "23h59m"),
        (367200, "4d06h"),
    ],
)
def test_duration_format(seconds: float, said: str) -> None:
    assert duration(seconds) == said
