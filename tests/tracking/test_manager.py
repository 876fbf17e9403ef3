"""`RunManager` with a custom loop: the documented example, and the record of a run for every way its body can end."""

import argparse
import csv
import gc
import itertools
import json
import subprocess
import sys
import threading
import warnings
from collections import namedtuple
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from runmanager import RunManager, expand_grid
from runmanager.errors import DeviceUnavailableError, RunBusyError, UsageError
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.status import Status
from runmanager.records.settings.signature import signature
from runmanager.records.storage.reader import StoredRun
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.storage.versioned_file import encode_record
from runmanager.records.sweep.sweep_record import read_sweep_record
from runmanager.results.load import loader as results_loader
from runmanager.results.load import summary_cache
from runmanager.text import full_message
from runmanager.tracking import manager as manager_module
from runmanager.tracking.options import EarlyStopOptions, RunOptions, TensorBoardOptions
from runmanager.tracking.sinks import ConsoleSink, LogSink, MemorySink
from runmanager.tracking.tensorboard.sink import TensorBoardSink
from runmanager.tracking.timing.timer import HostClock

from .conftest import Body, Stateful, event_files, images, stored_runs

EPOCH_COLUMNS = [
    *("run", "epoch", "loss", "accuracy", "val_loss", "val_accuracy", "epoch_seconds", "wall_seconds", "run_seconds"),
    *("samples", "warmup", "data_seconds", "transfer_seconds", "compute_seconds", "eval_seconds", "tracking_seconds"),
    *("lr", "batch_size", "num_workers", "device"),
]


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even its message")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


LOOP = """
import json, sys
from torch import nn
from runmanager import RunManager

roots, options = sys.argv[1].split(","), json.loads(sys.argv[2])
for lr, root in enumerate(roots):
    manager = RunManager(root, **options)
    with manager.run({"lr": lr}, nn.Linear(1, 1)) as run:
        for epoch in run.epochs(1):
            epoch.track(1.0, samples=1)
print("the end")
"""
IN_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn([sys.executable, *sys.argv[1:]])))"


def in_process(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=True, timeout=300)


@pytest.mark.parametrize(
    ("roots", "options", "said"),
    [
        ("outputs/mine,outputs/mine", {}, "The results are in outputs/mine; `runmanager table mine` shows them."),
        ("outputs/taken", {}, "The results are in outputs/taken; `runmanager table outputs/taken` shows them."),
        ("else where", {}, "The results are in else where; `runmanager table 'else where'` shows them."),
        ("one,two", {}, "the end"),
        ("outputs/mine", {"console": False}, "the end"),
        ("outputs/mine", {"sinks": []}, "the end"),
    ],
)
def test_a_loop_in_a_terminal_ends_with_where_its_results_are(
    tmp_path: Path, roots: str, options: dict[str, Any], said: str
) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "taken").mkdir()
    words = ["loop.py", roots, json.dumps(options)]
    lines = in_process(tmp_path, "-c", IN_TERMINAL, *words).stdout.splitlines()
    assert lines[-1] == said
    assert sum("The results are in" in line for line in lines) == (said != "the end")


