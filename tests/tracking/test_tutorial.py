"""The tutorial's main loop as in its course, with only the imports changed."""

import csv
import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader

from runmanager import RunBuilder, RunManager
from runmanager.errors import UsageError

from .conftest import images, stored_runs


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels=1, out_channels=6, kernel_size=3)
        self.fc1 = nn.Linear(in_features=6 * 3 * 3, out_features=20)
        self.out = nn.Linear(in_features=20, out_features=3)

    def forward(self, t):
        t = F.relu(self.conv1(t))
        t = F.max_pool2d(t, kernel_size=2, stride=2)
        t = t.flatten(start_dim=1)
        t = F.relu(self.fc1(t))
        return self.out(t)


def main_loop(params, train_set, m, num_epochs=2):
    for run in RunBuilder.get_runs(params):
        device = torch.device(getattr(run, "device", "cpu"))
        network = Network().to(device)
        loader = DataLoader(train_set, batch_size=run.batch_size, num_workers=run.num_workers)
        optimizer = optim.Adam(network.parameters(), lr=run.lr)

        m.begin_run(run, network, loader)
        for _epoch in range(num_epochs):
            m.begin_epoch()
            for batch in loader:
                images = batch[0].to(device)
                labels = batch[1].to(device)
                preds = network(images)
                loss = F.cross_entropy(preds, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

                m.track_loss(loss, batch)
                m.track_num_correct(preds, labels)
            m.end_epoch()
        m.end_run()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)


PARAMS = OrderedDict(lr=[0.01], batch_size=[20, 50], num_workers=[0, 1])


