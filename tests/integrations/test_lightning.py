"""The bridge to Lightning: real trainings of a tiny network, against the same loop in plain PyTorch."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.profilers import PassThroughProfiler
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from runmanager.integrations.lightning import RunManagerCallback, RunManagerLogger
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.tracking.program.current_run import end_current_run

pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

LR, NUM_SAMPLES, BATCH = 0.1, 22, 4


@pytest.fixture(autouse=True)
def no_open_run() -> Iterator[None]:
    yield
    end_current_run()


def samples() -> TensorDataset:
    torch.manual_seed(1)
    return TensorDataset(torch.randn(NUM_SAMPLES, 5), torch.randint(0, 3, (NUM_SAMPLES,)))


def loader() -> DataLoader[Any]:
    return DataLoader(samples(), BATCH)


class Module(lightning.LightningModule):
    def __init__(self, lr: float = LR, net: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.save_hyperparameters()
        torch.manual_seed(0)
        self.net = torch.nn.Linear(5, 3)
        self.num_trained = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.net(inputs)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.num_trained += 1
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        scores = self(batch[0])
        self.log("val_loss", F.cross_entropy(scores, batch[1]), add_dataloader_idx=dataloader_idx > 0)
        self.log("val_acc", (scores.argmax(1) == batch[1]).float().mean(), add_dataloader_idx=dataloader_idx > 0)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test_loss", F.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.hparams["lr"])


def make_trainer(folder: Path, logger: Any, **options: Any) -> Any:
    defaults = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 2}
    return lightning.Trainer(logger=logger, default_root_dir=folder, log_every_n_steps=1, **defaults | options)


def stored(root: Path) -> StoredRun:
    (run,) = read_sweep(SweepPaths(root)).runs
    return run


def plain_training(num_epochs: int, *, accumulate: int = 1) -> tuple[torch.nn.Module, list[float]]:
    """Train without Lightning; return the network, and the mean loss over the samples of each epoch."""
    network, means = Module().net, []
    optimizer = torch.optim.SGD(network.parameters(), lr=LR)
    batches = list(loader())
    for _ in range(num_epochs):
        total = 0.0
        for index, (inputs, labels) in enumerate(batches, 1):
            loss = F.cross_entropy(network(inputs), labels)
            (loss / accumulate).backward()
            total += float(loss.detach()) * len(labels)
            if index % accumulate == 0 or index == len(batches):
                optimizer.step()
                optimizer.zero_grad()
        means.append(total / NUM_SAMPLES)
    return network, means


def test_logger_records_epochs_values_settings_and_the_test_of_a_training(tmp_path: Path) -> None:
    network, losses = plain_training(2)
    logger = RunManagerLogger(tmp_path / "sweep")
    module = Module(net=torch.nn.Linear(1, 1))
    trainer = make_trainer(tmp_path, logger)
    trainer.fit(module, loader(), loader())
    trainer.test(module, loader(), verbose=False)
    torch.testing.assert_close(module.net.weight, network.weight)
    logger.run.end()

    run = stored(tmp_path / "sweep")
    record = run.record
    assert (record.status, record.epochs_planned, record.num_parameters) == ("finished", 2, 18)
    assert record.config == {"lr": LR}, "a module is not a setting"
    assert [epoch.epoch for epoch in run.epochs] == [1, 2], "the sanity check is not an epoch"
    assert [epoch.samples for epoch in run.epochs] == [NUM_SAMPLES] * 2
    assert [epoch.loss for epoch in run.epochs] == pytest.approx(losses)
    inputs, labels = samples().tensors
    with torch.no_grad():
        scores = network(inputs)
    final = float(F.cross_entropy(scores, labels))
    last = run.epochs[-1]
    assert last.val_loss == pytest.approx(final, rel=1e-5)
    assert last.val_accuracy == pytest.approx(float((scores.argmax(1) == labels).float().mean()))
    assert set(last.metrics) == {"train_loss_step", "train_loss_epoch"}
    assert last.metrics["train_loss_epoch"] == pytest.approx(last.loss, rel=1e-5)
    assert record.summary == {"test_loss": pytest.approx(final, rel=1e-5)}
    parts = [getattr(last, f"{phase}_seconds") for phase in ("data", "transfer", "compute", "eval", "tracking")]
    assert all(seconds is not None and seconds > 0 for seconds in parts)
    assert record.measurements.flop_per_step, "its network was copied without the trainer"
    assert module.trainer is trainer and "batch_to_device" not in vars(trainer.strategy)


def test_accumulation_several_loaders_and_evaluations_within_the_epoch(tmp_path: Path) -> None:
    network, losses = plain_training(2, accumulate=2)
    callback = RunManagerCallback(tmp_path / "sweep")
    module = Module()
    trainer = make_trainer(tmp_path, False, callbacks=[callback], accumulate_grad_batches=2, val_check_interval=0.5)
    trainer.fit(module, loader(), [loader(), loader()])
    callback.run.end()
    torch.testing.assert_close(module.net.weight, network.weight)
    run = stored(tmp_path / "sweep")
    assert [epoch.loss for epoch in run.epochs] == pytest.approx(losses)
    assert [epoch.samples for epoch in run.epochs] == [NUM_SAMPLES] * 2
    last = run.epochs[-1]
    with torch.no_grad():
        final = float(F.cross_entropy(network(samples().tensors[0]), samples().tensors[1]))
    assert last.val_loss == pytest.approx(final, rel=1e-5), "the last evaluation of the epoch counts"
    assert last.metrics["val_loss/dataloader_idx_1"] == pytest.approx(final, rel=1e-5)


class Manual(Module):
    """Optimises by hand, and returns no loss."""

    automatic_optimization = False

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        first, second = self.optimizers()
        for optimizer in (first, second):
            loss = F.cross_entropy(self(batch[0]), batch[1])
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        self.log("train_loss", loss, on_step=False, on_epoch=True)

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD([self.net.weight], lr=LR), torch.optim.SGD([self.net.bias], lr=LR)]


def test_manual_optimisation_takes_the_loss_that_it_logs(tmp_path: Path) -> None:
    logger = RunManagerLogger(tmp_path / "sweep")
    make_trainer(tmp_path, logger).fit(Manual(), loader())
    logger.run.end()
    run = stored(tmp_path / "sweep")
    assert [epoch.samples for epoch in run.epochs] == [NUM_SAMPLES] * 2
    assert run.epochs[0].loss > run.epochs[1].loss > 0
    assert not run.epochs[1].metrics, "the mean of the epoch is the column"


class Stream(IterableDataset[Any]):
    """Has no length."""

    def __iter__(self) -> Iterator[Any]:
        yield from samples()


class Failing(Module):
    def __init__(self, error: BaseException, at: int) -> None:
        super().__init__()
        self.error, self.at = error, at

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.num_trained == self.at:
            raise self.error
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize(
    ("error", "raised", "status"),
    [(ValueError("bad batch"), ValueError, "failed"), (KeyboardInterrupt(), SystemExit, "killed")],
)
def test_training_that_raises_keeps_its_whole_epochs_and_ends_the_run(
    tmp_path: Path, error: BaseException, raised: type[BaseException], status: str
) -> None:
    trainer = make_trainer(tmp_path, RunManagerLogger(tmp_path / "sweep"))
    with pytest.raises(raised):
        trainer.fit(Failing(error, at=8), DataLoader(Stream(), BATCH))
    run = stored(tmp_path / "sweep")
    assert (run.record.status, [epoch.epoch for epoch in run.epochs]) == (status, [1])
    assert run.epochs[0].samples == NUM_SAMPLES
    assert status == "killed" or "bad batch" in run.record.message


def test_divergence_ends_the_training(tmp_path: Path) -> None:
    module = Module(lr=3e38)
    logger = RunManagerLogger(tmp_path / "sweep")
    make_trainer(tmp_path, logger, max_epochs=5).fit(module, loader())
    logger.run.end()
    run = stored(tmp_path / "sweep")
    assert (run.record.status, run.record.reason) == ("failed", "diverged")
    assert len(run.epochs) < 5


def test_resumed_training_and_the_next_logger(tmp_path: Path) -> None:
    first = RunManagerLogger(tmp_path / "first")
    trainer = make_trainer(tmp_path, first, max_epochs=4, callbacks=[StopAfter(2)])
    trainer.fit(Module(), loader())
    second = RunManagerLogger(tmp_path / "second")
    again = make_trainer(tmp_path, second, max_epochs=3)
    again.fit(Module(), loader(), ckpt_path=trainer.checkpoint_callback.best_model_path)
    second.run.end()
    earlier, later = stored(tmp_path / "first"), stored(tmp_path / "second")
    assert (earlier.record.status, earlier.record.reason) == ("finished", "early_stopped"), "ended as the next began"
    assert [epoch.epoch for epoch in earlier.epochs] == [1, 2]
    assert [epoch.epoch for epoch in later.epochs] == [3]
    assert (later.record.status, later.record.reason) == ("finished", None)
    assert later.epochs[0].loss == pytest.approx(plain_training(3)[1][2])


class StopAfter(lightning.Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        trainer.should_stop = trainer.current_epoch + 1 == self.epoch


def test_finished_run_is_kept(tmp_path: Path) -> None:
    for expected in (12, 0):
        module, logger = Module(), RunManagerLogger(tmp_path / "sweep")
        make_trainer(tmp_path, logger).fit(module, loader())
        logger.run.end()
        assert module.num_trained == expected
    assert len(stored(tmp_path / "sweep").epochs) == 2


class Actions(PassThroughProfiler):
    """Counts what the Trainer enters a context for."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def start(self, action_name: str) -> None:
        self.counts[action_name] += 1


class Reading(Module):
    """Reads its batches itself."""

    def training_step(self, dataloader_iter: Iterator[Any]) -> Any:  # type: ignore[override]
        batch, _, _ = next(dataloader_iter)
        return F.cross_entropy(self(batch[0]), batch[1])


@pytest.mark.parametrize("kind", [Module, Reading])
def test_lightning_calls_the_bridge_once_in_a_step(tmp_path: Path, kind: type[Module]) -> None:
    actions, logger = Actions(), RunManagerLogger(tmp_path / "sweep")
    make_trainer(tmp_path, logger, profiler=actions, enable_checkpointing=False).fit(kind(), loader())
    logger.run.end()
    num_steps = 2 * -(-NUM_SAMPLES // BATCH)
    of_steps = {name for name, count in actions.counts.items() if "RunManager" in name and count >= num_steps}
    assert of_steps == {"[Callback]RunManagerCallback.on_train_batch_end"}, "each further one would cost every step"
    run = stored(tmp_path / "sweep")
    assert [epoch.samples for epoch in run.epochs] == [NUM_SAMPLES] * 2
    assert [epoch.loss for epoch in run.epochs] == pytest.approx(plain_training(2)[1])
    assert all(epoch.compute_seconds > 0 for epoch in run.epochs)
