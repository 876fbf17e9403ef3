"""Tests of the rows of the live table."""

from typing import Any

import pytest

from runmanager.app.display.live_table import RESULTS, Layout, LiveLayout, LiveRow, duration
from runmanager.records.run.run_record import EpochRecord

EPOCH = EpochRecord(
    epoch=3, loss=0.123456, accuracy=0.9, val_loss=1.5e31, val_accuracy=0.875, epoch_seconds=0.5, samples=1000
)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("label", ["lr=0.1", "lr=0.1," + "a_long_setting=1," * 8])
def test_rows_are_aligned_and_fit_into_the_terminal(width: int, label: str) -> None:
    layout = Layout.fitting(width, labels=[label])
    rows = [
        layout.header(),
        layout.row(LiveRow(label, "running", epoch=EPOCH, rate=2000.0, planned=10, seconds=1.0, seconds_left=3700.0)),
        layout.row(LiveRow(label, "finished", epoch=EPOCH, rate=2000.0, planned=10, seconds=86400.0)),
    ]
    assert max(row.cell_len for row in rows) < width
    heading, running, finished = (row.plain for row in rows)
    for word, value in (("epoch", "3/10"), ("loss", "0.1235"), ("val_acc", "0.875")):
        if f" {word} " in f"{heading} ":
            end = f"{heading} ".index(f" {word} ") + len(word) + 1
            assert running[:end].endswith(value)
            assert finished[:end].endswith(value)


def test_a_wide_terminal_shows_every_column() -> None:
    row = Layout.fitting(200, labels=["lr=0.1"]).row(
        LiveRow("lr=0.1", "running", epoch=EPOCH, rate=2000.0, planned=10, seconds=1.0, seconds_left=3700.0)
    )
    words = [">", "lr=0.1", "━━━╌╌╌╌╌╌╌", "3/10", "0.1235", "0.900", "1.5e+31", "0.875", "2,000", "1.0s", "1h01m"]
    assert row.plain.split() == words


def test_no_full_bar_stands_for_a_measurement_after_the_epochs() -> None:
    layout = Layout.fitting(80, labels=["lr=0.1"])
    trained = layout.row(LiveRow("lr=0.1", "running", planned=2, epoch=EpochRecord(epoch=2), is_measuring=True))
    assert "━" not in trained.plain and trained.plain.split()[:4] == [">", "lr=0.1", "measuring", "2/2"]


def test_the_bar_has_the_share_of_the_epoch_under_way() -> None:
    layout = Layout.fitting(80, labels=["lr=0.1"])
    rows = [layout.row(LiveRow("lr=0.1", "running", planned=2, share=share)).plain for share in (0.6, 0.7)]
    assert "━━━╌╌╌╌╌╌╌" in rows[0] and "━━━╸╌╌╌╌╌╌" in rows[1]


LOGGED = {"val/f1": 0.5, "fid": None, "a_very_long_name_of_a_metric": 12345678.0, "psnr": 30.0}


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("requested", [None, "psnr", "unknown"])
@pytest.mark.parametrize("unused", [(), RESULTS])
def test_rows_with_logged_metrics_fit_into_the_terminal(width: int, requested: str | None, unused: Any) -> None:
    layout = Layout.fitting(width, labels=["lr=0.1234"], logged=tuple(LOGGED), requested=requested, unused=unused)
    row = layout.row(LiveRow("lr=0.1", "running", epoch=EPOCH, rate=2000.0, metrics=LOGGED, planned=10, seconds=1.0))
    assert max(layout.header().cell_len, row.cell_len) < width
    headings = layout.header().plain.split()
    if requested == "psnr" and width > 40:
        assert "psnr" in headings  # it comes before the loss
    for name, value in (("val/f1", "0.5"), ("fid", "N/A"), ("psnr", "30")):
        if name in headings:
            end = layout.header().plain.index(name) + len(name)
            assert row.plain[:end].endswith(f" {value}")
    if width == 200 and not unused:
        assert headings[2:] == [
            *("epoch", "loss", "acc", "val_loss", "val_acc", *(["psnr"] if requested == "psnr" else [])),
            *(
                "val/f1",
                "fid",
                "…e_of_a_metric",
                *([] if requested == "psnr" else ["psnr"]),
                "samples/s",
                "took",
                "left",
            ),
        ]
    if unused and width == 80:  # columns without values make room
        assert {"val/f1", "fid"} <= set(headings) and not {"loss", "val_acc"} & set(headings)