def test_a_loop_outside_of_a_terminal_ends_with_its_own_output(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    assert in_process(tmp_path, "loop.py", "outputs/mine", "{}").stdout.splitlines()[-1] == "the end"


def test_documented_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_gpu: None, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    manager = RunManager("outputs/mine")
    for params in expand_grid(lr=[0.1, 0.01], batch_size=[10, 25], device=["cpu", "cuda"]):
        torch.manual_seed(0)
        network = Stateful()
        loader = DataLoader(images(), batch_size=params.batch_size, shuffle=True)
        optimizer = torch.optim.SGD(network.parameters(), lr=params.lr)
        with manager.run(params, network, loader) as run:
            for epoch in run.epochs(2):
                for inputs, labels in epoch.batches(loader):
                    preds = network(inputs)
                    loss = F.cross_entropy(preds, labels)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    epoch.track(loss, preds, labels)
    manager.save("epochs_table")

    runs = stored_runs(tmp_path / "outputs" / "mine")
    outcomes = [(run.record.config["device"], run.record.status, run.record.reason) for run in runs]
    assert outcomes == [("cpu", "finished", None), ("cuda", "skipped", "device_unavailable")] * 4
    sweep = tmp_path / "outputs" / "mine"
    files = {path.name for path in sweep.iterdir()}
    assert files == {
        *("sweep.json", "results.csv", "results.json", "results.md", "results.html", "epochs.csv"),
        *("comparison.csv", "comparison.json", "comparison.md", "report.html", "runs"),
    }
    for run in runs:
        here = {path.name.split(".tfevents")[0] for path in run.paths.root.iterdir()}
        finished = {"run.json", "config.yaml", "epochs.jsonl", "run.log", "events.out"}
        assert here == (finished if run.record.status == "finished" else {"run.json", "config.yaml"})
        assert run.record.name.endswith("-" + run.record.signature[:8])
        assert run.record.name.startswith(f"lr={run.record.config['lr']},batch_size={run.record.config['batch_size']}")
        assert run.paths.name == run.record.name.replace("=", "_").replace(",", "-")
    plan = json.loads((sweep / "sweep.json").read_text())
    assert plan["axes"] == {"lr": [0.1, 0.01], "batch_size": [10, 25], "device": ["cpu", "cuda"]}
    assert plan["cells"] == [run.record.signature for run in runs]

    with (tmp_path / "epochs_table.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == EPOCH_COLUMNS
    assert [(row[0], row[1], row[9]) for row in rows] == [
        (run.record.name, str(number), "50") for run in runs[::2] for number in (1, 2)
    ]
    assert [row[10] for row in rows] == ["True", "False"] * 4
    assert len(json.loads((tmp_path / "epochs_table.json").read_text())) == 8
    with (sweep / "results.csv").open(newline="") as file:
        results = list(csv.DictReader(file))
    assert sorted(row["status"] for row in results) == ["finished"] * 4 + ["skipped"] * 4
    assert "skipped: Device 'cuda' was asked for but PyTorch sees no CUDA device" in capsys.readouterr().out


def weights_after(folder: Path, train: Body, *, num_workers: int = 0, one_shot: bool = False, **options: Any) -> Any:
    torch.manual_seed(3)
    network = Stateful()
    loader: Any = DataLoader(images(), batch_size=20, shuffle=True, num_workers=num_workers)
    if one_shot:
        loader = [batch for _ in range(2) for batch in loader]
        left = iter(loader)
        loader = left
    manager = RunManager(folder, **options)
    with manager.run({"lr": 0.05}, network, loader, options=RunOptions(log_every=1)) as run:
        train(run, network, loader, epochs=1 if one_shot else 2)
    return {**network.state_dict(), "random": torch.get_rng_state()}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_tracking_changes_no_result(tmp_path: Path, train: Body, num_workers: int) -> None:
    everything = TensorBoardOptions(histograms=True)
    sinks = [MemorySink(), LogSink(), ConsoleSink(), TensorBoardSink(everything)]
    watched = weights_after(tmp_path / "on", train, num_workers=num_workers, sinks=sinks)
    unwatched = weights_after(tmp_path / "off", train, num_workers=num_workers, sinks=[])
    assert all(torch.equal(value, unwatched[name]) for name, value in watched.items())
    assert len(sinks[0].epochs) == 2  # type: ignore[attr-defined]

    # Neither differs from the same loop without a manager.
    torch.manual_seed(3)
    network = Stateful()
    loader = DataLoader(images(), batch_size=20, shuffle=True, num_workers=num_workers)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for _ in range(2):
        for inputs, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(network(inputs), labels).backward()
            optimizer.step()
    assert all(torch.equal(value, watched[name]) for name, value in network.state_dict().items())


def test_all_batches_of_a_one_shot_loader_are_trained_on(tmp_path: Path, train: Body) -> None:
    watched = weights_after(tmp_path / "on", train, one_shot=True, console=False)
    unwatched = weights_after(tmp_path / "off", train, one_shot=True, sinks=[])
    assert all(torch.equal(value, unwatched[name]) for name, value in watched.items())
    (run,) = stored_runs(tmp_path / "on")
    assert run.epochs[0].samples == 100
    (file,) = event_files(run.paths)
    assert b"images" in file.read_bytes(), "the first batch is shown when it arrives"


def quiet(folder: Path, **options: Any) -> RunManager:
    return RunManager(folder, sinks=[], **options)


def test_recorded_values_equal_the_loops(tmp_path: Path, network: nn.Module, loader: Any) -> None:
    seen: list[tuple[float, int]] = []
    with quiet(tmp_path / "sweep").run({}, network, loader) as run:
        network.eval()
        for epoch in run.epochs(2):
            correct = 0
            for inputs, labels in epoch.batches(loader):
                preds = network(inputs)
                loss = F.cross_entropy(preds, labels)
                epoch.track(loss, preds, labels)
                seen.append((loss.item(), len(labels)))
                correct += int((preds.argmax(1) == labels).sum())
    (stored,) = stored_runs(tmp_path / "sweep")
    assert [count for _, count in seen] == [20, 20, 10] * 2
    expected = [sum(loss * count for loss, count in part) / 50 for part in (seen[:3], seen[3:])]
    assert [epoch.loss for epoch in stored.epochs] == pytest.approx(expected, rel=1e-12)
    assert stored.epochs[1].accuracy == correct / 50
    assert [epoch.samples for epoch in stored.epochs] == [50, 50]
    record = stored.record
    assert record.num_parameters == sum(parameter.numel() for parameter in network.parameters())
    assert record.epochs_planned == 2 and record.attempt == 1 and record.peak_memory_bytes
    assert record.environment.torch_threads == 1 and torch.__version__.startswith(record.environment.libraries["torch"])
    assert record.environment.device_name and record.environment.outside_cpu_share is not None


def test_phases_of_a_real_epoch_sum_up_to_its_wall_time(tmp_path: Path, network: nn.Module, train: Body) -> None:
    loader = DataLoader(images(6000), batch_size=100)  # long enough: tenths of a second
    with RunManager(tmp_path / "sweep", console=False).run({}, network, loader) as run:
        train(run, network, loader, validation=DataLoader(images(2000), batch_size=100))
    for epoch in run.history:
        phases = [
            *(epoch.data_seconds, epoch.transfer_seconds, epoch.compute_seconds),
            *(epoch.eval_seconds, epoch.tracking_seconds),
        ]
        assert all(seconds is not None and seconds > 0 for seconds in phases)
        # The time between the two loops and after them is in no phase.
        assert sum(phases) == pytest.approx(epoch.wall_seconds, rel=0.01)  # type: ignore[arg-type]
        assert sum(phases) <= epoch.wall_seconds * (1 + 1e-9)  # type: ignore[operator]
        assert sum(phases[:3]) == pytest.approx(epoch.epoch_seconds, rel=1e-9)  # type: ignore[arg-type]
        assert epoch.run_seconds is not None and epoch.wall_seconds is not None
        assert epoch.run_seconds >= epoch.wall_seconds


@pytest.mark.parametrize("marks", [True, False])
def test_time_after_the_last_step_is_not_training(
    tmp_path: Path, network: nn.Module, monkeypatch: pytest.MonkeyPatch, only_run: Callable[[], StoredRun], marks: bool
) -> None:
    now = [0]
    monkeypatch.setattr(HostClock, "mark", lambda self: now[0])
    with quiet(tmp_path / "sweep").run({}, network) as run:
        for epoch in run.epochs(3):
            for _ in range(3):
                now[0] += 5_000_000
                epoch.track(torch.tensor(1.0), samples=4)
            with epoch.evaluating() if marks else nullcontext():
                now[0] += 10**9
    run = only_run()
    for record in run.epochs:
        assert record.epoch_seconds == pytest.approx(0.015) and record.samples_per_second == pytest.approx(800)
        assert record.eval_seconds == (pytest.approx(1.0) if marks else None)
    notes = [note for note in run.record.notes if "wall_seconds" in note]
    assert len(notes) == (0 if marks else 1)
    assert marks or "`with epoch.evaluating():`" in notes[0]


def test_every_epoch_is_stored_before_the_next_begins(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun]
) -> None:
    with quiet(tmp_path / "sweep").run({}, network, loader) as run:
        for number, epoch in enumerate(run.epochs(3)):
            assert [stored.epoch for stored in only_run().epochs] == list(range(1, number + 1))
            assert only_run().record.status == "running"
            epoch.track(torch.tensor(1.0), samples=1)
    assert len(only_run().epochs) == 3


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("bad\nvery bad"), ("failed", "exception", "ValueError: bad")),
        (ValueError(), ("failed", "exception", "ValueError")),
        (ValueError("no file d\udcff"), ("failed", "exception", "ValueError: no file d\\udcff")),
        (MemoryError("all gone"), ("failed", "out_of_memory", None)),
        (torch.OutOfMemoryError("CUDA out of memory"), ("failed", "out_of_memory", None)),
        (UnprintableError(), ("failed", "exception", "UnprintableError")),
        (SystemExit(3), ("failed", "exit", "sys.exit(3)")),
        (SystemExit(UnprintableError()), ("failed", "exit", "sys.exit()")),
        (SystemExit(), ("failed", "exit", "sys.exit()")),
        (KeyboardInterrupt(), ("killed", "interrupted", "interrupted")),
    ],
)
def test_an_exception_in_the_body_ends_the_run_and_is_raised(
    tmp_path: Path,
    network: nn.Module,
    loader: Any,
    only_run: Callable[[], StoredRun],
    error: BaseException,
    outcome: tuple[str, str, str | None],
) -> None:
    memory = MemorySink()
    manager = RunManager(tmp_path / "sweep", sinks=[memory])
    with pytest.raises(type(error)) as raised, manager.run({}, network, loader) as run:
        for epoch in run.epochs(3):
            epoch.track(torch.tensor(1.0), samples=1)
            if epoch.number == 2:
                run.note(full_message(error))  # as for something that could not be done
                raise error
    assert raised.value is error
    stored = only_run()
    assert (stored.record.status, stored.record.reason) == outcome[:2]
    assert outcome[2] is None or stored.record.message == outcome[2]
    assert [epoch.epoch for epoch in stored.epochs] == [1]
    text = stored.paths.error.read_text()
    assert text.startswith("Traceback") and type(error).__name__ in text and __file__ in text
    assert memory.ends == [stored.record]
    assert f",{outcome[0]},{outcome[1]}," in (tmp_path / "sweep" / "results.csv").read_text()


