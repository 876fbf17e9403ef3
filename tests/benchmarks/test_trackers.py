"""Trackers log every step and epoch; a peer that is not installed is skipped and named."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchmarks import peers
from benchmarks.command_line import Settings
from benchmarks.interleaving import StoppingRule
from benchmarks.trackers import OURS, UNTRACKED, start_tracker, version_of


@pytest.mark.parametrize("name", [OURS, "torch's SummaryWriter"])
def test_tracker_writes_every_step_and_epoch(tmp_path: Path, name: str) -> None:
    tracker = start_tracker(name, tmp_path, torch.nn.Linear(2, 2), torch.device("cpu"))
    preds, labels = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
    for _ in range(2):
        with tracker.epoch() as epoch:
            for batch in epoch.batches([(preds, labels)] * 3):
                epoch.track(torch.tensor(0.5), *batch)
    tracker.end()
    (path,) = tmp_path.rglob("events.out.tfevents.*")
    events = EventAccumulator(str(path)).Reload()
    assert [(each.step, each.value) for each in events.Scalars("step/loss")] == [(n, 0.5) for n in range(1, 7)]
    accuracies = [tag for tag in events.Tags()["scalars"] if "accuracy" in tag.lower()]
    assert [each.value for each in events.Scalars(accuracies[0])] == [0.5, 0.5]


def test_untracked_writes_nothing(tmp_path: Path) -> None:
    batch = (torch.ones(2), torch.zeros(2))
    tracker = start_tracker(UNTRACKED, tmp_path, torch.nn.Linear(2, 2), torch.device("cpu"))
    with tracker.epoch() as epoch:
        assert [len(each) for each in epoch.batches([batch] * 3)] == [2] * 3
    tracker.end()
    assert list(tmp_path.iterdir()) == []


def test_missing_peer_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Sequence[str]] = []

    def fake_run(sides: Mapping[str, Sequence[str]], **_: Any) -> dict[str, list[float]]:
        started.extend(sides.values())
        return {name: [2.0 if "torch" in name else 1.0] * 5 for name in sides}

    monkeypatch.setattr(peers, "run_sides_interleaved", fake_run)
    monkeypatch.setattr(peers, "version_of", lambda name: "2.9" if name == "torch" else None)
    rows = {row.what: row for row in peers.measure(Settings(StoppingRule(), 0, False, "a command"))}
    assert rows["epoch by PyTorch Lightning / ours"].ours == "skipped: lightning is not installed"
    steps = "a tracked step"
    assert rows[f"{steps}: torch's SummaryWriter (torch 2.9) / ours"].ratio == "2 (2 to 2)"
    assert rows[f"{steps}: MLflow with SQLite / ours"].ours == "skipped: mlflow-skinny is not installed"
    assert {args[-1] for args in started} == {OURS, UNTRACKED, "torch's SummaryWriter"}


def test_versions_are_the_installed_ones() -> None:
    assert version_of("torch") == torch.__version__.partition("+")[0]
    assert version_of("no-such-distribution") is None