@pytest.mark.parametrize("device", [{}, {"device": ["cpu"]}])
def test_the_main_loop(tmp_path: Path, device: dict[str, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    params = OrderedDict(**PARAMS, **device)
    m = RunManager()
    main_loop(params, images(), m)
    m.save("results")

    runs = stored_runs(tmp_path / m.paths.root)
    cells = [(run.record.config["batch_size"], run.record.config["num_workers"]) for run in runs]
    assert cells == [(20, 0), (20, 1), (50, 0), (50, 1)]
    with Path("results.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header[:11] == [
        *("run", "epoch", "loss", "accuracy", "val_loss", "val_accuracy"),
        *("epoch_seconds", "wall_seconds", "run_seconds", "samples", "warmup"),
    ]
    assert header[16:] == ["lr", "batch_size", "num_workers", "device"]
    assert len(rows) == 8 and len(json.loads(Path("results.json").read_text())) == 8
    for run in runs:
        assert run.record.status == "finished" and run.record.notes == ()
        assert [epoch.epoch for epoch in run.epochs] == [1, 2]
        for epoch in run.epochs:
            # Phases that these calls cannot see stay empty.
            assert (epoch.data_seconds, epoch.transfer_seconds, epoch.compute_seconds) == (None, None, None)
            assert (epoch.eval_seconds, epoch.val_loss) == (None, None)
            assert epoch.epoch_seconds and epoch.samples == 50
            # Within a nanosecond, the resolution of the clock.
            assert epoch.epoch_seconds + epoch.tracking_seconds == pytest.approx(epoch.wall_seconds, abs=1e-9)
        (file,) = run.paths.root.glob("events.*")
        written = file.read_bytes()
        assert all(tag in written for tag in (b"images", b"conv1", b"gradients/fc1.weight", b"train/loss"))
    out = capsys.readouterr().out
    assert out.count("finished") == 4


def test_recorded_values_equal_those_of_the_loop_without_a_manager() -> None:
    class Silent:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

    class Keeping(Silent):
        """Collects the losses, weighted by the samples of their batches."""

        def __init__(self) -> None:
            self.sums = [0.0]

        def track_loss(self, loss: torch.Tensor, batch: Any) -> None:
            self.sums[-1] += loss.item() * batch[0].shape[0]

        def end_epoch(self) -> None:
            self.sums.append(0.0)

    params = OrderedDict(lr=[0.01], batch_size=[20], num_workers=[0])
    plain = Keeping()
    main_loop(params, images(), plain)
    after_plain = torch.get_rng_state()
    torch.manual_seed(0)
    m = RunManager("outputs/sweep")
    main_loop(params, images(), m)
    assert torch.equal(torch.get_rng_state(), after_plain)
    (run,) = stored_runs(Path("outputs/sweep"))
    assert [epoch.loss for epoch in run.epochs] == pytest.approx([total / 50 for total in plain.sums[:2]], rel=1e-9)


def begin(m: RunManager, network: nn.Module | None = None, **settings: Any) -> nn.Module:
    network = network or Network()
    (run,) = RunBuilder.get_runs({name: [value] for name, value in {"lr": 0.1, **settings}.items()})
    m.begin_run(run, network, DataLoader(images(), batch_size=25))
    return network


def test_calls_out_of_order_are_refused() -> None:
    m = RunManager("outputs/sweep", console=False)
    loss, batch = torch.tensor(1.0), (torch.zeros(2, 1), torch.zeros(2))
    for call in (m.begin_epoch, m.end_epoch, m.end_run, lambda: m.track_loss(loss, batch)):
        with pytest.raises(UsageError, match=r"got no run; call begin_run\(\)"):
            call()
    begin(m)
    with pytest.raises(UsageError, match=r"call end_run\(\)"):
        begin(m, lr=0.2)
    for call in (
        m.end_epoch,
        lambda: m.track_loss(loss, batch),
        lambda: m.track_num_correct(torch.zeros(2, 3), batch[1]),
    ):
        with pytest.raises(UsageError, match=r"call begin_epoch\(\) first"):
            call()
    m.begin_epoch()
    for call in (m.begin_epoch, m.end_run):
        with pytest.raises(UsageError, match=r"call end_epoch\(\) first"):
            call()
    m.track_loss(loss, batch)
    m.end_epoch()
    m.end_run()
    (run,) = stored_runs(Path("outputs/sweep"))
    assert run.record.status == "finished" and len(run.epochs) == 1


def test_predictions_may_belong_to_any_task() -> None:
    begin(m := RunManager("outputs/sweep", console=False))
    m.begin_epoch()
    m.track_loss(torch.tensor(1.0), (torch.zeros(4, 1), torch.zeros(4)))
    logits, labels = torch.tensor([[2.0], [-1.0], [-3.0], [1.0]]), torch.tensor([1, 0, 1, -100])
    with pytest.raises(UsageError, match="task='binary'"):
        m.track_num_correct(logits, labels)
    m.track_num_correct(logits, labels, task="binary")
    m.end_epoch()
    m.begin_epoch()
    m.track_loss(torch.tensor(1.0), (torch.zeros(4, 1), torch.zeros(4)))
    m.track_num_correct(logits, torch.full((4,), -100), task="binary")
    m.end_epoch()
    m.end_run()
    (run,) = stored_runs(Path("outputs/sweep"))
    assert [epoch.accuracy for epoch in run.epochs] == [2 / 3, None]
    assert [epoch.samples for epoch in run.epochs] == [4, 4]


def whole_epoch(m: RunManager) -> None:
    batch = (torch.zeros(2, 1), torch.zeros(2, dtype=torch.long))
    m.begin_epoch()
    m.track_loss(torch.tensor(1.0), batch)
    m.track_num_correct(torch.zeros(2, 3), batch[1])
    m.end_epoch()


def test_a_finished_run_is_overwritten_only_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    begin(m := RunManager("outputs/sweep", console=False))
    m.begin_epoch()
    m.end_epoch()
    m.end_run()
    before = {path: path.read_bytes() for path in Path("outputs/sweep/runs").rglob("*") if path.is_file()}
    (run,) = RunBuilder.get_runs(OrderedDict(lr=[0.1]))
    m = RunManager("outputs/sweep", console=True)
    assert m.begin_run(run, Network(), None) is False
    assert "finished already, kept; RunManager(…, overwrite=True) runs it again" in capsys.readouterr().out
    whole_epoch(m)
    m.end_run()
    assert {path: path.read_bytes() for path in Path("outputs/sweep/runs").rglob("*") if path.is_file()} == before
    m.save("again")
    with Path("again.csv").open(newline="") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1"], "the kept run is in the table"
    begin(m := RunManager("outputs/sweep", console=False, overwrite=True))
    m.end_run()
    (run,) = stored_runs(Path("outputs/sweep"))
    assert run.record.attempt == 2 and (run.paths.attempts / "1" / "run.json").exists()


def test_a_missing_device_is_recorded_as_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    m = RunManager("outputs/sweep", console=False)
    begin(m, device="cuda")
    whole_epoch(m)
    m.end_run()
    (run,) = stored_runs(Path("outputs/sweep"))
    assert run.record.status == "skipped" and "'cuda' was asked for" in run.record.message and run.epochs == []
    begin(m, device="cpu")  # the next run can begin
    m.end_run()


def test_an_invalid_network_fails_its_run() -> None:
    m = RunManager("outputs/sweep", console=False)
    with pytest.raises(UsageError, match=r"torch\.nn\.Module"):
        begin(m, network=lambda t: t)  # type: ignore[arg-type]
    (run,) = stored_runs(Path("outputs/sweep"))
    assert run.record.status == "failed"
    begin(m, lr=0.5)
    m.end_run()


def test_a_nan_loss_is_recorded_at_the_end() -> None:
    begin(m := RunManager("outputs/sweep", console=False))
    m.begin_epoch()
    m.track_loss(torch.tensor(float("nan")), (torch.zeros(2, 1), torch.zeros(2)))
    m.end_epoch()
    m.end_run()
    (run,) = stored_runs(Path("outputs/sweep"))
    assert (run.record.status, run.record.reason) == ("failed", "diverged")