def test_an_error_while_building_the_network_fails_the_run(
    tmp_path: Path, only_run: Callable[[], StoredRun], loader: Any
) -> None:
    with pytest.raises(ZeroDivisionError), RunManager(tmp_path / "sweep", console=False).run({}) as run:
        run.begin(nn.Linear(1 // 0, 1), loader)
    assert only_run().record.message.startswith("ZeroDivisionError")
    with (
        pytest.raises(UsageError, match=r"must be a torch\.nn\.Module, got str"),
        quiet(tmp_path / "other").run({}, "a network", loader),  # type: ignore[arg-type]
    ):
        pytest.fail("the body must not run")
    assert stored_runs(tmp_path / "other")[0].record.status == "failed"
    with pytest.raises(UsageError, match=r"call begin\(network, loader\)"), quiet(tmp_path / "third").run({}) as run:
        next(iter(run.epochs(1)))


def test_a_sink_that_cannot_begin_fails_the_run(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun]
) -> None:
    class Broken(MemorySink):
        def begin(self, start: Any) -> Any:
            raise OSError("disk full")

    memory = MemorySink()
    manager = RunManager(tmp_path / "sweep", sinks=[memory, Broken()])
    with pytest.raises(OSError, match="disk full"), manager.run({}, network, loader):
        pytest.fail("the body must not run")
    assert only_run().record.status == "failed"
    assert len(memory.ends) == 1, "a sink that has begun is ended"


def test_a_record_stays_small_when_an_error_quotes_much(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun]
) -> None:
    with RunManager(tmp_path / "quiet", sinks=[]).run({}, network, loader) as quiet:
        pass
    run = RunManager(tmp_path / "sweep", sinks=[]).run({}, network, loader)
    with pytest.raises(ValueError, match="zzz"), run:
        run.note("x" * 10_000_000)
        run.note_deviation("y" * 10_000_000)
        raise ValueError("z" * 10_000_000)
    paths = only_run().paths
    without = quiet.paths.record.stat().st_size
    assert paths.record.stat().st_size < without + 5_000 < 10_000_000 < paths.error.stat().st_size
    assert all(each in paths.record.read_text() for each in ("xxx… (cut: ", "yyy… (cut: ", "zzz… (cut: "))