@pytest.mark.parametrize(("longest", "headings"), [(12, ["took", "left"]), (18, ["time"]), (40, ["time"])])
def test_what_a_run_took_is_shown_in_80_columns(longest: int, headings: list[str]) -> None:
    layout = Layout.fitting(80, labels=[longest * "x"])
    assert layout.header().plain.split()[-len(headings) :] == headings
    running = LiveRow("lr=0.1", "running", epoch=EPOCH, rate=2000.0, planned=10, seconds=25.0, seconds_left=31.0)
    ended = LiveRow("lr=0.1", "finished", epoch=EPOCH, rate=2000.0, planned=10, seconds=56.0)
    assert layout.row(running).plain.endswith(" 31s left" if headings == ["time"] else " 25s    31s")
    assert layout.row(ended).plain.endswith(" 56s")


def test_a_metric_may_have_the_name_of_a_column() -> None:
    layout = Layout.fitting(200, labels=["lr=0.1"], logged=("loss",))
    row = layout.row(LiveRow("lr=0.1", "finished", epoch=EPOCH, rate=2000.0, metrics={"loss": 9.0}, planned=10))
    assert layout.header().plain.split().count("loss") == 2
    assert {"0.1235", "9"} <= set(row.plain.split())


def test_steps_are_counted_without_a_plan() -> None:
    layout = Layout.fitting(80, labels=["lr=0.1"], counted="step")
    row = layout.row(LiveRow("lr=0.1", "running", epoch=EpochRecord(epoch=1200), counted="step"))
    assert layout.header().plain.split()[2] == "step"
    assert row.plain.split() == [">", "lr=0.1", "running", "1200"]


def test_a_shortened_label_keeps_its_values() -> None:
    label = "lr=0.01,precision=bf16,micro_batch=8,seed=7"
    row = Layout.fitting(80, labels=[label]).row(LiveRow(label, "running"))
    assert row.plain.startswith("> 0.01,bf16,8,7 ")
    label = "lr=0.01," + "width=128," * 9 + "seed=7"
    row = Layout.fitting(80, labels=[label]).row(LiveRow(label, "running"))
    assert row.plain.startswith("> …8,128,")
    assert ",128,7 " in row.plain


def test_labels_have_the_names_of_settings_in_all_rows_or_none() -> None:
    labels = [f"lr=0.1,device=cpu,batch_size={size}" for size in (100, 1000)]  # of which the first alone would fit
    layout = Layout.fitting(80, labels=labels)
    assert [layout.row(LiveRow(label, "running")).plain.split()[1] for label in labels] == [
        "0.1,cpu,100",
        "0.1,cpu,1000",
    ]
    assert "val_acc" in layout.header().plain, "shorter labels leave room for the metric"
    assert [line.plain for line in layout.legend()] == ["  run: lr,device,batch_size"]


def test_the_metric_stays_next_to_long_labels_and_columns_without_values_go() -> None:
    label = "lr=0.01," + "width=128," * 9 + "seed=7"
    live = LiveLayout(labels=[label])
    assert {"loss", "val_acc", "acc"} <= set(live.fitting(200).header().plain.split())
    live.note(LiveRow(label, "running", epoch=EPOCH))
    assert live.fitting(80).header().plain.split() == ["run", "state", "epoch", "val_acc", "time"]
    regression = LiveLayout(labels=[label])
    regression.note(LiveRow(label, "running", epoch=EpochRecord(epoch=1, loss=0.5, val_loss=0.6)))
    assert regression.fitting(80).header().plain.split() == ["run", "state", "epoch", "loss", "took", "left"]
    assert not {"acc", "val_acc", "samples/s"} & set(regression.fitting(200).header().plain.split())


def test_a_run_without_an_epoch_shows_its_reason() -> None:
    row = Layout.fitting(80, labels=["lr=0.1"]).row(LiveRow("lr=0.1", "failed", reason="exception"))
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
