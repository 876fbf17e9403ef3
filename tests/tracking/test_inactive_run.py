"""An inactive run has the interface of an active one, and changes nothing that is stored."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runmanager import RunManager
from runmanager.records.run.run_record import EpochRecord
from runmanager.tracking.inactive_run import InactiveRun
from runmanager.tracking.run import ActiveRun

from .conftest import Body, stored_runs


def surface(thing: object) -> dict[str, Any]:
    """Return the public names of an object, with the parameters of its methods."""
    names = [name for name in dir(thing) if not name.startswith("_") or name in ("__enter__", "__exit__")]
    return {name: parameters(value) if callable(value := getattr(thing, name)) else None for name in names}


def parameters(call: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(call).parameters.values()]


def by_hand(run: ActiveRun | InactiveRun, network: nn.Module, loader: Any) -> list[EpochRecord]:
    """Train in a custom loop that makes every call."""
    ended = []
    for _ in range(2):
        epoch = run.begin_epoch()
        for inputs, labels in epoch.batches(loader):
            preds = network(inputs)
            epoch.track(F.cross_entropy(preds, labels), preds, labels)
        epoch.track(torch.tensor(1.0), torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))
        for _ in epoch.eval_batches(loader):
            epoch.track_eval(torch.tensor(1.0), samples=1)
        ended.append(run.end_epoch(epoch))
        run.note(f"epoch {epoch.number}: {ended[-1].loss}")
    run.note_deviation("in something")
    run.add_measurements(compile_seconds=1.0)
    run.interrupt()
    run.stop_early("enough")
    run.end()
    return ended


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_loop_may_use_a_kept_or_skipped_run_like_any_other(
    tmp_path: Path, network: nn.Module, loader: Any, train: Body, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    settings = {"lr": 1, "device": device}
    with RunManager(tmp_path / "sweep", console=False).run(settings, network, loader) as first:
        train(first, network, loader)
    run = RunManager(tmp_path / "sweep", console=False).run(settings, network, loader)
    before = {path: path.read_bytes() for path in run.paths.root.rglob("*") if path.is_file()}
    (stored,) = stored_runs(tmp_path / "sweep")
    assert isinstance(run, InactiveRun) and run.history == stored.epochs
    assert len(run.history) == (2 if device == "cpu" else 0)
    with run:
        by_hand_records = by_hand(run, network, loader)
    assert by_hand_records == (stored.epochs if device == "cpu" else [EpochRecord(1), EpochRecord(2)])
    assert list(run.epochs(5)) == list(run.evaluation_before_training()) == list(run.evaluation_again()) == []
    assert run.record == stored.record
    assert {path: path.read_bytes() for path in run.paths.root.rglob("*") if path.is_file()} == before


def test_an_inactive_run_has_the_interface_of_an_active_one(tmp_path: Path, network: nn.Module, loader: Any) -> None:
    active = RunManager(tmp_path / "sweep", sinks=[]).run({"lr": 1}, network, loader)
    with active:
        epoch = active.begin_epoch()
        active.end_epoch(epoch)
    inactive = RunManager(tmp_path / "sweep", sinks=[]).run({"lr": 1}, network, loader)
    assert isinstance(active, ActiveRun) and isinstance(inactive, InactiveRun)
    assert surface(inactive) == surface(active)
    assert surface(inactive.begin_epoch()) == surface(epoch)
    assert surface(inactive.unrecorded_epoch()) == surface(epoch)


def test_a_kept_run_with_damaged_epochs_stays_kept_and_prints_a_line(
    tmp_path: Path, network: nn.Module, loader: Any, train: Body, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        with RunManager(tmp_path / "sweep").run({"lr": 1}, network, loader) as run:
            train(run, network, loader)
        run.paths.epochs.write_text("{}\n")
    assert isinstance(run, InactiveRun) and run.history == []
    assert "epochs.jsonl is damaged" in capsys.readouterr().out