def test_the_end_is_recorded_even_if_the_traceback_and_the_sinks_fail(
    tmp_path: Path,
    network: nn.Module,
    loader: Any,
    only_run: Callable[[], StoredRun],
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(MemorySink):
        def begin(self, start: Any) -> Any:
            raise OSError("disk full")

    run = RunManager(tmp_path / "sweep", sinks=[Broken()]).run({})
    with pytest.raises(OSError, match="disk full"), run:
        run.begin(network, iter(loader))  # no batch can be taken from it yet, so the sinks begin later
        run.paths.error.mkdir()  # so that no error.txt can be written
        raise ValueError("that the run is about")
    assert (only_run().record.status, only_run().record.message) == ("failed", "ValueError: that the run is about")
    assert "error.txt could not be written" in caplog.text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["loss", "val_loss"])
def test_a_nan_loss_ends_the_run(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun], value: float, where: str
) -> None:
    numbers = []
    with quiet(tmp_path / "sweep").run({}, network, loader) as run:
        for epoch in run.epochs(5):
            numbers.append(epoch.number)
            bad = epoch.number == 2
            epoch.track(torch.tensor(value if bad and where == "loss" else 1.0), samples=1)
            epoch.track_eval(torch.tensor(value if bad and where == "val_loss" else 1.0), samples=1)
    assert numbers == [1, 2]
    stored = only_run()
    assert (stored.record.status, stored.record.reason) == ("failed", "diverged")
    assert stored.record.message == f"{where} is {value} in epoch 2; try a smaller lr"
    assert len(stored.epochs) == 2


def test_leaving_the_loop_is_early_stopping(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun]
) -> None:
    with quiet(tmp_path / "sweep").run({}, network, loader) as run:
        for epoch in run.epochs(5):
            if epoch.number == 3:
                break
            epoch.track(torch.tensor(1.0), samples=1)
    record = only_run().record
    assert (record.status, record.reason) == ("finished", "early_stopped")
    assert record.message == "the loop was left after 2 of 5 epochs"


@pytest.mark.parametrize("status", [Status.KILLED, Status.CRASHED, Status.FAILED])
def test_a_host_without_the_device_discards_nothing(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun], status: Status
) -> None:
    settings = {"device": "meta"}  # never available
    with quiet(tmp_path / "sweep").run(settings, network, loader):
        pass
    paths = only_run().paths
    replace_file(paths.record, encode_record(msgspec.structs.replace(only_run().record, status=status, reason=None)))
    paths.checkpoint.write_bytes(b"what another host has done")
    before = {path: path.read_bytes() for path in paths.root.iterdir()}
    with quiet(tmp_path / "sweep").run(settings, network, loader) as run:
        assert list(run.epochs(3)) == []
    assert {path: path.read_bytes() for path in paths.root.iterdir()} == before


def test_a_dropped_run_can_be_restarted_by_the_same_process(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun]
) -> None:
    run = RunManager(tmp_path / "sweep", sinks=[]).run({}, network, loader)
    with pytest.raises(RunBusyError):
        quiet(tmp_path / "sweep").run({}, network, loader)
    del run
    gc.collect()
    for thread in threading.enumerate():  # collected by its thread, which has yet to end
        if thread.name == "runmanager-heartbeat":
            thread.join(60)
            assert not thread.is_alive()
    with quiet(tmp_path / "sweep").run({}, network, loader) as again:
        for epoch in again.epochs(1):
            epoch.track(torch.tensor(1.0), samples=1)
    assert (only_run().record.status, only_run().record.attempt) == ("finished", 2)


def test_a_custom_loop_may_use_any_setting_name(tmp_path: Path, network: nn.Module, loader: Any) -> None:
    """In the built-in job, settings of these names control where and how a run is stored."""
    for name, resume in (("a", True), ("b", True), ("b", False)):
        settings = {"name": name, "resume": resume, "checkpoint": "last.pt", "lr": 0.1}
        with quiet(tmp_path / "sweep").run(settings, network, loader) as run:
            for epoch in run.epochs(1):
                epoch.track(torch.tensor(1.0), samples=1)
    runs = stored_runs(tmp_path / "sweep")
    assert [(run.settings["name"], run.settings["resume"]) for run in runs] == [("a", True), ("b", True), ("b", False)]
    plan = read_sweep_record(SweepPaths(tmp_path / "sweep"))
    assert plan is not None and plan.axes == {"name": ["a", "b"], "resume": [True, False]}
    rows = list(csv.DictReader((tmp_path / "sweep" / "results.csv").read_text().splitlines()))
    assert sorted((row["name"], row["resume"]) for row in rows) == [("a", "True"), ("b", "False"), ("b", "True")]
    # Runs stored earlier, without such settings, are still found.
    assert signature({"lr": 0.1, "seed": 1}, unsigned=()) == signature({"lr": 0.1, "seed": 1})


