"""Sinks: one contract for all of them, and the output of each."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses
from runmanager.tracking.options import TensorBoardOptions
from runmanager.tracking.sinks import ConsoleSink, EpochDetails, LogSink, MemorySink, RunStart, Sink, format_epoch
from runmanager.tracking.tensorboard.sink import TensorBoardSink

from .conftest import Stateful, event_files

SINKS: list[Callable[[], Sink]] = [
    MemorySink,
    LogSink,
    ConsoleSink,
    TensorBoardSink,
    lambda: TensorBoardSink(TensorBoardOptions(images=False, graph=False, histograms=True)),
]
CPU = torch.device("cpu")


def record(**changes: Any) -> RunRecord:
    fields = {"name": "lr=0.1-12345678", "signature": "12345678" * 8, "status": Status.RUNNING, "config": {"lr": 0.1}}
    return RunRecord(**{**fields, "started_at": "2026-11-01T10:00:00+00:00", **changes})


def epoch_record(number: int = 1, **changes: Any) -> EpochRecord:
    return EpochRecord(
        **{"epoch": number, "loss": 0.5, "accuracy": 0.75, "epoch_seconds": 2.0, "samples": 10, **changes}
    )


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    paths = RunPaths(tmp_path / "lr=0.1-12345678")
    paths.root.mkdir()
    return paths


@pytest.mark.parametrize("make", SINKS)
@pytest.mark.parametrize("batch", [None, (torch.rand(4, 1, 8, 8), torch.zeros(4)), {"strange": 1}])
def test_every_sink_handles_a_whole_run(make: Callable[[], Sink], batch: Any, paths: RunPaths) -> None:
    sink = make()
    network = Stateful()
    details = EpochDetails(network, learning_rate=0.1, step_losses=LoggedLosses([3], [0.25]))
    for attempt in (1, 2):  # a second run after the first, as for sinks passed to a manager
        notes = [*sink.begin(RunStart(record(attempt=attempt), paths, network, CPU, batch))]
        notes += sink.epoch(epoch_record(0, loss=None, accuracy=None, epoch_seconds=None, samples=0), details)
        notes += sink.epoch(epoch_record(1), details)
        notes += sink.epoch(epoch_record(2, loss=float("nan")), EpochDetails(network))
        sink.end(record(ended_at="2026-11-01T10:01:00+00:00").ended(Outcome(Status.FINISHED), at=None))
        assert all(isinstance(note, str) and note for note in notes)
    assert len(event_files(paths)) <= 1


@pytest.mark.parametrize("make", SINKS)
def test_a_run_may_end_before_its_first_epoch(make: Callable[[], Sink], paths: RunPaths) -> None:
    sink = make()
    sink.begin(RunStart(record(), paths, Stateful(), CPU))
    sink.end(record().ended(Outcome(Status.FAILED, Reason.EXCEPTION, "ValueError: no"), at="now"))


def test_memory_sink_keeps_everything(paths: RunPaths) -> None:
    sink = MemorySink()
    start, details = RunStart(record(), paths, Stateful(), CPU), EpochDetails(Stateful())
    sink.begin(start)
    sink.epoch(epoch_record(), details)
    sink.end(record())
    assert sink.starts == [start] and sink.epochs == [(epoch_record(), details)] and sink.ends == [record()]


def test_the_log_holds_a_line_for_the_start_each_epoch_each_note_and_the_end(paths: RunPaths) -> None:
    sink = LogSink()
    sink.begin(RunStart(record(attempt=2, epochs_planned=5), paths, Stateful(), CPU))
    sink.epoch(epoch_record(3, val_loss=0.625), EpochDetails(Stateful()))
    assert len(paths.log.read_text().splitlines()) == 2, "each line is written immediately"
    sink.end(
        record(notes=("no graph: a note",)).ended(Outcome(Status.FAILED, Reason.EXIT, "sys.exit(3)"), at="the end")
    )
    began, *lines = paths.log.read_text().splitlines()
    time, text = began.split("  ")
    assert text == "begins on cpu, attempt 2"
    assert time > "2026-11-01T10:00:00", "the time of this attempt, not the first one's"
    assert lines == [
        "epoch 3/5  loss 0.5000  accuracy 0.7500  val_loss 0.6250  2 s  5 samples/s",
        "note: no graph: a note",
        "the end  failed (exit): sys.exit(3)",
    ]


def test_the_console_prints_the_same_lines(paths: RunPaths, capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink()
    sink.begin(RunStart(record(), paths, Stateful(), CPU))
    sink.epoch(epoch_record(1, warmup=True), EpochDetails(Stateful()))
    sink.end(record().ended(Outcome(Status.FINISHED), at=None))
    assert capsys.readouterr().out.splitlines() == [
        "lr=0.1-12345678: on cpu",
        "  epoch 1  loss 0.5000  accuracy 0.7500  2 s  5 samples/s  (warm-up)",
        "  finished",
    ]


def test_an_epochs_line_omits_missing_values() -> None:
    assert format_epoch(EpochRecord(epoch=0, val_accuracy=0.1), 5) == "epoch 0/5  val_accuracy 0.1000"


def test_a_custom_sink_needs_three_methods(
    tmp_path: Path, network: torch.nn.Module, loader: Any, train: Callable[..., None]
) -> None:
    from runmanager import RunManager

    calls: list[str] = []

    class Own:
        def begin(self, start: RunStart) -> Sequence[str]:
            calls.append("begin")
            return ["began with a note"]

        def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
            calls.append(f"epoch {record.epoch}")
            assert record.wall_seconds is None and details.network is network
            return [f"epoch {record.epoch} noted"]

        def end(self, record: RunRecord) -> None:
            calls.append(f"end {record.status}")

    with RunManager(tmp_path / "sweep", sinks=[Own()]).run({"lr": 0.1}, network, loader) as run:
        train(run, network, loader)
    assert calls == ["begin", "epoch 1", "epoch 2", "end finished"]
    assert run.record.notes == ("began with a note", "epoch 1 noted", "epoch 2 noted")