def test_a_run_left_before_its_first_epoch_ended_is_not_finished(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun]
) -> None:
    for attempt in (1, 2):  # nothing is kept, so the second attempt starts from the beginning
        with quiet(tmp_path / "sweep").run({}, network, loader) as run:
            for _ in run.epochs(5):
                break
        record = only_run().record
        assert (record.status, record.reason, record.attempt) == ("killed", "interrupted", attempt)


def test_a_kept_run_prints_a_line_if_another_number_of_epochs_is_requested(
    tmp_path: Path, network: nn.Module, loader: Any, train: Body, capsys: pytest.CaptureFixture[str]
) -> None:
    for num_epochs in (1, 3):
        with RunManager(tmp_path / "sweep").run({"lr": 1}, network, loader) as run:
            network.to(run.device)
            train(run, network, loader, epochs=num_epochs)
    assert "kept with 1 epoch, but 3 were requested" in capsys.readouterr().out


@pytest.mark.parametrize(("left_after", "recorded"), [("all batches", 2), ("one batch", 1)])
def test_an_epoch_whose_batches_were_all_taken_is_recorded_when_the_loop_is_left(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun], left_after: str, recorded: int
) -> None:
    with quiet(tmp_path / "sweep").run({}, network, loader) as run:
        for epoch in run.epochs(5):
            for _ in epoch.batches(loader):
                epoch.track(torch.tensor(1.0), samples=1)
                if left_after == "one batch" and epoch.number == 2:
                    break
            if epoch.number == 2:
                break
    assert len(only_run().epochs) == recorded
    assert only_run().record.reason == "early_stopped"


def test_an_epoch_is_recorded_if_the_loop_raises_after_all_its_batches(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun]
) -> None:
    with pytest.raises(ValueError), quiet(tmp_path / "sweep").run({}, network, loader) as run:
        for epoch in run.epochs(5):
            for _ in epoch.batches(loader):
                epoch.track(torch.tensor(1.0), samples=1)
            raise ValueError
    assert len(only_run().epochs) == 1
    assert only_run().record.status == "failed"


@pytest.mark.parametrize("num_epochs", [4, 9])
def test_early_stopping(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun], num_epochs: int
) -> None:
    options = RunOptions(early_stop=EarlyStopOptions(metric="val_loss", patience=2))
    with quiet(tmp_path / "sweep").run({}, network, loader, options=options) as run:
        for epoch in run.epochs(num_epochs):
            epoch.track(torch.tensor(1.0), samples=1)
            epoch.track_eval(torch.tensor([3.0, 2.0, 2.5, 2.1][epoch.number - 1]), samples=1)
    record = only_run().record
    assert len(only_run().epochs) == 4
    if num_epochs == 4:
        assert (record.status, record.reason) == ("finished", None), "it ran all its epochs anyway"
    else:
        assert (record.status, record.reason) == ("finished", "early_stopped")
        assert record.message == "val_loss was best in epoch 2 (2)"


def test_stop_early_and_interrupt_let_the_epoch_end(tmp_path: Path, network: nn.Module, loader: Any) -> None:
    for number, stop in enumerate(("stop_early", "interrupt")):
        with quiet(tmp_path / "sweep").run({"number": number}, network, loader) as run:
            for epoch in run.epochs(5):
                epoch.track(torch.tensor(1.0), samples=1)
                getattr(run, stop)("enough")
    stopped, interrupted = (run.record for run in stored_runs(tmp_path / "sweep"))
    assert (stopped.status, stopped.reason, stopped.message) == ("finished", "early_stopped", "enough")
    assert (interrupted.status, interrupted.reason, interrupted.message) == ("killed", "interrupted", "enough")
    assert all(len(run.epochs) == 1 for run in stored_runs(tmp_path / "sweep"))


def test_a_finished_run_is_kept_and_an_overwritten_one_moved_to_attempts(
    tmp_path: Path, network: nn.Module, loader: Any, train: Body, only_run: Callable[[], StoredRun]
) -> None:
    def again(**options: Any) -> Any:
        with RunManager(tmp_path / "sweep", console=False, **options).run({"lr": 1}, network, loader) as run:
            train(run, network, loader, epochs=1)
        return run

    again()
    first = only_run()
    before = {path: path.read_bytes() for path in first.paths.root.iterdir()}
    again()
    kept = again()
    assert kept.history == first.epochs and kept.record == first.record
    assert {path: path.read_bytes() for path in first.paths.root.iterdir()} == before
    again(overwrite=True)
    second = only_run()
    assert second.record.attempt == 2 and len(second.epochs) == 1
    assert second.record.started_at != first.record.started_at
    aside = second.paths.attempts / "1"
    assert {path.name for path in aside.iterdir()} == {path.name for path in before}
    assert (aside / "epochs.jsonl").read_bytes() == before[first.paths.epochs]
    assert len(event_files(second.paths)) == 1


def test_an_unfinished_run_restarts(
    tmp_path: Path, network: nn.Module, loader: Any, train: Body, only_run: Callable[[], StoredRun]
) -> None:
    for attempt in (1, 2):
        with (
            pytest.raises(ValueError, match="broken"),
            RunManager(tmp_path / "sweep", console=False).run({"lr": 1}, network, loader) as run,
        ):
            train(run, network, loader, epochs=attempt)
            raise ValueError("broken")
    with RunManager(tmp_path / "sweep", console=False).run({"lr": 1}, network, loader) as run:
        train(run, network, loader, epochs=1)
    stored = only_run()
    assert (stored.record.status, stored.record.attempt, len(stored.epochs)) == ("finished", 3, 1)
    assert stored.record.message == "" and not stored.paths.error.exists()
    for attempt in (1, 2):
        aside = stored.paths.attempts / str(attempt)
        assert json.loads((aside / "run.json").read_text())["status"] == "failed"
        assert len((aside / "epochs.jsonl").read_text().splitlines()) == attempt
        assert (aside / "error.txt").exists()


def test_a_skipped_run_is_tried_again_without_an_entry_in_attempts(
    tmp_path: Path, network: nn.Module, loader: Any, train: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runmanager.tracking import manager as module

    def missing(name: str) -> Any:
        raise DeviceUnavailableError("not today")

    with monkeypatch.context() as patch:
        patch.setattr(module, "resolve_device", missing)
        with quiet(tmp_path / "sweep").run({"device": "cpu"}, network, loader) as run:
            train(run, network, loader)
    assert run.record.status == "skipped" and run.record.message == "not today"
    with quiet(tmp_path / "sweep").run({"device": "cpu"}, network, loader) as run:
        train(run, network, loader)
    (stored,) = stored_runs(tmp_path / "sweep")
    assert stored.record.status == "finished" and not stored.paths.attempts.exists()


def test_an_inactive_run_accepts_every_call(tmp_path: Path, no_gpu: None, loader: Any) -> None:
    with quiet(tmp_path / "sweep").run({"device": "cuda"}) as run:
        network = Stateful()
        run.begin(network, loader)
        assert list(run.evaluation_before_training()) == []
        for _ in run.epochs(3):
            pytest.fail("nothing is to be run")
        run.stop_early("enough")
    assert next(network.parameters()).device.type == "cpu"
    assert stored_runs(tmp_path / "sweep")[0].record.reason == "device_unavailable"


def test_a_running_run_is_refused_to_others(tmp_path: Path, network: nn.Module, loader: Any) -> None:
    manager = quiet(tmp_path / "sweep")
    with manager.run({"lr": 1}, network, loader), pytest.raises(RunBusyError, match="is being run by process"):
        quiet(tmp_path / "sweep").run({"lr": 1}, network, loader)


@dataclass(frozen=True)
class Params:
    lr: float
    batch_size: int


def test_a_run_that_was_taken_over_writes_nothing_more(
    tmp_path: Path, network: nn.Module, loader: Any, only_run: Callable[[], StoredRun]
) -> None:
    """Its host was disconnected for long, and another host has resumed the run."""
    other = ProcessIdentity(pid=7, start_ticks=1, boot_id="other", host="elsewhere")
    with (
        pytest.raises(RunBusyError, match="was taken over by another process"),
        RunManager(tmp_path / "sweep", sinks=[]).run({"lr": 1}, network, loader) as run,
    ):
        for epoch in run.epochs(3):
            epoch.track(torch.tensor(1.0), samples=5)
            if epoch.number == 2:
                taken = msgspec.structs.replace(run.record, owner=other, attempt=2)
                replace_file(run.paths.record, encode_record(taken))
    stored = only_run()
    assert (stored.record, [epoch.epoch for epoch in stored.epochs]) == (taken, [1])
    assert not stored.paths.error.exists() and stored.paths.heartbeat.exists()


def test_checking_for_a_takeover_is_not_timed(
    tmp_path: Path, network: nn.Module, loader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count()  # a second passes with each mark

    def is_lost(folder: RunFolder) -> bool:
        if folder.paths.root.is_relative_to(tmp_path):  # and not a run that another test has abandoned
            for _ in range(1000):
                next(clock)
        return False

    monkeypatch.setattr(HostClock, "mark", lambda self: next(clock) * 10**9)
    monkeypatch.setattr(RunFolder, "is_lost", is_lost)
    with quiet(tmp_path / "sweep").run({"lr": 1}, network, loader) as run:
        by_hand = run.begin_epoch()
        run.end_epoch(by_hand)
        evaluated = run.begin_epoch()
        assert len(list(evaluated.eval_batches(loader))) == 3
        record = run.end_epoch(evaluated)
    assert run.history[0].epoch_seconds == 1.0
    # Before the evaluation, during it, and after it.
    assert (record.epoch_seconds, record.eval_seconds) == (2.0, 1.0)


def test_a_run_of_another_host_is_watched_before_it_is_taken_over(
    tmp_path: Path,
    network: nn.Module,
    loader: Any,
    train: Body,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    only_run: Callable[[], StoredRun],
) -> None:
    other = ProcessIdentity(pid=7, start_ticks=1, boot_id="other", host="elsewhere")
    with RunManager(tmp_path / "sweep").run({"lr": 1}, network, loader):
        pass
    left = msgspec.structs.replace(only_run().record, status=Status.RUNNING, owner=other)
    replace_file(only_run().paths.record, encode_record(left))
    waits: list[float] = []
    observer = partial(HeartbeatObserver, clock=lambda: sum(waits), wait=waits.append)
    monkeypatch.setattr(manager_module, "HeartbeatObserver", observer)
    with RunManager(tmp_path / "sweep", heartbeat_timeout=30.0).run({"lr": 1}, network, loader) as run:
        train(run, network, loader)
    assert sum(waits) == 30.0
    assert only_run().record.status is Status.FINISHED
    assert "is running on elsewhere; taken over if it shows no sign of life for 30 s" in capsys.readouterr().out
    with pytest.raises(UsageError, match="`heartbeat_timeout` must be a number of seconds of at least 10, got 1"):
        RunManager(tmp_path / "sweep", heartbeat_timeout=1)


def test_settings_may_be_mappings_tuples_and_dataclasses(tmp_path: Path, network: nn.Module, loader: Any) -> None:
    given = {"lr": 1.0, "batch_size": 2}
    for params in (given, namedtuple("Run", "lr batch_size")(1.0, 2), Params(1.0, 2), argparse.Namespace(**given)):
        with quiet(tmp_path / "sweep", overwrite=True).run(params, network, loader):
            pass
    (stored,) = stored_runs(tmp_path / "sweep")  # one cell: equal settings have one signature
    assert stored.record.attempt == 4 and stored.record.config == {"lr": 1.0, "batch_size": 2}
    with pytest.raises(
        UsageError, match=r"must be a mapping, a named tuple, a dataclass or an argparse\.Namespace, got int"
    ):
        quiet(tmp_path / "sweep").run(3)


def test_one_process_per_cell_makes_the_same_sweep_as_one_process(
    tmp_path: Path, network: nn.Module, loader: Any, train: Body
) -> None:
    """As in `for lr in …; do python train.py --lr $lr; done`, no manager knows the cells of the others."""
    fixed = {f"setting_{number:02}": number for number in range(30)}
    given = [argparse.Namespace(**fixed, lr=lr, data="/data/" + 60 * "x") for lr in (0.1, 0.2, 0.3)]
    for params in (*given, given[0]):  # the last one is kept
        with quiet(tmp_path / "sweep").run(params, network, loader) as run:
            train(run, network, loader, epochs=1)
    plan = read_sweep_record(SweepPaths(tmp_path / "sweep"))
    assert plan is not None and plan.axes == {"lr": [0.1, 0.2, 0.3]}
    runs = stored_runs(tmp_path / "sweep")
    assert [run.record.config["lr"] for run in runs] == [0.1, 0.2, 0.3] and {run.record.attempt for run in runs} == {1}
    assert [(cell.run, cell.name) for cell in plan.planned] == [(run.folder, run.name) for run in runs]
    assert ",lr=0.2-" in runs[1].name and ",lr=0.3-" in runs[2].name, "their names hold the settings that differ"


SCALE = 1


def test_a_lambda_counts_by_the_globals_that_it_uses_and_secrets_of_a_partial_are_in_no_file(
    tmp_path: Path, network: nn.Module, loader: Any, train: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = partial(argparse.Namespace, api_key="sk-live-12345678")
    for scale in (1, 2, 1):  # the last one is kept
        monkeypatch.setitem(globals(), "SCALE", scale)
        with quiet(tmp_path / "sweep").run({"act": lambda x: x * SCALE, "client": client}, network, loader) as run:
            train(run, network, loader, epochs=1)
    assert [run.record.attempt for run in stored_runs(tmp_path / "sweep")] == [1, 1]
    files = [path for path in (tmp_path / "sweep").rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if "sk-live" in path.name or b"sk-live" in path.read_bytes()]


def test_concurrent_runs_in_threads(
    tmp_path: Path, train: Body, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    """Drawing a network silences its output, which replaces streams and filters of the whole process."""
    stdout, filters = sys.stdout, [*warnings.filters]
    one, start = RunManager(tmp_path / "sweep"), threading.Barrier(6, timeout=60)
    raised: list[BaseException] = []

    def carry_out(number: int) -> None:
        network, loader = Stateful(), DataLoader(images(), batch_size=20)
        manager = one if number % 2 else RunManager(tmp_path / "sweep")
        try:
            start.wait()
            for attempt in range(3):
                with manager.run({"lr": number, "attempt": attempt}, network, loader) as run:
                    train(run, network, loader)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=carry_out, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not raised and not any(thread.is_alive() for thread in threads)
    assert sys.stdout is stdout and [*warnings.filters] == filters
    print("still heard")
    out = capsys.readouterr().out
    assert "still heard" in out and out.count("  finished\n") == 18 and out.count("  epoch 2") == 18
    runs = stored_runs(tmp_path / "sweep")
    assert len(runs) == 18 and {(run.record.status, run.record.notes) for run in runs} == {("finished", ())}
    assert all([epoch.samples for epoch in run.epochs] == [50, 50] for run in runs)
    assert len({run.record.measurements.flop_per_step for run in runs}) == 1
    rows = list(csv.DictReader((tmp_path / "sweep" / "results.csv").read_text().splitlines()))
    assert len(rows) == 18 and {row["status"] for row in rows} == {"finished"}


def test_one_of_two_threads_with_the_same_cell_is_refused(tmp_path: Path) -> None:
    start, results = threading.Barrier(2, timeout=60), []

    def begin() -> None:
        start.wait()
        try:
            results.append(RunManager(tmp_path / "sweep", sinks=[]).run({"lr": 1}))
        except RunBusyError as error:
            results.append(error)

    threads = [threading.Thread(target=begin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(type(each).__name__ for each in results) == ["ActiveRun", "RunBusyError"]


def test_settings_may_be_lists(tmp_path: Path, network: nn.Module, loader: Any) -> None:
    manager = quiet(tmp_path / "sweep")
    for betas in ([0.9, 0.999], [0.8, 0.9], [0.9, 0.999]):
        with manager.run({"betas": betas}, network, loader):
            pass
    plan = read_sweep_record(SweepPaths(tmp_path / "sweep"))
    assert plan is not None and plan.axes == {"betas": [[0.9, 0.999], [0.8, 0.9]]}


def test_without_a_folder_a_new_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = RunManager(), RunManager()
    assert one.paths.root != other.paths.root
    assert one.paths.root.parent == other.paths.root.parent == tmp_path / "outputs"


def test_lazy_and_frozen_models(tmp_path: Path, loader: Any, train: Body, only_run: Callable[[], StoredRun]) -> None:
    torch.manual_seed(0)
    frozen = nn.Linear(64, 16)
    frozen.requires_grad_(False)
    network = nn.Sequential(nn.Flatten(), frozen, nn.ReLU(), nn.LazyLinear(3))
    options = TensorBoardOptions(histograms=True)
    with RunManager(tmp_path / "sweep", console=False, tensorboard=options).run({}, network, loader) as run:
        assert run.record.num_parameters is None
        train(run, network, loader)
    stored = only_run()
    assert stored.record.status == "finished" and stored.record.notes == ()
    assert stored.record.num_parameters == 64 * 16 + 16 + 16 * 3 + 3
    assert frozen.weight.grad is None


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_compiled_models_and_dict_outputs_do_not_fail_a_run(tmp_path: Path, loader: Any) -> None:
    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 3)

        def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"scores": self.layer(inputs.flatten(1))}

    network = torch.compile(Scores(), backend="eager")
    with RunManager(tmp_path / "sweep", console=False).run({}, network, loader) as run:
        for epoch in run.epochs(1):
            for inputs, labels in epoch.batches(loader):
                preds = network(inputs)["scores"]
                epoch.track(F.cross_entropy(preds, labels), preds, labels)
    assert run.record.status == "finished" and run.record.notes == ()
    assert b"layer" in event_files(stored_runs(tmp_path / "sweep")[0].paths)[0].read_bytes()


def test_writing_the_tables_reads_each_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: Any, train: Body
) -> None:
    monkeypatch.setattr(summary_cache, "_SETTLED_NS", 0)  # these runs do not change any more, although they are recent
    read: list[str] = []
    read_run = results_loader.read_tolerantly

    def counted_read(run: RunPaths, *given: Any, **options: Any) -> StoredRun | None:
        read.append(run.name)
        return read_run(run, *given, **options)

    monkeypatch.setattr(results_loader, "read_tolerantly", counted_read)
    manager = RunManager(tmp_path / "sweep", console=False, tensorboard=TensorBoardOptions(enabled=False))
    for number in range(1, 6):
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        with manager.run({"lr": number}, network, loader) as run:
            train(run, network, loader)
        rows = list(csv.DictReader((tmp_path / "sweep" / "results.csv").read_text().splitlines()))
        assert sorted(row["lr"] for row in rows) == [str(each) for each in range(1, number + 1)]
        assert {row["status"] for row in rows} == {"finished"}
    assert sorted(read) == sorted(path.name for path in (tmp_path / "sweep" / "runs").iterdir())


def test_save_lists_the_runs_of_this_manager(tmp_path: Path, network: nn.Module, loader: Any, train: Body) -> None:
    for lr in (0.1, 0.2):
        with quiet(tmp_path / "sweep").run({"lr": lr}, network, loader) as run:
            train(run, network, loader, epochs=1)
    manager = quiet(tmp_path / "sweep")
    with manager.run({"lr": 0.2}, network, loader) as run:  # kept: its epochs are in the table too
        train(run, network, loader, epochs=1)
    manager.save(tmp_path / "table.v1")
    with (tmp_path / "table.v1.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["lr"] == "0.2" and row["epoch"] == "1"


def test_save_names_a_damaged_run_and_writes_the_others(
    tmp_path: Path, network: nn.Module, loader: Any, train: Body, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = RunManager(tmp_path / "sweep")
    for lr in (0.1, 0.2):
        with manager.run({"lr": lr}, network, loader) as run:
            train(run, network, loader, epochs=1)
    run.paths.epochs.write_text("{")
    manager.save(tmp_path / "table")
    with (tmp_path / "table.csv").open(newline="") as file:
        assert [row["lr"] for row in csv.DictReader(file)] == ["0.1"]
    assert "is damaged" in (out := capsys.readouterr().out) and "it is left out of" in out


def test_places_where_nothing_can_be_written_are_refused(
    tmp_path: Path, network: nn.Module, loader: Any, train: Body
) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    for root in (file, file / "sweep"):
        with pytest.raises(UsageError, match=r"`root` must be a folder that can be written, got .*: Not a directory"):
            quiet(root)
    manager = quiet(tmp_path / "sweep")
    with manager.run({}, network, loader) as run:
        train(run, network, loader)
    for name, message in (("", "the name of a file"), ("a\0b", "the name of a file"), (file / "x", "Not a directory")):
        with pytest.raises(UsageError, match=f"`file_name` must be .*{message}"):
            manager.save(name)
